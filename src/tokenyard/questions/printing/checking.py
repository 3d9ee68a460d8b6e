"""A check of a deployment, in a terminal and as Markdown for a comment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Column
from rich.text import Text

from tokenyard.explain.render.parts import print_section, table_of
from tokenyard.questions.checking import Check
from tokenyard.questions.upgrade import Moved
from tokenyard.redaction import plain
from tokenyard.units import count, figure_label, milliseconds, percent, signed


def print_check(told: Check, console: Console) -> None:
    """What holds, what changes, and by how much."""
    console.print(Text(plain(f"{told.summary()}."), "bold"))
    if told.was is not None:
        console.print(Text(plain(f"As it was: {told.was}"), "yellow"))
    table = table_of(*(Column(each, justify="right" if each else "left") for each in ("", "before", "after", "change")))
    for row in _rows(told):
        table.add_row(*map(plain, row))
    if table.row_count:
        print_section(console, f"{plain(told.against)}: {count(told.requests)} requests", table)
    if told.bounds:
        print_section(console, "Bounds", *(Text(each) for each in _bounds(told)))


def markdown_of(checks: Sequence[Check]) -> str:
    """Return all of them as one comment."""
    parts = ["### Tokenyard\n"]
    for told in checks:
        mark = "holds" if told.holds else "**fails**"
        parts.append(f"`{plain(told.file)}` {mark}: {plain(told.summary().partition(': ')[2])}.\n")
        parts += [] if told.was is None else [f"As it was: {plain(told.was)}\n"]
        rows = [f"| {' | '.join(_cell(each) for each in row)} |" for row in _rows(told)]
        if rows:
            parts.append("\n".join(["| | before | after | change |", "| --- | --: | --: | --: |", *rows]) + "\n")
        parts += [f"* {each}" for each in _bounds(told)]
        parts.append(f"\nReplayed: {plain(told.against)}, {count(told.requests)} requests.\n")
    return "\n".join(parts)


def _cell(text: str) -> str:
    return plain(text).replace("|", "\\|")


def _rows(told: Check) -> Iterator[tuple[str, str, str, str]]:
    flags = {each.name.replace("-", "_") for each in told.flags}
    for each in (*told.flags, *(limit for limit in told.limits if limit.name not in flags)):
        if each.older != each.newer:
            yield each.name, _value(each.older), _value(each.newer), ""
    for each in told.figures:
        if each.older is not None or each.newer is not None:
            number = milliseconds if "_ms." in each.name else _value
            yield (
                _LABELS.get(each.name) or figure_label(each.name),
                number(each.older),
                number(each.newer),
                _change(each),
            )
    for moved, label in ((told.goodput, "goodput, requests/s"), (told.cost, "price of 1M output tokens")):
        if moved is not None:
            yield label, _value(moved.older), _value(moved.newer), _change(moved)


_LABELS = {"preemptions": "preemptions", "throughput.output_tokens_per_s": "output tokens/s"}


def _change(moved: Moved) -> str:
    return signed(moved.newer / moved.older - 1) if moved.older and moved.newer is not None else ""


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def _bounds(told: Check) -> Iterator[str]:
    for each in told.bounds:
        if not each.is_of_all:
            yield f"{each.name}: {percent(each.share)} of the requests within {milliseconds(each.bound_ms)}"
            continue
        said = {True: "holds", False: "is missed", None: "is open"}[each.met]
        yield f"{each.name} {said}: {milliseconds(each.value_ms)}, bound {milliseconds(each.bound_ms)}"
