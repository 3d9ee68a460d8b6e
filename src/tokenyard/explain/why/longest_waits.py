"""Which requests waited longest, and what all of them waited for: the waits of a whole trace, added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from heapq import heappush, heappushpop
from pathlib import Path

import msgspec

from tokenyard.arguments import given_path, given_text, suggests_keywords
from tokenyard.errors import TraceError, near_names, shown
from tokenyard.explain.printable import Printable
from tokenyard.explain.table import RowTable, table_from
from tokenyard.explain.why.timeline import timeline_readers
from tokenyard.explain.why.why import WHY_VERSION, ReasonShare
from tokenyard.trace.facts import RequestTimeline, micros
from tokenyard.trace.files import Partial
from tokenyard.trace.held_back import Cause
from tokenyard.units import duration
from tokenyard.vocabulary import Place, WaitState

_LISTED = 10
_JOBS_REMEMBERED = 1000
"""Jobs that are compared with one that there is not."""


class LongWait(msgspec.Struct, frozen=True, kw_only=True):
    """One of the requests that waited longest."""

    request_id: str
    job_id: str | None
    waited_us: int
    queued_us: int
    preempted_us: int
    stalled_us: int
    num_preemptions: int
    reason: str
    """The reason for which it waited most."""
    place: Place
    share: float
    """Share of its waiting time that this reason had."""
    rank: int | None = None
    """The engine that served it, where there are several."""


class RankWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one engine of several, in microseconds."""

    rank: int
    requests: int
    requests_that_waited: int
    waited_us: int
    reasons: list[ReasonShare]
    """Most time first; they add up to ``waited_us``."""


class Waiting(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """All requests of a trace together, in microseconds."""

    printer = "tokenyard.explain.render.why:print_waiting"

    why_version: int = WHY_VERSION
    requests: int
    requests_that_waited: int
    waited_us: int
    reasons: list[ReasonShare]
    """Most time first; they add up to ``waited_us``."""
    longest: list[LongWait]
    """The ten requests that waited longest."""
    reconstructed: bool
    ranks: list[RankWaiting] = []
    """The part of each engine, where there are several; the rest is of all of them."""
    partial: Partial | None = None
    """How the trace, or the first of several that does, shows that the run went on after it; None if none does."""

    def summary(self) -> str:
        waited = f"{self.requests_that_waited:,} of {self.requests:,} requests waited"
        return f"{waited}, {duration(self.waited_us / 1e6)} in all"

    def as_table(self) -> RowTable:
        """One row per reason: ``reason``, ``place``, ``seconds`` of all requests, ``share`` of the waiting time."""
        return table_from(
            "reasons",
            [
                {"reason": each.reason, "place": each.place.value, "seconds": each.us / 1e6, "share": each.share}
                for each in self.reasons
            ],
        )


class _Tally:
    """Adds up the waits of requests."""

    def __init__(self) -> None:
        self.spent: Counter[Cause] = Counter()
        self.requests = self.waited = 0

    def add(self, timeline: RequestTimeline) -> None:
        self.requests += 1
        self.waited += bool(timeline.waits)
        for wait in timeline.waits:
            for part in wait.parts:
                self.spent[Cause(part.reason, part.place)] += part.us

    def join(self, other: _Tally) -> None:
        self.spent.update(other.spent)
        self.requests += other.requests
        self.waited += other.waited

    @property
    def total_us(self) -> int:
        return sum(self.spent.values())

    def reasons(self) -> list[ReasonShare]:
        total = self.total_us
        return [
            ReasonShare(reason=cause.reason, place=cause.place, us=us, share=us / total)
            for cause, us in sorted(self.spent.items(), key=lambda item: (-item[1], item[0]))
        ]


@suggests_keywords()
def waiting(path: Path | str, job_id: str | None = None) -> Waiting:
    """Add up the waits of a trace, or of those of several engines; of one job's requests if ``job_id`` is given.

    Raises TraceError if there is no trace at ``path``, or no such job in it, ConfigError for what is no path or no id.
    """
    path = given_path("path", path)
    if job_id is not None:
        given_text("job_id", job_id, "give the id of a job, as a text")
    known: dict[str, None] = {}
    longest: list[tuple[int, int, RequestTimeline, int | None]] = []
    whole, ranks = _Tally(), list[RankWaiting]()
    reconstructed, order = False, 0
    partial: Partial | None = None
    for rank, trace in timeline_readers(path):
        tally = _Tally()
        for timeline in trace.timelines():
            if (timeline.arrived_us or 0) < micros(trace.warmup):
                continue
            if job_id is not None and timeline.job_id != job_id:
                if timeline.job_id is not None and len(known) < _JOBS_REMEMBERED:
                    known[timeline.job_id] = None
                continue
            tally.add(timeline)
            order -= 1
            if timeline.waits:
                entry = (timeline.waited_us, order, timeline, rank)
                heappush(longest, entry) if len(longest) < _LISTED else heappushpop(longest, entry)
        whole.join(tally)
        partial = partial or trace.partial
        reconstructed |= trace.reconstructed
        if rank is not None:
            ranks.append(_rank_waiting(rank, tally))
    if job_id is not None and not whole.requests:
        raise _no_job(path, job_id, known)
    longest.sort(key=lambda entry: entry[:2], reverse=True)
    return Waiting(
        requests=whole.requests,
        requests_that_waited=whole.waited,
        waited_us=whole.total_us,
        reasons=whole.reasons(),
        longest=[_long_wait(timeline, rank) for _, _, timeline, rank in longest],
        reconstructed=reconstructed,
        ranks=ranks,
        partial=partial,
    )


def _no_job(path: Path, job_id: str, known: Collection[str]) -> TraceError:
    """The error for a job that has no request in a trace, with those that are most like it."""
    near = near_names(job_id, known) or list(known)[:3]
    fix = f"give the id of a job that came{': ' if near else ''}{', '.join(near)}"
    return TraceError(f"{path}: no job {shown(job_id)}: {fix}", field="job_id", value=job_id, fix=fix)


def _rank_waiting(rank: int, tally: _Tally) -> RankWaiting:
    return RankWaiting(
        rank=rank,
        requests=tally.requests,
        requests_that_waited=tally.waited,
        waited_us=tally.total_us,
        reasons=tally.reasons(),
    )


def _long_wait(timeline: RequestTimeline, rank: int | None) -> LongWait:
    by_state = dict.fromkeys(WaitState, 0)
    spent: Counter[Cause] = Counter()
    for wait in timeline.waits:
        by_state[wait.state] += wait.us
        for part in wait.parts:
            spent[Cause(part.reason, part.place)] += part.us
    cause, most = max(spent.items(), key=lambda item: (item[1], item[0]))
    return LongWait(
        request_id=timeline.request_id,
        job_id=timeline.job_id,
        waited_us=timeline.waited_us,
        queued_us=by_state[WaitState.QUEUED],
        preempted_us=by_state[WaitState.PREEMPTED],
        stalled_us=by_state[WaitState.STALLED],
        num_preemptions=len(timeline.preemptions),
        reason=cause.reason,
        place=cause.place,
        share=most / timeline.waited_us,
        rank=rank,
    )
