"""Two traces laid beside each other: at the same steps, at the same times since their starts, or job by job."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

import msgspec

from tokenyard.explain.held_back.classifier import classify
from tokenyard.explain.report.header import Header
from tokenyard.explain.why.timeline_reader import timeline_readers
from tokenyard.trace.format.held_back import main_reason
from tokenyard.trace.read.facts_of_step import facts_of
from tokenyard.trace.read.ranks import RankTrace, find_ranks
from tokenyard.trace.read.reader import TraceReader
from tokenyard.trace.read.step_joiner import Step

__all__ = ["Alignment", "JobPair", "JobSpan", "Moment", "MomentPair", "align_jobs", "align_moments"]

Alignment = Literal["step", "time", "job"]
_ROWS = 12
"""Moments shown of each trace."""
_FEWEST_ROWS = 3
"""Of each engine."""
_JOBS = 100
"""Jobs listed: those that differ most."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A trace at one step."""

    step: int
    seconds: float | None
    """Since its first step."""
    num_running: int | None
    num_waiting: int | None
    free_blocks: int | None
    tokens: int | None
    reason: str | None
    """Recorded main reason, else the classifier's bucket."""


class MomentPair(msgspec.Struct, frozen=True, kw_only=True):
    """Both traces at the same place; None where a trace has ended."""

    at: float
    """Step number, or seconds since the start."""
    a: Moment | None
    b: Moment | None
    rank: int | None = None
    """The engine, where there are several."""


class JobSpan(msgspec.Struct, kw_only=True):
    """A job in one of the traces, in microseconds since the trace's first arrival."""

    begin_us: int
    end_us: int
    waited_us: int = 0
    requests: int = 0


class JobPair(msgspec.Struct, frozen=True, kw_only=True):
    """A job in both traces; None where it does not occur."""

    job_id: str
    a: JobSpan | None
    b: JobSpan | None

    @property
    def change_us(self) -> float:
        """How much longer it took in B; infinite if only one has it."""
        if self.a is None or self.b is None:
            return float("inf")
        return (self.b.end_us - self.b.begin_us) - (self.a.end_us - self.a.begin_us)


def align_moments(
    a: Path | str, b: Path | str, headers: tuple[Header, Header], align: Literal["step", "time"]
) -> list[MomentPair]:
    """Both traces at a dozen places, evenly spread over the longer one; of several engines, each at a few."""
    in_a, in_b = ({each.rank: each for each in find_ranks(path)} for path in (a, b))
    ranks = list(in_a | in_b)
    places = _places(headers, align, max(_ROWS // len(ranks), _FEWEST_ROWS))
    return [
        MomentPair(at=place, a=left, b=right, rank=rank)
        for rank in ranks
        for place, left, right in zip(
            places, _moments(in_a.get(rank), places, align), _moments(in_b.get(rank), places, align), strict=True
        )
        if left is not None or right is not None
    ]


def _places(headers: tuple[Header, Header], align: Literal["step", "time"], rows: int) -> list[float]:
    if align == "time":
        longest = max(header.seconds or 0.0 for header in headers)
        return [longest * i / (rows - 1) for i in range(rows)]
    first = min(header.first_step or 0 for header in headers)
    last = max(header.last_step or 0 for header in headers)
    return sorted({float(first + (last - first) * i // (rows - 1)) for i in range(rows)})


def _moments(trace: RankTrace | None, places: list[float], align: Literal["step", "time"]) -> list[Moment | None]:
    """For each place the first step there or after it; None for places after the end."""
    found: list[Moment | None] = []
    if trace is None or trace.is_idle:
        return [None] * len(places)
    start = trace.run_start
    for step in TraceReader(trace.files, requests=False).steps():
        start = step.ts if start is None else start
        seconds = step.ts - start if step.ts is not None and start is not None else None
        here = step.number if align == "step" else seconds
        while here is not None and len(found) < len(places) and here >= places[len(found)]:
            found.append(_moment(step, seconds))
        if len(found) == len(places):
            break
    return found + [None] * (len(places) - len(found))


def _moment(step: Step, seconds: float | None) -> Moment:
    facts = facts_of(step)
    reason = main_reason(step.outcome) if step.outcome is not None else None
    return Moment(
        step=step.number,
        seconds=seconds,
        num_running=facts.num_running,
        num_waiting=facts.num_waiting,
        free_blocks=facts.free_blocks,
        tokens=facts.token_sum,
        reason=reason or classify(facts).bucket.value,
    )


def align_jobs(a: Path | str, b: Path | str) -> list[JobPair]:
    """Jobs (requests of no job count as one each) of both traces, those that differ most first."""
    in_a, in_b = dict(_jobs(a)), dict(_jobs(b))
    pairs = [JobPair(job_id=job, a=in_a.get(job), b=in_b.get(job)) for job in in_a | in_b]
    return sorted(pairs, key=lambda pair: (-abs(pair.change_us), pair.job_id))[:_JOBS]


def _jobs(path: Path | str) -> Iterator[tuple[str, JobSpan]]:
    spans: dict[str, JobSpan] = {}
    for timeline in chain.from_iterable(reader.timelines() for _, reader in timeline_readers(path)):
        begin = timeline.arrived_us or 0
        span = spans.setdefault(
            timeline.job_id or timeline.request_id, JobSpan(begin_us=begin, end_us=timeline.until_us)
        )
        span.begin_us, span.end_us = min(span.begin_us, begin), max(span.end_us, timeline.until_us)
        span.waited_us += timeline.waited_us
        span.requests += 1
    start = min((span.begin_us for span in spans.values()), default=0)
    for job, span in spans.items():
        span.begin_us -= start
        span.end_us -= start
        yield job, span
