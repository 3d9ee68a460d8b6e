"""``tokenyard sweep``: many variants of a run, each a row of a table."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.console import errors, print_json, results, warn
from tokenyard.cli.support.flags import Sweep
from tokenyard.errors import ConfigError
from tokenyard.explain.render.parts import print_section, table_of
from tokenyard.explain.render.units import count, milliseconds, percent
from tokenyard.questions.kept import read_prices
from tokenyard.questions.sweep import SweepQuestion, SweepResult, ask
from tokenyard.questions.sweeping.page import page
from tokenyard.questions.sweeping.rows import Row, words_of
from tokenyard.redaction import plain

__all__ = ["execute", "question_of"]

_SHOWN = 20
"""Rows that are printed, and problems; the table has all of them."""


def execute(flags: Sweep) -> int:
    """Replay what is not finished, write the table, print it; 0 if every variant has a row."""
    result = ask(question_of(flags))
    rows = result.rows
    if flags.html is not None:
        _write(flags.html, page(flags.workload, rows, flags.output.absolute()))
    if flags.traces and any(row.problem is None and not row.traces for row in rows):
        warn("some variants have no trace: replicas leave none, and a full disk leaves none that is whole")
    print_json(result) if flags.json else _print(result, results())
    return 0 if any(row.problem is None for row in rows) else NOTHING_REPLAYED


def question_of(flags: Sweep) -> SweepQuestion:
    """What the flags ask. Raises ConfigError."""
    return SweepQuestion(
        scenario=scenario_of(flags),
        output=flags.output,
        space=[text for texts in flags.grid for text in texts],
        variants=flags.variants,
        prices=read_prices(flags.price),
        jobs=flags.processes,
        ray=flags.ray,
        traces=flags.traces,
        space_name="--set",
        bar=_bar,
        say=warn,
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError("html", str(path), f"cannot be written: {error.strerror or error}") from None


NOTHING_REPLAYED = 2
"""The exit code where every variant was refused."""


@contextmanager
def _bar(total: int, done: int) -> Iterator[Any]:
    """What to call with every finished variant; a bar with the time left, where standard error is a terminal."""
    console = errors()
    if not console.is_terminal:
        yield lambda: None
        return
    columns = (
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("variants"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        task = progress.add_task("", total=total, completed=done)
        yield lambda: progress.advance(task)


def _print(result: SweepResult, console: Console) -> None:
    """The first rows, and where all of them are."""
    names = list(dict.fromkeys(name for row in result.rows for name in row.settings))
    figures = ("TTFT p90", "TPOT p90", "tok/s", "goodput", "bounds")
    table = table_of(Column("variant"), *(Column(name, justify="right", no_wrap=True) for name in figures))
    for row in result.rows[:_SHOWN]:
        table.add_row(plain(words_of(row.settings)), *_cells(row))
    print_section(console, f"{count(result.variants)} variants of {plain(', '.join(names))}", table)
    _print_problems(result.rows, console)
    rest = f"The first {_SHOWN} of them; all" if result.variants > _SHOWN else "All"
    console.print(Text(f"\n{rest} rows with all figures are in {plain(result.table)}"), soft_wrap=True)
    if any(row.traces for row in result.rows):
        folder = str(Path(result.table).parent)
        said = f"Their traces are below it: `tokenyard view {shlex.quote(plain(folder))}` sets any two side by side"
        console.print(Text(said), soft_wrap=True)


def _print_problems(rows: Sequence[Row], console: Console) -> None:
    """What kept variants from being replayed, each problem once, with the variants that have it."""
    variants: dict[str, list[Row]] = {}
    for row in rows:
        if row.problem is not None:
            variants.setdefault(row.problem, []).append(row)
    if not variants:
        return
    failed = sum(map(len, variants.values()))
    console.print(Text(f"\n{count(failed)} could not be replayed:", "red"))
    for problem, those in list(variants.items())[:_SHOWN]:
        more = f" and {count(len(those) - 1)} more" if len(those) > 1 else ""
        console.print(Text(plain(f"  {words_of(those[0].settings)}{more}: {problem}"), "red"))
    if len(variants) > _SHOWN:
        console.print(Text(f"  and {count(len(variants) - _SHOWN)} other problems: the table has them", "red"))


def _cells(row: Row) -> tuple[str, ...]:
    if row.problem is not None:
        return ("-", "-", "-", "-", "not replayed")
    share = row.figures.get("goodput.share")
    met = "" if row.met is None else "hold" if row.met else "missed"
    return (
        milliseconds(row.figures.get("ttft_ms.p90")),
        milliseconds(row.figures.get("tpot_ms.p90")),
        count(row.figures.get("throughput.output_tokens_per_s")),
        "-" if share is None else percent(share),
        met,
    )
