"""The report: one object that says how a run went. Its JSON is what ``--json`` prints; ``docs/report.md`` explains it.

Stable: fields are added, never renamed, and a change of meaning raises ``report_version``.
"""

from __future__ import annotations

import msgspec

from tokenyard.explain.advice.rule import Advice
from tokenyard.explain.held_back.agreement import Disagreements
from tokenyard.explain.report.arrivals import Arrivals
from tokenyard.explain.report.header import Header
from tokenyard.explain.report.percentiles import LatencyFigures, StepFigures
from tokenyard.explain.report.recorded_reasons import RecordedReason
from tokenyard.explain.report.speculation import Speculation
from tokenyard.trace.read.line_decoder import BadLine

__all__ = ["REPORT_VERSION", "HitRate", "ReadingGaps", "Report", "Throughput"]

REPORT_VERSION = 1


class HitRate(msgspec.Struct, frozen=True):
    """Share of looked-up prompt tokens found in a cache; None if nothing was looked up."""

    local: float | None
    external: float | None


class Throughput(msgspec.Struct, frozen=True):
    """Per second of the run; None if it has no duration or the counts are not known."""

    requests_per_s: float | None
    output_tokens_per_s: float | None


class ReadingGaps(msgspec.Struct, frozen=True, kw_only=True):
    """What the report could not use or does not contain."""

    bad_lines: int = 0
    first_bad_lines: list[BadLine] = []
    unknown_events: dict[str, int] = {}
    dropped_fields: dict[str, int] = {}
    duplicate_records: int = 0
    late_records: int = 0
    unmatched_request_records: int = 0
    omitted_ids: int = 0
    """Ids that the trace's bound left out of its lists, added over the steps; the counts are exact."""
    sampled_every: int = 1
    """The trace holds every n-th step."""
    step_limit_reached: bool = False
    """The trace ends because its step limit was reached."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How a run went."""

    report_version: int = REPORT_VERSION
    header: Header
    steps: int
    requests: int | None
    requests_finished: int | None
    finish_reasons: dict[str, int]
    buckets: dict[str, int]
    reasons: dict[str, int]
    recorded_reasons: dict[str, RecordedReason]
    unseen_s: float | None
    """Request-seconds between arrivals and the first step that could see them; with those of ``recorded_reasons`` it
    makes up all waiting time."""
    disagreements: Disagreements
    arrivals: Arrivals | None
    times: str | None
    """Where latencies come from: ``recorded``, ``reconstructed`` (exact to a step), or None: there are none."""
    queue_ms: LatencyFigures
    ttft_ms: LatencyFigures
    tpot_ms: LatencyFigures
    e2e_ms: LatencyFigures
    prefix_hit_rate: HitRate
    prefix_lookups: int
    preemptions: int | None
    recomputed_tokens: int | None
    token_budget_use: StepFigures
    running: StepFigures
    waiting: StepFigures
    peak_kv_use: float | None
    peak_dram_use: float | None = None
    output_tokens: int | None
    duration_s: float | None
    throughput: Throughput
    speculation: Speculation | None = None
    """Of a replay with speculative decoding; a trace does not record it."""
    reading: ReadingGaps
    advice: list[Advice] = []
    """What to change, most time lost first; nothing where nothing is wrong."""
