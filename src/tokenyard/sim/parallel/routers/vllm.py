"""vLLM's own balancing: every front end (API server) takes the engine with the lowest score, by what it knows.

    0.22   4 x waiting + running                                                ties: the first, from its own start
    0.33   the larger of: its own requests under way (x front ends), waiting + running;
           + 6 x waiting x (KV use above one half)                              ties: a start that moves on

Facts of ``DPLBAsyncMPClient`` in ``v1/engine/core_client.py``. Waiting and running are those that the coordinator
published last, and every request that the front end has sent since counts as waiting (x front ends). In 0.22 the
engines of a dense model report nothing: all is 0 again every five seconds. Which front end a client is connected to is
the operating system's affair: here they take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tokenyard.profiles import NEWEST
from tokenyard.request import Request
from tokenyard.sim.parallel.routers.coordinator import Coordinator, Counts
from tokenyard.sim.parallel.routers.router import EngineReport, EngineState, Router

__all__ = ["Fleet", "VLLMBalancing"]


class Fleet(NamedTuple):
    """What there is to balance."""

    num_engines: int
    steps_together: bool = False
    """The ranks of a mixture of experts."""
    vllm_version: str = NEWEST.vllm_version
    num_front_ends: int = 1
    """vLLM starts as many as there are engines, unless told otherwise."""


class VLLMBalancing(Router):
    """Front ends in turns, each choosing as vLLM's does."""

    def __init__(self, fleet: Fleet) -> None:
        is_old = fleet.vllm_version == "0.22"
        self._coordinator = Coordinator(
            fleet.num_engines,
            needs_silence=is_old or fleet.steps_together,
            steps_together=is_old or fleet.steps_together,
        )
        self._engines_report = fleet.steps_together or not is_old
        front_end = _FrontEnd if is_old else _NewFrontEnd
        self._front_ends = [front_end(i, fleet) for i in range(fleet.num_front_ends)]
        self._senders: dict[str, _FrontEnd] = {}
        self._next = 0

    def choose(self, now: float, request: Request, engines: Sequence[EngineState]) -> int:
        front_end = self._front_ends[self._next]
        self._next = (self._next + 1) % len(self._front_ends)
        self._senders[request.request_id] = front_end
        return front_end.choose(*self._coordinator.published(now))

    def engine_reported(self, now: float, report: EngineReport) -> None:
        if self._engines_report:
            self._coordinator.hear(now, report)

    def request_ended(self, now: float, request_id: str, rank: int) -> None:
        self._senders.pop(request_id).under_way[rank] -= 1


class _FrontEnd:
    """What one API server knows, and whom it takes: as in 0.22."""

    def __init__(self, index: int, fleet: Fleet) -> None:
        self._times = fleet.num_front_ends
        self._start = fleet.num_engines * index // fleet.num_front_ends
        self._known = [Counts()] * fleet.num_engines
        self._number = -1
        """Of the publication that it knows."""
        self.under_way = [0] * fleet.num_engines
        """Requests of its own that have not ended, on each engine."""

    def choose(self, number: int, published: Sequence[Counts]) -> int:
        """The engine, by what was published; it is remembered that it has one more."""
        if number != self._number:
            self._number, self._known = number, list(published)
        order = [(self._start + i) % len(self._known) for i in range(len(self._known))]
        chosen = min(order, key=self._score)
        counts = self._known[chosen]
        self._known[chosen] = counts._replace(num_waiting=counts.num_waiting + self._times)
        self.under_way[chosen] += 1
        return chosen

    def _score(self, rank: int) -> float:
        counts = self._known[rank]
        return 4 * counts.num_waiting + counts.num_running


class _NewFrontEnd(_FrontEnd):
    """As in 0.33."""

    def choose(self, number: int, published: Sequence[Counts]) -> int:
        chosen = super().choose(number, published)
        self._start = (self._start + 1) % len(self._known)
        return chosen

    def _score(self, rank: int) -> float:
        waiting, running, usage = self._known[rank]
        return max(self._times * self.under_way[rank], waiting + running) + 6 * waiting * max(0.0, usage - 0.5)
