"""What metrics say of an hour, on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Column
from rich.text import Text

from tokenyard.explain.render.parts import print_section, table_of
from tokenyard.questions.metrics import ServedHour
from tokenyard.redaction import plain
from tokenyard.units import count, milliseconds, percent


def print_metrics(told: ServedHour, console: Console) -> None:
    """What it was short of, then what was served."""
    for each in told.findings:
        console.print(Text(plain(each.text[0].upper() + each.text[1:] + "."), "bold"))
    table = table_of(Column(""), Column("", justify="right"))
    for name, value in (
        ("requests", f"{count(told.requests)} in {told.seconds:,.0f} s, {told.requests_per_s:,.2f} a second"),
        ("prompt tokens, mean", _number(told.mean_prompt_tokens)),
        ("output tokens, mean", _number(told.mean_output_tokens)),
        ("prefix hits", percent(told.hit_rate)),
        ("KV in use", f"{percent(told.kv_use_mean)} on average, {percent(told.kv_use_max)} at most"),
        ("running, at most", f"{told.running_max:,.0f}"),
        ("waiting, at most", f"{told.waiting_max:,.0f}"),
        ("preemptions", count(told.preemptions)),
        ("TTFT, mean", f"{_seconds(told.ttft_mean_s)}, {_seconds(told.queue_mean_s)} of it queueing"),
        ("TPOT, mean", _seconds(told.tpot_mean_s)),
        ("E2E, mean", _seconds(told.e2e_mean_s)),
    ):
        table.add_row(name, value)
    if told.acceptance_rates:
        table.add_row(
            "drafts accepted",
            f"--acceptance-rates {','.join(f'{rate:.3g}' for rate in told.acceptance_rates)}, of"
            f" {told.num_drafts:,} drafts",
        )
    engines = f", {told.engines} engines" if told.engines > 1 else ""
    print_section(console, f"{plain(told.source)}: {told.scrapes:,} scrapes{engines}", table)
    print_section(console, "What metrics cannot tell", *(Text(each) for each in told.unknown))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _seconds(value: float | None) -> str:
    return milliseconds(None if value is None else value * 1e3)
