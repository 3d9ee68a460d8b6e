"""Who waited longest, and for what everybody waited: the waits of a whole trace, added up."""

from __future__ import annotations

from collections import Counter
from heapq import heappush, heappushpop
from pathlib import Path

import msgspec

from tokenyard.explain.held_back.held_back import Cause
from tokenyard.explain.why.timeline_reader import TimelineReader
from tokenyard.explain.why.why import WHY_VERSION, ReasonShare
from tokenyard.trace.format.request_timeline import RequestTimeline
from tokenyard.vocabulary.waits import Place, WaitState

__all__ = ["LongWait", "Waiting", "waiting"]

_LISTED = 10


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
    """What it waited for most."""
    place: Place
    share: float
    """Of its waiting time that this reason had."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """All requests of a trace together, in microseconds."""

    why_version: int = WHY_VERSION
    requests: int
    requests_that_waited: int
    waited_us: int
    reasons: list[ReasonShare]
    """Most time first; they add up to ``waited_us``."""
    longest: list[LongWait]
    """The ten requests that waited longest."""
    reconstructed: bool


def waiting(path: Path | str) -> Waiting:
    """Add up the waits of a trace. Raises TraceError if there is none at ``path``."""
    trace = TimelineReader(path)
    spent: Counter[Cause] = Counter()
    longest: list[tuple[int, int, RequestTimeline]] = []
    requests = waited = 0
    for timeline in trace.timelines():
        requests += 1
        waited += bool(timeline.waits)
        for wait in timeline.waits:
            for part in wait.parts:
                spent[Cause(part.reason, part.place)] += part.us
        if timeline.waits:
            entry = (timeline.waited_us, -requests, timeline)
            heappush(longest, entry) if len(longest) < _LISTED else heappushpop(longest, entry)
    total = sum(spent.values())
    return Waiting(
        requests=requests,
        requests_that_waited=waited,
        waited_us=total,
        reasons=[
            ReasonShare(reason=cause.reason, place=cause.place, us=us, share=us / total)
            for cause, us in sorted(spent.items(), key=lambda item: (-item[1], item[0]))
        ],
        longest=[_long_wait(timeline) for _, _, timeline in sorted(longest, key=lambda entry: entry[:2], reverse=True)],
        reconstructed=trace.reconstructed,
    )


def _long_wait(timeline: RequestTimeline) -> LongWait:
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
    )
