"""A sweep on a terminal: its first rows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Column
from rich.text import Text

from tokenyard.explain.render.parts import print_section, table_of
from tokenyard.questions.sweep import SweepResult
from tokenyard.questions.sweeping.rows import Row, by_problem, first_in_words, row_in_words, settings_in_words
from tokenyard.redaction import plain
from tokenyard.units import count, count_of, milliseconds, percent

_SHOWN = 20
"""Rows that are printed, and problems; the table has all of them."""


def print_sweep(result: SweepResult, console: Console) -> None:
    """The best variant, the first rows, and where all of them are."""
    console.print(Text(plain(_verdict(result.rows)), "bold"))
    console.print(*_on_drafts(result.rows), sep="\n", end="")
    names = list(dict.fromkeys(name for row in result.rows for name in row.settings))
    figures = ("TTFT p90", "TPOT p90", "tok/s", "goodput", "bounds")
    table = table_of(
        Column("variant", overflow="fold"), *(Column(name, justify="right", no_wrap=True) for name in figures)
    )
    for row in result.rows[:_SHOWN]:
        table.add_row(plain(row_in_words(row)), *_cells(row))
    print_section(console, f"{count(result.variants)} variants of {plain(', '.join(names))}", table)
    _print_classes(result.rows[:_SHOWN], console)
    _print_problems(result.rows, console)
    if not result.table:
        return
    rest = f"The first {_SHOWN} of them; all" if result.variants > _SHOWN else "All"
    console.print(Text(f"\n{rest} rows with all figures are in {plain(result.table)}"), soft_wrap=True)
    if any(row.traces for row in result.rows):
        folder = str(Path(result.table).parent)
        said = f"Their traces are below it: `tokenyard view {shlex.quote(plain(folder))}` sets any two side by side"
        console.print(Text(said), soft_wrap=True)


def _on_drafts(rows: Sequence[Row]) -> Iterator[Text]:
    """What TPOT rests on, in the fastest variant whose drafts are right as often as was assumed."""
    assumed = [row for row in rows if row.drafts is not None and row.drafts.tpot_ms is not None]
    if assumed:
        row = min(assumed, key=lambda each: (each.drafts and each.drafts.tpot_ms) or 0.0)
        more = "" if len(assumed) == 1 else f" So it is of {count_of(len(assumed) - 1, 'other variant')}."
        yield Text(plain(f"{settings_in_words(row.settings)}: {row.drafts}{more}"))


def _print_classes(rows: Sequence[Row], console: Console) -> None:
    """Each class's bounded figures and its share of requests within its bounds, variant by variant."""
    names = list(dict.fromkeys(name for row in rows for name in row.figures if ":" in name))
    if not names:
        return
    table = table_of(
        Column("variant", overflow="fold"),
        Column("class", overflow="fold"),
        Column("measured", justify="right", no_wrap=True),
        header=True,
    )
    for row in rows:
        label = plain(settings_in_words(row.settings))
        for name in names:
            table.add_row(label, plain(_of_class(name)), _class_value(name, row.figures.get(name)))
            label = ""
    print_section(console, "Class by class", table)


def _of_class(name: str) -> str:
    """``interactive TTFT p95``, ``interactive within its bounds``."""
    of, _, figure = name.rpartition(":")
    latency, _, statistic = figure.partition("_ms.")
    return f"{of} {latency.upper()} {statistic}" if statistic else f"{of} within its bounds"


def _class_value(name: str, value: float | None) -> str:
    return milliseconds(value) if "_ms." in name else "-" if value is None else percent(value)


def _verdict(rows: Sequence[Row]) -> str:
    """The variant that does best: most requests within the bounds, else the least TTFT."""
    replayed = [row for row in rows if row.problem is None and row.figures.get("ttft_ms.p90") is not None]
    if not replayed:
        return "No variant could be replayed."
    share, ttft = "goodput.share", "ttft_ms.p90"
    if any(row.figures.get(share) is not None for row in replayed):
        best, worst = (of(replayed, key=lambda row: row.figures.get(share) or 0.0) for of in (max, min))
        said = [percent(row.figures.get(share)) for row in (best, worst)]
        most, least = row_in_words(best), row_in_words(worst)
        return f"{most} keeps most requests within the bounds: {said[0]}; {least} {said[1]}."
    best, worst = (of(replayed, key=lambda row: row.figures[ttft] or 0.0) for of in (min, max))
    said = [row.in_words(ttft) for row in (best, worst)]
    fastest, slowest = map(row_in_words, (best, worst))
    return f"{fastest} has the least TTFT p90: {said[0]}; {slowest} has {said[1]}."


def _print_problems(rows: Sequence[Row], console: Console) -> None:
    """What kept variants from being replayed, each problem once, with the variants that have it."""
    variants = by_problem(rows)
    if not variants:
        return
    failed = sum(map(len, variants.values()))
    console.print(Text(f"\n{count(failed)} could not be replayed:", "red"))
    for problem, those in list(variants.items())[:_SHOWN]:
        console.print(Text(plain(f"  {first_in_words(those)}: {problem}"), "red"))
    if len(variants) > _SHOWN:
        console.print(Text(f"  and {count(len(variants) - _SHOWN)} other problems: the table has them", "red"))


def _cells(row: Row) -> tuple[str, ...]:
    if row.problem is not None:
        return ("-", "-", "-", "-", "not replayed")
    share = row.figures.get("goodput.share")
    return (
        row.in_words("ttft_ms.p90"),
        row.in_words("tpot_ms.p90"),
        count(row.figures.get("throughput.output_tokens_per_s")),
        "-" if share is None else percent(share),
        row.met_in_words,
    )
