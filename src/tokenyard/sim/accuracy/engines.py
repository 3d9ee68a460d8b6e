"""One engine, or several data-parallel ones, on one clock: what a measured run of either kind is replayed on.

A request goes to the engine with the smallest ``4 x waiting + running``, as vLLM's load balancer has it. Engines of a
model with experts step together, for their tokens meet at every layer: a step of all lasts as long as the longest, and
an engine without work computes a dummy token. Engines of other models step each for itself.

With async scheduling the step after the one that runs is decided when that one begins: who arrives while a step runs
waits for the end of the next one as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.request import Request
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sched.steps.scheduler_output import SchedulerOutput
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.latency.model import StepShape
from tokenyard.sim.latency.pricing import RanksLatency, host_seconds, ranks_seconds
from tokenyard.sim.model import SimulatedModel

__all__ = ["Engines", "Times"]

_WAITING_WEIGHT = 4


@dataclass(slots=True)
class Times:
    """Of one request, in seconds on the clock."""

    arrived: float
    first: float = math.nan
    last: float = math.nan
    tokens: int = 0


@dataclass(slots=True)
class _Engine:
    scheduler: Scheduler
    model: SimulatedModel = field(default_factory=SimulatedModel)
    plan: SchedulerOutput | None = None
    ends: float = math.inf
    """When the step that is running ends."""

    @property
    def load(self) -> int:
        running, waiting = self.scheduler.get_request_counts()
        return _WAITING_WEIGHT * waiting + running


class Engines:
    """Runs requests that arrive by the clock."""

    def __init__(
        self,
        config: SchedulerConfig,
        cache: CacheConfig,
        latency: RanksLatency,
        *,
        count: int = 1,
        together: bool = False,
        ahead: bool = False,
    ) -> None:
        """``together``: the engines step in lockstep; ``ahead``: a step is decided while the one before runs."""
        self._clock = VirtualClock()
        self._engines = [_Engine(Scheduler(config, cache, clock=self._clock.now)) for _ in range(count)]
        self._latency = latency
        self._together = together and count > 1
        self._ahead = ahead
        self._seen = 0.0
        """Arrivals up to then take part in the next decision of busy engines."""

    def run(self, arrivals: Sequence[tuple[float, Callable[[], Request]]]) -> list[Times]:
        """Times of every request; ``arrivals`` are in order, each with what makes its request."""
        times: dict[str, Times] = {}
        queue = list(reversed(arrivals))
        clock = self._clock
        while queue or any(engine.scheduler.has_requests() for engine in self._engines):
            busy = any(engine.scheduler.has_requests() for engine in self._engines)
            seen = self._seen if self._ahead and busy else clock.now()
            self._seen = clock.now()
            while queue and queue[-1][0] <= seen:
                moment, make = queue.pop()
                request = make()
                times[request.request_id] = Times(moment)
                min(self._engines, key=lambda engine: engine.load).scheduler.add_request(request)
            if self._together:
                self._begin_together()
            else:
                for engine in self._engines:
                    self._begin(engine)
            ends = min(engine.ends for engine in self._engines)
            if ends == math.inf:
                clock.advance_to(queue[-1][0])
                continue
            if queue and not self._together and any(engine.plan is None for engine in self._engines):
                ends = min(ends, queue[-1][0])  # an idle engine takes what comes at once
            clock.advance_to(ends)
            for engine in self._engines:
                if engine.ends <= ends:
                    self._end(engine, times)
        return list(times.values())

    def _begin(self, engine: _Engine) -> None:
        if engine.plan is None and engine.scheduler.has_requests():
            engine.plan = engine.scheduler.schedule()
            shape = StepShape.of(engine.plan)
            engine.ends = self._clock.now() + (self._seconds([shape]) if shape.num_tokens else 0.0)

    def _begin_together(self) -> None:
        working = [engine for engine in self._engines if engine.scheduler.has_requests()]
        if not working:
            return
        for engine in working:
            engine.plan = engine.scheduler.schedule()
        shapes = [None if engine.plan is None else StepShape.of(engine.plan) for engine in self._engines]
        busy = [shape if shape is not None and shape.num_tokens else None for shape in shapes]
        ends = self._clock.now() + (self._seconds(busy) if any(busy) else 0.0)
        for engine in working:
            engine.ends = ends

    def _seconds(self, shapes: Sequence[StepShape | None]) -> float:
        """The host prepares a step while the one before is computed, as with async scheduling."""
        return ranks_seconds(self._latency, shapes) - host_seconds(self._latency)

    def _end(self, engine: _Engine, times: dict[str, Times]) -> None:
        assert engine.plan is not None
        now = self._clock.now()
        plan, engine.plan, engine.ends = engine.plan, None, math.inf
        for news in engine.scheduler.update_from_output(plan, engine.model.execute(plan)):
            each = times[news.request_id]
            if news.new_token_ids:
                each.first = now if math.isnan(each.first) else each.first
                each.last = now
                each.tokens += len(news.new_token_ids)
