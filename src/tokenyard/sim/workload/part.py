"""A part of a workload that stands for the whole: its busiest stretch, sessions uncut."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from tokenyard.sim.workload.record import Workload, WorkloadRequest

__all__ = ["WorkloadPart", "busiest_part"]


class WorkloadPart(NamedTuple):
    """A stretch of a workload."""

    workload: Workload
    """It begins at 0."""
    first: float
    """Seconds of the whole, at which its first session or request arrives."""
    last: float
    """At which the last one does."""


def busiest_part(workload: Workload, num_requests: int) -> WorkloadPart | None:
    """Consecutive sessions of ``num_requests`` requests or a few more, where most tokens arrive per second.

    A session is a request with all turns that follow it. None if no session could be left out.
    """
    sessions = _sessions(workload)
    requests = [0, *accumulate(len(session) for session in sessions)]
    tokens = [0, *accumulate(sum(len(each.prompt) + each.max_tokens for each in session) for session in sessions)]
    moments = [session[0].arrival_time for session in sessions]
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
    sessions: list[list[WorkloadRequest]] = []
    for request in workload:
        session = session_of[request.after[0]] if request.after else []
        for other in {id(each): each for each in map(session_of.__getitem__, request.after[1:])}.values():
            if other is not session:  # it answers to several: they belong together
                session += other
                session_of |= {each.request_id: session for each in other}
                sessions.remove(other)
        if not request.after:
            sessions.append(session)
        session.append(request)
        session_of[request.request_id] = session
    return sorted(sessions, key=lambda session: session[0].arrival_time)
