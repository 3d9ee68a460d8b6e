"""The report as a little HTML, for a notebook: latencies, what held requests back, and the figures beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from tokenyard.explain.report.figures import LatencyFigures
from tokenyard.units import count, duration, milliseconds, percent

if TYPE_CHECKING:
    from tokenyard.explain.report.report import Report

_LATENCIES = (("queue", "queue_ms"), ("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("ITL", "itl_ms"), ("E2E", "e2e_ms"))
_FIGURES = ("mean", "p50", "p90", "p95", "p99", "max")


def report_html(report: Report) -> str:
    """Three tables. Nothing that comes from a trace is read as markup."""
    header = report.header
    gpu = "" if header.gpu_inferred or header.gpu == "unknown" else header.gpu
    said = [header.policy, header.model or "", gpu]
    title = ", ".join([*filter(None, said), f"{report.steps:,} steps", duration(report.duration_s)])
    latencies = [
        (name, *(milliseconds(value) for value in _values(getattr(report, field)))) for name, field in _LATENCIES
    ]
    held = [
        (name, count(each.steps), count(each.requests), duration(each.seconds))
        for name, each in report.recorded_reasons.items()
    ]
    figures = [
        ("requests finished", f"{count(report.requests_finished)} of {count(report.requests)}"),
        ("output tokens per second", count(report.throughput.output_tokens_per_s)),
        ("prefix hits", percent(report.prefix_hit_rate.local)),
        ("preemptions", count(report.preemptions)),
        ("peak KV use", percent(report.peak_kv_use)),
    ]
    tables = [
        _table("Latency", ("", *_FIGURES), latencies),
        _table("What held requests back", ("recorded reason", "steps", "requests, by step", "time lost"), held)
        if held
        else "<p>No request was held back in any step.</p>",
        _table("Figures", (), figures),
    ]
    return f"<div><p><b>{escape(title)}</b></p>{''.join(tables)}</div>"


def _values(figures: LatencyFigures) -> list[float | None]:
    return [getattr(figures, name) for name in _FIGURES]


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    columns = f"<thead><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr></thead>" if head else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption>{columns}<tbody>{body}</tbody></table>"
