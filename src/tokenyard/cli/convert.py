"""``tokenyard convert``: a trace from JSON lines to Parquet, or back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from tokenyard.cli.support.console import errors, print_json, results, warn
from tokenyard.cli.support.flags.traces import ConvertCommand
from tokenyard.trace.convert import Conversion, OnProgress, convert, work_of


def execute(flags: ConvertCommand) -> int:
    """Convert the file or the pair; always 0 if everything was written."""
    done = [_convert(flags, *work) for work in work_of(flags.trace, flags.output, overwrite=flags.overwrite)]
    for each in done:
        if each.damage is not None:
            warn(f"{each.source}: {each.damage}; what stands before was converted")
        if each.bad_lines:
            first = f", the first is line {each.first_bad_line:,}" if each.first_bad_line else ""
            warn(f"{each.source}: {each.bad_lines:,} lines are no JSON object{first}; they are kept as they are")
    if flags.json:
        print_json({"files": done})
    else:
        for each in done:
            results().print(_sentence(each), soft_wrap=True, markup=False)
    return 0


def _convert(flags: ConvertCommand, source: Path, target: Path, kind: str) -> Conversion:
    with _bar(source) as on_progress:
        return convert(source, target, kind, compression=flags.compression, on_progress=on_progress)


@contextmanager
def _bar(source: Path) -> Iterator[OnProgress | None]:
    """A progress bar on a terminal. How much text a packed file holds is not known before its end."""
    console = errors()
    if not console.is_terminal:
        yield None
        return
    total = source.stat().st_size if source.suffix == ".jsonl" else None
    columns = (TextColumn(source.name), BarColumn(bar_width=None), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)


def _sentence(done: Conversion) -> str:
    source, target = done.source_bytes, done.target_bytes
    if source >= target:
        ratio = f"{source / max(target, 1):.1f} times smaller"
    else:
        ratio = f"{target / max(source, 1):.1f} times larger"
    return f"{done.target}: {done.lines:,} lines, {_size(source)} -> {_size(target)}, {ratio}"


def _size(count: int) -> str:
    """Bytes as people read them."""
    if count < 10_000:
        return f"{count:,} bytes"
    return f"{count / 1e3:,.0f} kB" if count < 10e6 else f"{count / 1e6:,.1f} MB"
