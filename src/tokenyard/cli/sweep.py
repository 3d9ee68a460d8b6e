"""``tokenyard sweep``: many variants of a run, each a row of a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.console import errors, print_json, results, warn
from tokenyard.cli.support.flags import SweepCommand
from tokenyard.errors import ConfigError
from tokenyard.questions.kept import read_prices
from tokenyard.questions.printing.sweep import print_sweep
from tokenyard.questions.sweep import SweepQuestion, ask
from tokenyard.questions.sweeping.page import page


def execute(flags: SweepCommand) -> int:
    """Replay what is not finished, write the table, print it; 0 if every variant has a row."""
    result = ask(question_of(flags))
    rows = result.rows
    if flags.html is not None:
        _write(flags.html, page(flags.workload, rows, flags.output.absolute()))
    if flags.traces and any(row.problem is None and not row.traces for row in rows):
        warn("some variants have no trace: replicas leave none, and a full disk leaves none that is whole")
    print_json(result) if flags.json else print_sweep(result, results())
    return 0 if any(row.problem is None for row in rows) else NOTHING_REPLAYED


def question_of(flags: SweepCommand) -> SweepQuestion:
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
