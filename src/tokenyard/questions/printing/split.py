"""Prefill and decode apart, on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tokenyard.explain.render.report import print_report
from tokenyard.explain.render.units import count, gigabytes, milliseconds, percent
from tokenyard.questions.split import SplitReport


def _engines(number: int, side: str) -> str:
    return f"{number} {side} engines" if number > 1 else f"{side} engine"


def print_split(report: SplitReport, console: Console, *, buckets: bool = False) -> None:
    """The decode side's report in full, of the other one and the link what there is to know."""
    size = report.prefill_engines
    decode = _engines(report.decode_engines, "decode")
    prefill = _engines(size, "prefill")
    console.print(f"[bold]The {decode}[/], with the latencies that clients see")
    print_report(report.decode, console, buckets=buckets)
    console.print(f"\n[bold]The {prefill} and the link{'s' * (size > 1)}[/]")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(style="bright_black", no_wrap=True)
    table.add_column()
    side, use = report.prefill, report.use
    queue, first = (
        f"{milliseconds(each.p50)} p50, {milliseconds(each.p99)} p99" for each in (side.queue_ms, side.ttft_ms)
    )
    hits = f"{percent(side.prefix_hit_rate.local)} of prompt tokens"
    for name, text in (
        ("busy", f"prefill {percent(use.prefill)}, decode {percent(use.decode)}, link {percent(use.link)}"),
        ("prefill queue", queue),
        ("prefill, to its end", first),
        ("prefix hits", hits),
        ("KV blocks", f"{percent(side.peak_kv_use)} in use at the peak"),
        ("KV sent", f"{gigabytes(use.kv_bytes)} per GPU, for {count(side.requests_finished)} requests"),
    ):
        table.add_row(name, text)
    console.print(table)
