"""How long requests were on their way to the scheduler: from the arrival that a server notes to its queue.

A trace brackets it. An engine without work takes a request in as soon as it is there: the way is known. One that is
running a step takes it in when the step ends: it came at some moment since the step before began.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tokenyard.trace.read.reader import TraceReader
from tokenyard.trace.read.step_joiner import Step

__all__ = ["REPLAY", "FrontEnd", "recorded_ways"]

REPLAY = "replay"
"""Host of a trace that is of no server."""

_ENOUGH = 5
"""Ways that are known, to speak of what is usual."""


class _Bracket(NamedTuple):
    """Seconds that a request was on its way, at least and at most."""

    least: float
    most: float


class FrontEnd:
    """Takes the steps of a trace in order."""

    def __init__(self) -> None:
        self._brackets: dict[str, _Bracket] = {}
        self._last_ts: float | None = None

    def add(self, step: Step) -> None:
        """Take one step."""
        snapshot = step.snapshot
        was_idle = snapshot is not None and not snapshot.num_running and snapshot.num_waiting == len(step.arrived)
        for arrived in step.arrived:
            if arrived.req_id is None or arrived.arrival_time is None or arrived.ts is None:
                continue
            most = max(arrived.ts - arrived.arrival_time, 0.0)
            since = self._last_ts if self._last_ts is not None and not was_idle else None
            least = most if was_idle else max(since - arrived.arrival_time, 0.0) if since is not None else 0.0
            self._brackets.setdefault(arrived.req_id, _Bracket(min(least, most), most))
        self._last_ts = step.ts if step.ts is not None else self._last_ts

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
