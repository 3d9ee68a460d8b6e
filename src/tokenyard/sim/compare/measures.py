"""What one replay is measured by."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import msgspec

from tokenyard.explain.report.report import Report
from tokenyard.request import Request
from tokenyard.sched.observer import StepObserver

__all__ = ["METRICS", "JobTimes", "Metric", "MetricValues", "measures_of"]


class Metric(msgspec.Struct, frozen=True):
    """One column."""

    name: str
    heading: str
    meaning: str
    with_interval: bool = False
    """The table has room for it; JSON always has them."""


METRICS = (
    Metric(
        "completion_s",
        "job s",
        "mean job completion time in seconds: a job's first arrival to its last turn's end",
        True,
    ),
    Metric("completion_p90_s", "p90", "90th percentile of it"),
    Metric("ttft_s", "TTFT s", "mean seconds from a turn's arrival to its first token", True),
    Metric("goodput", "good %", "share of requests that ended whole and within every bound of --slo", True),
    Metric("output_tokens_per_s", "tok/s", "output tokens per second of the run"),
    Metric("hit_rate", "hit %", "share of prompt tokens found in the prefix cache when a turn is first admitted"),
    Metric("prefill_tokens", "prefilled", "prompt tokens not found there, so computed, many of them again"),
    Metric("preemptions", "preempt", "running requests that lost their blocks"),
    Metric("recomputed_tokens", "redone", "tokens computed again after a preemption"),
    Metric("acceptance_rate", "acc %", "share of draft tokens that the model accepted (speculative decoding only)"),
)

MetricValues = dict[str, float]
"""Metric name -> value of one replay."""


class JobTimes(StepObserver):
    """Notes when jobs begin and end, on one engine or several. A request without a job is a job of its own."""

    reads_tokens = False

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self.prompt_tokens = 0
        self.hit_tokens = 0

    @property
    def seconds(self) -> list[float]:
        """Completion time of every job of which a turn has ended."""
        return [end - self._begun[job] for job, end in self._ended.items()]

    def request_arrived(self, ts: float, request: Request) -> None:
        job = request.job_id or request.request_id
        self._begun[job] = min(request.arrival_time, self._begun.get(job, inf))

    def request_finished(self, ts: float, request: Request) -> None:
        self._ended[request.job_id or request.request_id] = ts

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        self.prompt_tokens += request.num_prompt_tokens
        self.hit_tokens += local + external


def measures_of(report: Report, jobs: JobTimes) -> MetricValues:
    """The run's value of every metric it has; a run in which nothing ended has zeros."""
    times = sorted(jobs.seconds)
    hits, prompts = jobs.hit_tokens, jobs.prompt_tokens
    drafts = report.speculation
    goodput = report.goodput
    good = {} if goodput is None or goodput.share is None else {"goodput": 100.0 * goodput.share}
    accepted = {} if drafts is None else {"acceptance_rate": 100.0 * (drafts.acceptance_rate or 0.0)}
    return {
        "completion_s": sum(times) / len(times) if times else 0.0,
        "completion_p90_s": _percentile(times, 0.9),
        "ttft_s": (report.ttft_ms.mean or 0.0) / 1e3,
        "output_tokens_per_s": report.throughput.output_tokens_per_s or 0.0,
        "hit_rate": 100.0 * hits / prompts if prompts else 0.0,
        "prefill_tokens": float(prompts - hits),
        "preemptions": float(report.preemptions or 0),
        "recomputed_tokens": float(report.recomputed_tokens or 0),
        **good,
        **accepted,
    }


def _percentile(ascending: Sequence[float], share: float) -> float:
    """Interpolated between neighbours."""
    if not ascending:
        return 0.0
    at = share * (len(ascending) - 1)
    low = int(at)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (at - low) * (ascending[high] - ascending[low])
