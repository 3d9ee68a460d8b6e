"""Service levels: which bounds hold, and the goodput."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.render.tables import table_of
from tokenyard.explain.render.units import count, milliseconds, percent
from tokenyard.explain.report.slo import Goodput, Objective

__all__ = ["goodput_of"]


def goodput_of(goodput: Goodput) -> Iterator[Table | Text]:
    """A row for each bound, and a sentence about requests within all of them."""
    names = ("bound", "measured", "", "requests within")
    table = table_of(Column("", no_wrap=True), *(Column(name, justify="right", no_wrap=True) for name in names))
    for each in goodput.objectives:
        within = "-" if each.share is None else percent(each.share)
        table.add_row(each.name, milliseconds(each.bound_ms), milliseconds(each.value_ms), _verdict(each), within)
    yield table
    if goodput.requests is not None:
        rate = "" if goodput.requests_per_s is None else f"{goodput.requests_per_s:,.2f} requests/s, "
        yield Text(
            f"goodput: {rate}{count(goodput.requests)} requests, {percent(goodput.share)} of those that ended: "
            "whole and within every bound"
        )


def _verdict(objective: Objective) -> Text:
    if objective.met is None:
        return Text("")
    return Text("holds", "green") if objective.met else Text("missed", "red")
