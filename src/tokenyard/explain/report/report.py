"""The report: one object that says how a run went. Its JSON is what ``--json`` prints; ``docs/report.md`` explains it.

Stable: fields are added, never renamed, and a change of meaning raises ``report_version``.
"""

from __future__ import annotations

import msgspec

from tokenyard.explain.advice.rule import Advice
from tokenyard.explain.advice.trial import Trial
from tokenyard.explain.held_back.agreement import Disagreements
from tokenyard.explain.report.arrivals import Arrivals
from tokenyard.explain.report.clients import ClientFigures
from tokenyard.explain.report.header import Header
from tokenyard.explain.report.html import report_html
from tokenyard.explain.report.percentiles import LatencyFigures, StepFigures
from tokenyard.explain.report.ranks import RankShare
from tokenyard.explain.report.recorded_reasons import RecordedReason
from tokenyard.explain.report.replicas import ReplicaFigures
from tokenyard.explain.report.slo import Goodput
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
    missing_ranks: list[int] = []
    """Engines of the run, by rank, whose traces are not there."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How a run went."""

    report_version: int = REPORT_VERSION
    """Raised when a field changes its meaning."""
    header: Header
    """What ran, where and how long."""
    steps: int
    """Steps of the trace, or of the run."""
    requests: int | None
    """Requests that arrived; None if the trace does not tell."""
    requests_finished: int | None
    """Requests that ended; None if the trace does not tell."""
    finish_reasons: dict[str, int]
    """Finish reason -> requests that ended by it."""
    buckets: dict[str, int]
    """Bucket of the classifier -> steps in it."""
    reasons: dict[str, int]
    """Reason of the classifier -> steps in which it held somebody back."""
    recorded_reasons: dict[str, RecordedReason]
    """Recorded reason -> what it cost."""
    unseen_s: float | None
    """Request-seconds between arrivals and the first step that could see them; with those of ``recorded_reasons`` it
    makes up all waiting time."""
    disagreements: Disagreements
    """Steps in which classifier and recorded reason differ."""
    arrivals: Arrivals | None
    """Arrivals against the first steps; None if the trace does not record arrivals, and of several engines."""
    times: str | None
    """Where latencies come from: ``recorded``, ``reconstructed`` (exact to a step), or None: there are none."""
    queue_ms: LatencyFigures
    """From arrival to first schedule, per request."""
    ttft_ms: LatencyFigures
    """From arrival to the first token, per request."""
    tpot_ms: LatencyFigures
    """Time per token after the first, per request."""
    e2e_ms: LatencyFigures
    """From arrival to the end, per request."""
    itl_ms: LatencyFigures = LatencyFigures()
    """Between two tokens of an answer (inter-token latency), of ``itl_requests``."""
    itl_requests: int = 0
    """Of ``tpot_requests``, those that got a token in every step from the first on; of others nobody recorded when each
    token came."""
    tpot_requests: int = 0
    """Requests that ended whole, with two tokens or more."""
    prefix_hit_rate: HitRate
    """Prompt tokens found in the prefix cache, and by a connector."""
    prefix_lookups: int
    """Requests whose prefix was looked up, each counted at its first admission."""
    preemptions: int | None
    """Times a running request lost its blocks; None if the trace does not tell."""
    recomputed_tokens: int | None
    """Tokens computed again after preemptions; None if the trace does not tell."""
    token_budget_use: StepFigures
    """Share of the token budget that a step used, from 0 to 1."""
    running: StepFigures
    """Running requests per step."""
    waiting: StepFigures
    """Waiting requests per step."""
    peak_kv_use: float | None
    """Largest share of KV blocks in use, from 0 to 1."""
    peak_dram_use: float | None = None
    """Largest share of the CPU tier's blocks in use, from 0 to 1; None without such a tier."""
    output_tokens: int | None
    """Tokens sampled in the run."""
    duration_s: float | None
    """Seconds from the first step to the last moment of the trace; None without times."""
    throughput: Throughput
    """Requests and output tokens per second."""
    goodput: Goodput | None = None
    """Requests within the bounds of ``--slo``, and whether those hold; None without any."""
    clients: ClientFigures | None = None
    """Of a replay whose clients hang up and ask again: requests of the report are their attempts."""
    replicas: ReplicaFigures | None = None
    """Of a replay of replicas: how many there were when."""
    speculation: Speculation | None = None
    """Of a replay with speculative decoding; a trace does not record it."""
    reading: ReadingGaps
    """What could not be read, or was not recorded."""
    advice: list[Advice] = []
    """What to change, most time lost first; nothing where nothing is wrong."""
    ranks: list[RankShare] = []
    """The part of each engine, where there are several; the rest of the report is of all of them."""
    tried: list[Trial] = []
    """Changes that were replayed and did not help."""
    tried_on: str | None = None
    """Which requests changes were replayed on, and compared on, in words; None: all, or nothing was replayed."""

    def _repr_html_(self) -> str:
        """For a notebook."""
        return report_html(self)
