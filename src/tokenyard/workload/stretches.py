"""Stretches of a workload: pauses in which nothing arrives, the busiest part, and the whole again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import msgspec

from tokenyard.errors import ConfigError
from tokenyard.units import duration
from tokenyard.workload.record import Remark, Workload, WorkloadRequest

# ---------------------------------------------------------------------------------------------------------------------
# Pauses, in which nothing arrives: they make a rate over the whole mean little.

_SHORTEST_PAUSE = 600.0
_MUCH_LONGER = 30.0
"""Times the mean of all shorter intervals that a pause takes: at random times one in e**30 would."""
_FEWEST_FOR_PAUSES = 8


class Pause(msgspec.Struct, frozen=True):
    """Seconds."""

    start: float
    lasts: float


def pauses_in(workload: Workload) -> list[Pause]:
    """Stretches of ten minutes or more in which nothing arrives, though requests come far closer otherwise."""
    moments = sorted(each.arrival_time for each in workload if not each.after)
    if len(moments) < _FEWEST_FOR_PAUSES:
        return []
    gaps = sorted(later - earlier for earlier, later in pairwise(moments))
    shorter = 0.0
    for i, gap in enumerate(gaps):
        if gap >= _SHORTEST_PAUSE and i and gap >= _MUCH_LONGER * shorter / i:
            return [Pause(start, end - start) for start, end in pairwise(moments) if end - start >= gap]
        shorter += gap
    return []


def remarks_on_pauses(workload: Workload) -> list[Remark]:
    """A remark that there are pauses, and how much of the time they take; nothing if there are none, or where it is
    noted.
    """
    pauses = pauses_in(workload)
    if not pauses or any(each.code == "pauses" for each in workload.remarks):
        return []
    whole = duration(max(each.arrival_time for each in workload))
    longest = max(pauses, key=lambda each: each.lasts)
    said = f"nothing arrives for {duration(longest.lasts)}, from {duration(longest.start)} on, of {whole} in all"
    if len(pauses) > 1:
        total = f"{duration(sum(each.lasts for each in pauses))} of {whole} in all"
        said = f"nothing arrives in {len(pauses):,} pauses, {total} (the longest: {duration(longest.lasts)})"
    return [Remark("pauses", f"{said}: rates over all of it are below those of busy times", warning=True)]


# ---------------------------------------------------------------------------------------------------------------------
# A part of a workload that stands for the whole: its busiest stretch, sessions uncut.


class WorkloadPart(msgspec.Struct, frozen=True):
    """A stretch of a workload."""

    workload: Workload
    """The requests of the stretch; the first arrives at 0."""
    first: float
    """Seconds of the whole, at which its first session or request arrives."""
    last: float
    """Time at which the last one ends."""


def busiest_part(workload: Workload, num_requests: int) -> WorkloadPart | None:
    """Consecutive sessions of ``num_requests`` requests or a few more, where most tokens arrive per second.

    A session is a request with all turns that follow it. None if no session could be left out.
    """
    sessions = _sessions(workload)
    requests = [0, *accumulate(len(session) for session in sessions)]
    tokens = [0, *accumulate(sum(len(each.prompt) + each.max_tokens for each in session) for session in sessions)]
    moments = [_first_arrival(session) for session in sessions]
    best: tuple[float, int, int] | None = None
    end = 0
    for start in range(len(sessions)):
        while end < len(sessions) and requests[end] - requests[start] < num_requests:
            end += 1
        if requests[end] - requests[start] < num_requests:
            break
        seconds = max(moments[end - 1] - moments[start], 1e-3)
        busy = (tokens[end] - tokens[start]) / seconds
        if best is None or busy > best[0]:
            best = busy, start, end
    if best is None or best[2] - best[1] == len(sessions):
        return None
    _, start, end = best
    chosen = {each.request_id for session in sessions[start:end] for each in session}
    part = [
        each if each.after else replace(each, arrival_time=each.arrival_time - moments[start])
        for each in workload
        if each.request_id in chosen
    ]
    return WorkloadPart(workload.with_requests(part), moments[start], moments[end - 1])


def _sessions(workload: Workload) -> list[list[WorkloadRequest]]:
    """Requests with those that follow them, by their first arrival."""
    session_of: dict[str, list[WorkloadRequest]] = {}
    for request in workload:
        session: list[WorkloadRequest] = []
        for other in (session_of[each] for each in request.after):
            if other is session:
                continue
            larger, smaller = (session, other) if len(session) > len(other) else (other, session)
            larger += smaller  # it answers to several: they belong together
            session_of |= {each.request_id: larger for each in smaller}
            session = larger
        session.append(request)
        session_of[request.request_id] = session
    return sorted({id(each): each for each in session_of.values()}.values(), key=_first_arrival)


def _first_arrival(session: Sequence[WorkloadRequest]) -> float:
    return min(each.arrival_time for each in session if not each.after)


# ---------------------------------------------------------------------------------------------------------------------
# A workload that goes on: the same again, as often as wanted, for what a short one cannot show.
#
#     a  b    c |  a#2  b#2    c#2 |  a#3 ...        each as long after the one before as c would be after b, on average
#
# What comes again is other people's: it has ids of its own, and shares no prefix with what came before, of which a
# cache would otherwise know every prompt.


def repeated(workload: Workload, times: int) -> Workload:
    """Return the workload so many times in a row. Raises ConfigError where all of it arrives at once."""
    if times == 1:
        return workload
    moments = [each.arrival_time for each in workload if not each.after]
    span = max(moments) - min(moments)
    if span <= 0:
        raise ConfigError("times", times, f"{workload.name} arrives all at once: there is no pace to go on at")
    period = span * len(moments) / (len(moments) - 1)
    copies = [*workload, *(_again(each, number, period) for number in range(2, times + 1) for each in workload)]
    return workload.with_requests(copies)


def _again(request: WorkloadRequest, number: int, period: float) -> WorkloadRequest:
    """A request when it comes for the ``number``-th time."""
    mark = f"#{number}"
    return replace(
        request,
        request_id=request.request_id + mark,
        arrival_time=request.arrival_time + (number - 1) * period,
        after=tuple(each + mark for each in request.after),
        job_id=None if request.job_id is None else request.job_id + mark,
        cache_salt=(request.cache_salt or "") + mark,
        images=tuple(replace(each, mm_hash=each.mm_hash + mark) for each in request.images),
    )
