"""Figures per class, on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Column

from tokenyard.explain.render.parts import goodput_of, print_section, table_of
from tokenyard.explain.render.units import duration, milliseconds
from tokenyard.explain.report.classes import Classes

_FIGURES = ("requests", "TTFT p50", "p95", "p99", "TPOT p95", "E2E p95")


def print_classes(classes: Classes, console: Console) -> None:
    """A line per class, and what came of its bounds."""
    table = table_of(
        Column("", overflow="fold"),
        *(Column(name, justify="right", no_wrap=True) for name in _FIGURES),
        Column("waited most for", overflow="fold"),
    )
    for each in classes.classes:
        times = (each.ttft_ms.p50, each.ttft_ms.p95, each.ttft_ms.p99, each.tpot_ms.p95, each.e2e_ms.p95)
        table.add_row(
            escape(each.name),
            f"{each.requests:,}",
            *("-" if value is None else milliseconds(value) for value in times),
            "-" if each.waited_for is None else f"{escape(each.waited_for)} ({duration(each.waited_s)} waited in all)",
        )
    print_section(console, f"By {escape(classes.by)}", table)
    for each in classes.classes:
        if each.goodput is not None:
            print_section(console, f"Service levels: {escape(each.name)}", *goodput_of(each.goodput))
