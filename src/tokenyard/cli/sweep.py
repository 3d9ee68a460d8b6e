"""``tokenyard sweep``: many variants of a run, each a row of a table."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from tokenyard.cli.support.console import errors, print_json, results, warn
from tokenyard.cli.support.flags import Sweep
from tokenyard.cli.support.planning.asked import (
    Subject,
    identity_of,
    measuring_for,
    say_idle_policies,
    subject_of,
)
from tokenyard.config import require_int
from tokenyard.errors import ConfigError
from tokenyard.explain.render.tables import print_section, table_of
from tokenyard.explain.render.units import count, milliseconds, percent
from tokenyard.printable import plain
from tokenyard.sim.sweep.journal import Journal, require_parquet
from tokenyard.sim.sweep.page import page
from tokenyard.sim.sweep.row import Row, Setting, words_of
from tokenyard.sim.sweep.running import Job, measured, measured_on_ray
from tokenyard.sim.sweep.variants import read_grid, read_variants

__all__ = ["SweepResult", "execute"]

_MOST_PROCESSES = 1024
_SHOWN = 20
"""Rows that are printed, and problems; the table has all of them."""


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--json`` prints."""

    workload: str
    table: str
    """Parquet, a row per variant."""
    variants: int
    measured_before: int
    """Of them, those that an earlier command had finished."""
    rows: list[Row]


def execute(flags: Sweep) -> int:
    """Replay what is not finished, write the table, print it; 0 if every variant has a row."""
    require_int("processes", flags.processes, 1, _MOST_PROCESSES)
    require_parquet()
    subject = subject_of(flags)
    variants = _variants(flags, subject)
    job = measuring_for(flags, subject)
    subject.read()
    say_idle_policies(subject, [each["scheduling_policy"] for each in variants if "scheduling_policy" in each])
    with Journal(flags.output, identity_of(flags)) as journal:
        left = [settings for settings in variants if settings not in journal]
        before = len(variants) - len(left)
        if before:
            warn(f"{before:,} of {len(variants):,} variants were finished before: {flags.output} has them")
        try:
            with _bar(len(variants), before) as advance:
                for row in _measured(flags, job, left) if left else ():
                    journal.add(row)
                    advance()
        except KeyboardInterrupt:
            warn(f"{len(journal.rows):,} variants are finished: the same command goes on with the others")
            raise
        rows = journal.write_table(variants)
    result = SweepResult(
        workload=flags.workload,
        table=str(journal.table),
        variants=len(variants),
        measured_before=before,
        rows=rows,
    )
    if flags.html is not None:
        _write(flags.html, page(flags.workload, rows, flags.output.absolute()))
    if flags.traces and any(row.problem is None and not row.traces for row in rows):
        warn("some variants have no trace: replicas leave none, and a full disk leaves none that is whole")
    print_json(result) if flags.json else _print(result, results())
    return 0 if any(row.problem is None for row in rows) else NOTHING_REPLAYED


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError("html", str(path), f"cannot be written: {error.strerror or error}") from None


NOTHING_REPLAYED = 2
"""The exit code where every variant was refused."""


def _variants(flags: Sweep, subject: Subject) -> list[dict[str, Setting]]:
    texts = [text for texts in flags.grid for text in texts]
    if flags.variants is None:
        if not texts:
            raise ConfigError("--set", "", "say what to vary: --set max_num_seqs=64,128,256, or --variants FILE")
        return read_grid(texts, subject.convert).all()
    if texts:
        raise ConfigError("variants", str(flags.variants), "--set names variants too: give one of the two")
    return read_variants(flags.variants, subject.convert)


def _measured(flags: Sweep, job: Job, left: Sequence[dict[str, Setting]]) -> Iterator[Row]:
    if flags.ray is not None:
        return measured_on_ray(job, left, flags.ray)
    return measured(job, left, flags.processes)


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
