"""What was measured beside what was replayed, in a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from tokenyard.explain.figures import LatencyFigures
from tokenyard.explain.measured import NAMES, MeasuredBeside, MeasuredPair
from tokenyard.explain.render.parts import print_section, table_of
from tokenyard.redaction import plain
from tokenyard.units import milliseconds, percent

_STATISTICS = ("mean", "p50", "p90", "p99")


def print_measured(measured: MeasuredBeside, console: Console) -> None:
    """The section: whether to trust the rest, then figure by figure measured, replayed and their ratio."""
    is_replayed = measured.verdict is not None
    if not measured.measured_requests:
        print_section(console, "Measured", *map(Text, _lines(measured)))
        return
    title = f"{'Measured beside replayed' if is_replayed else 'Measured'}, {_of_whom(measured)}"
    verdict = None if measured.verdict is None else Text(plain(measured.verdict.sentence))
    print_section(console, title, verdict, _table(measured), *map(Text, _lines(measured)))


def _of_whom(measured: MeasuredBeside) -> str:
    if measured.requests == measured.measured_requests:
        return f"of {measured.requests:,} requests"
    return f"of the {measured.requests:,} requests on both sides ({measured.measured_requests:,} were measured)"


def _table(measured: MeasuredBeside) -> Table | None:
    columns = [Column(name, justify="right", no_wrap=True, min_width=9) for name in _STATISTICS]
    table = table_of(Column("", no_wrap=True), Column("", no_wrap=True), *columns)
    for name, latency in measured.latencies():
        own = NAMES[name] if latency.requests == measured.requests else f"{NAMES[name]} ({latency.requests:,})"
        table.add_row(own, "measured", *_cells(latency.measured))
        if latency.replayed is not None and latency.ratio is not None:
            table.add_row("", "replayed", *_cells(latency.replayed))
            ratios = (getattr(latency.ratio, each) for each in _STATISTICS)
            table.add_row("", "ratio", *("-" if each is None else f"{each:,.3g}" for each in ratios))
    return table if table.row_count else None


def _cells(figures: LatencyFigures) -> Iterator[str]:
    return (milliseconds(getattr(figures, each)) for each in _STATISTICS)


def _lines(measured: MeasuredBeside) -> Iterator[str]:
    """What is no latency."""
    if measured.served_per_s is not None:
        pair = measured.served_per_s
        yield _both("served", pair, *(f"{each:,.2f} requests/s" for each in _values(pair)))
    if measured.cached_share is not None:
        pair = measured.cached_share
        yield _both("prefix hits", pair, *map(percent, _values(pair)))
    if measured.not_served:
        each = ", ".join(f"{plain(status)}: {number:,}" for status, number in measured.not_served.items())
        yield f"not served   {sum(measured.not_served.values()):,} requests were answered with an error ({each})"
    if measured.calibration is not None:
        yield f"{plain(measured.calibration.sentence)}. --step-time-factors {measured.calibration.setting} repeats it."


def _values(pair: MeasuredPair) -> tuple[float, ...]:
    return (pair.measured,) if pair.replayed is None else (pair.measured, pair.replayed)


def _both(name: str, pair: MeasuredPair, measured: str, replayed: str | None = None) -> str:
    if replayed is None:
        return f"{name:12} {measured}"
    return f"{name:12} {measured} measured, {replayed} replayed" + (
        "" if pair.ratio is None else f", ratio {pair.ratio:.3g}"
    )
