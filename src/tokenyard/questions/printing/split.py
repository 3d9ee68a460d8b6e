"""Prefill and decode apart, on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Column

from tokenyard.explain.render.parts import print_section, table_of
from tokenyard.explain.render.report import print_findings, print_run
from tokenyard.questions.split import SplitReport
from tokenyard.units import count, gigabytes, milliseconds, percent


def _engines(number: int, side: str) -> str:
    return f"{number} {side} engines" if number > 1 else f"{side} engine"


def print_split(report: SplitReport, console: Console, *, buckets: bool = False, header: bool = False) -> None:
    """The decode side's report in full, of the other one and the link what there is to know.

    The decode side's deployment comes last, or first with ``header``.
    """
    size = report.prefill_engines
    decode = _engines(report.decode_engines, "decode")
    prefill = _engines(size, "prefill")
    if header:
        print_run(report.decode.header, console)
        console.print()
    print_findings(report.decode, console, buckets=buckets)
    table = table_of(Column(style="bright_black", no_wrap=True), Column(), header=False)
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
    print_section(console, f"The {prefill} and the link{'s' * (size > 1)}", table)
    console.print(f"\n[bold]The {decode}[/], whose report this is, with the latencies that clients see")
    if not header:
        print_run(report.decode.header, console)
