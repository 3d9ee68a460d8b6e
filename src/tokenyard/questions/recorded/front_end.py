"""How long the requests of a trace were on their way to the scheduler."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import msgspec

from tokenyard.trace.facts import micros
from tokenyard.trace.reader import TraceReader, ingress_of, taken_in_at_once
from tokenyard.trace.schema import RequestArrived
from tokenyard.trace.steps import Step

# ---------------------------------------------------------------------------------------------------------------------
# How long requests were on their way to the scheduler: from the arrival that a server notes to its queue.
#
# A trace brackets it (`tokenyard.trace.reader`). An engine without work takes a request in as soon as it is
# there: the way is known. One that runs a step takes it in when the step ends: the request came at some moment since
# the step before began.

REPLAY = "replay"
"""Host of a trace that is of no server."""

_ENOUGH = 5
"""Ways that are known, to speak of what is usual."""


class _Bracket(msgspec.Struct, frozen=True):
    """Seconds that a request was on its way, at least and at most."""

    least: float
    most: float


class FrontEnd:
    """Takes the steps of a trace in order."""

    def __init__(self) -> None:
        self._brackets: dict[str, _Bracket] = {}
        self._before: int | None = None
        """When the step before began, in microseconds."""
        self._over: int | None = None
        """When it ended; None if the trace does not record it."""

    def add(self, step: Step) -> None:
        """Take one step. One without a time is ignored."""
        if step.ts is None:
            return
        seen = micros(step.ts)
        for arrived in step.arrived:
            if arrived.req_id is None or arrived.arrival_time is None or arrived.ts is None:
                continue
            least = self._surely_on_its_way(arrived, step, micros(arrived.arrival_time), seen) / 1e6
            most = max(arrived.ts - arrived.arrival_time, 0.0)
            is_known = round(most - least, 6) <= 0
            self._brackets.setdefault(arrived.req_id, _Bracket(most if is_known else least, most))
        completed = step.completed.ts if step.completed is not None else None
        self._before, self._over = seen, None if completed is None else micros(completed)

    def _surely_on_its_way(self, arrived: RequestArrived, step: Step, sent: int, seen: int) -> int:
        """Microseconds that it was on its way at least; none if the steps in between are not in the trace."""
        if arrived.step is not None and arrived.step < step.number:
            return 0
        over = sent if self._before is None else self._over
        taken_in = taken_in_at_once(arrived, step.snapshot)
        return ingress_of(sent, seen, before=self._before, over=over, taken_in=taken_in).on_its_way

    @property
    def usual(self) -> float:
        """Seconds that most requests can have taken: the median of those known, else what fits most brackets."""
        known = [bracket.least for bracket in self._brackets.values() if bracket.least == bracket.most]
        if len(known) >= _ENOUGH or not self._brackets:
            return median(known) if known else 0.0
        begins = sorted(bracket.least for bracket in self._brackets.values())
        ends = sorted(bracket.most for bracket in self._brackets.values())
        return max(begins, key=lambda moment: bisect.bisect_right(begins, moment) - bisect.bisect_left(ends, moment))

    def ways(self) -> Mapping[str, float]:
        """Request -> seconds until the scheduler had it: what is usual, within what the trace allows."""
        usual = self.usual
        return {name: min(max(usual, bracket.least), bracket.most) for name, bracket in self._brackets.items()}


def recorded_ways(trace: Path | str) -> list[float]:
    """Seconds that each request of a server's trace was on its way; none of a replay's, which has no front end.

    Raises TraceError if the trace cannot be read.
    """
    reader, front_end = TraceReader(trace, requests=False), FrontEnd()
    for step in reader.steps():
        front_end.add(step)
    if reader.start is not None and reader.start.host == REPLAY:
        return []
    return list(front_end.ways().values())
