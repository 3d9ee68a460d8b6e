"""Figures per class, on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.render.parts import goodput_rows, print_section, table_of, table_that_fits
from tokenyard.explain.report.classes import Classes, ClassFigures
from tokenyard.redaction import plain
from tokenyard.units import milliseconds, percent

_FIGURES = ("requests", "TTFT p50", "p95", "TPOT p95", "E2E p95")
_NAME = 12
"""Columns at least for the name of a class."""
_NARROW = ("requests", "TTFT p95", "TPOT p95", "E2E p95")


def print_classes(classes: Classes, console: Console) -> None:
    """A line per class, and what came of its bounds."""
    print_section(console, f"By {classes.by}", table_that_fits(console, _table, classes.classes))
    for each in classes.classes:
        if each.goodput is not None:
            print_section(console, f"Service levels: {plain(each.name)}", *goodput_rows(each.goodput))


def _table(classes: Iterable[ClassFigures], *, narrow: bool) -> Table:
    table = table_of(
        Column("", overflow="fold", min_width=_NAME if narrow else None),
        *(Column(name, justify="right", no_wrap=True) for name in (_NARROW if narrow else _FIGURES)),
        *([] if narrow else [Column("waited", justify="right", no_wrap=True)]),
        *([] if narrow else [Column("mostly for", overflow="fold")]),
    )
    for each in classes:
        times = (each.ttft_ms.p50, each.ttft_ms.p95, each.tpot_ms.p95, each.e2e_ms.p95)[narrow:]
        row = [plain(each.name), f"{each.requests:,}", *map(milliseconds, times)]
        if not narrow:
            row += [percent(_share_waited(each)), plain(each.waited_for or "-")]
        table.add_row(*map(Text, row))
    return table


def _share_waited(each: ClassFigures) -> float | None:
    """Share of its requests' time, of those that ended."""
    total = (each.e2e_ms.mean or 0.0) / 1e3 * each.finished
    return min(each.waited_s / total, 1.0) if total else None
