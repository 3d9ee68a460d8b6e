"""Routers that look at the engines as they are: what a balancer in front of them could do at best."""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.request import Request
from tokenyard.sim.parallel.routers.router import EngineState, Router

__all__ = ["LeastLoaded", "PrefixAffinity", "RoundRobin"]


class RoundRobin(Router):
    """One after the other."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        chosen = self._next % len(engines)
        self._next = chosen + 1
        return chosen


class LeastLoaded(Router):
    """Who has the fewest requests; of several, who has the most free KV, then the first."""

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        return min(range(len(engines)), key=lambda i: _load(engines[i]))


class PrefixAffinity(Router):
    """Who holds most of the request's beginning; of several, the least loaded.

    Engines that have ``most_ahead`` requests more than the one with the fewest are passed over; None: none is.
    """

    def __init__(self, most_ahead: int | None = None) -> None:
        self._most_ahead = most_ahead

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        fewest = min(_load(each)[0] for each in engines)
        among = [
            i
            for i, each in enumerate(engines)
            if self._most_ahead is None or _load(each)[0] < fewest + self._most_ahead
        ]
        return min(among, key=lambda i: (-engines[i].num_cached_tokens(request), *_load(engines[i])))


def _load(engine: EngineState) -> tuple[int, float, int]:
    return engine.num_waiting + engine.num_running, engine.kv_usage, engine.rank
