"""Engines behind one router, on a clock that they may share with others.

At one moment steps end first, then requests arrive, then steps begin: a router sees every engine after the same moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from tokenyard.errors import ConfigError, RequestError, TokenyardError
from tokenyard.request import Request
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.executor import WorkerTransfers
from tokenyard.sim.latency.model import LatencyModel
from tokenyard.sim.parallel.autoscaler import Autoscaling
from tokenyard.sim.parallel.lockstep import Lockstep, LockstepExecutor
from tokenyard.sim.parallel.rank import Rank, RankInStep, RankUse
from tokenyard.sim.parallel.replicas import Replicas
from tokenyard.sim.parallel.routers.router import EngineReport, Router
from tokenyard.sim.pipeline import executor_for

__all__ = ["ARRIVAL", "HANGING_UP", "SCALING", "EngineGroup", "EngineParts", "Event"]

_STEP_ENDS, SCALING, ARRIVAL, HANGING_UP, _STEP_BEGINS, _QUESTION = range(6)
"""What may happen at a moment, in this order."""


class EngineParts(NamedTuple):
    """What an engine is made of."""

    scheduler: Scheduler
    transfers: WorkerTransfers | None = None
    """What moves its KV; None: nothing does."""


class Event(NamedTuple):
    """Something that is about to happen."""

    moment: float
    kind: int
    rank: int = 0


class EngineGroup:
    """The engines, each with its rank; it listens to them."""

    def __init__(
        self,
        clock: VirtualClock,
        latency: LatencyModel,
        router: Router,
        parts: Sequence[EngineParts],
        *,
        on_refused: Callable[[RequestError, Request], None],
        on_aborted: Callable[[Sequence[Request]], None] = lambda _: None,
        steps_together: bool = False,
        speculation: SimulatedSpeculation | None = None,
        autoscaling: Autoscaling | None = None,
    ) -> None:
        """``on_refused`` is told of a request that the engine it was sent to cannot serve, ``on_aborted`` of those that
        have ended because their clients went away.

        ConfigError for ranks that step together in several pipeline stages.
        """
        self._clock = clock
        self._router = router
        self._on_refused = on_refused
        self._on_aborted = on_aborted
        self._lockstep = Lockstep(len(parts), latency) if steps_together and len(parts) > 1 else None
        stages = parts[0].scheduler.config.pipeline_parallel_size
        if self._lockstep is not None and stages > 1:
            fix = "stages of ranks that step together (experts, data parallel) are not modelled: give 1"
            raise ConfigError("pipeline_parallel_size", stages, fix)
        self.ranks: list[Rank] = []
        for rank, (scheduler, transfers) in enumerate(parts):
            if self._lockstep is None:
                alone = executor_for(clock, latency, scheduler.config, transfers=transfers, speculation=speculation)
                self.ranks.append(Rank(rank, scheduler, alone, clock, transfers, self))
            else:
                joined = LockstepExecutor(
                    clock, latency, self._lockstep, rank, transfers=transfers, speculation=speculation
                )
                self.ranks.append(RankInStep(rank, scheduler, joined, clock, transfers, self))
        self.replicas = None if autoscaling is None else Replicas(autoscaling, self.ranks)
        """Which of the engines there are; None: all, always."""

    # ---- what there is to know

    @property
    def schedulers(self) -> list[Scheduler]:
        return [rank.scheduler for rank in self.ranks]

    @property
    def uses(self) -> tuple[RankUse, ...]:
        """What each engine did."""
        return tuple(rank.use for rank in self.ranks)

    @property
    def waves(self) -> int:
        """Times that all ranks began to step together; 0 where each steps alone."""
        return 0 if self._lockstep is None else self._lockstep.wave + self._lockstep.is_running

    @property
    def has_work(self) -> bool:
        """Whether it will do something by itself."""
        return any(rank.has_work for rank in self.ranks)

    @property
    def next_event(self) -> Event | None:
        """What it does next, were it only to keep step; None: nothing, until somebody sends a request."""
        now = self._clock.now()
        events = [
            Event(max(moment, now), _STEP_ENDS if rank.is_due else _STEP_BEGINS, rank.rank)
            for rank in self.ranks
            if (moment := rank.next_moment) is not None and moment < inf
        ]
        if self._lockstep is not None and self._lockstep.is_running:
            held = [rank.held_until for rank in self.ranks if isinstance(rank, RankInStep)]
            if None not in held:
                events.append(Event(max(now, *(moment for moment in held if moment is not None)), _QUESTION))
        return min(events, default=None)

    # ---- what it does

    def happen(self, event: Event) -> EngineOutputs | None:
        """Let its next event happen, once the clock is there; what a step brought that has ended."""
        if event.kind == _QUESTION:
            assert self._lockstep is not None
            self._lockstep.ask(unfinished=any(each.has_unfinished_requests() for each in self.schedulers))
            return None
        outputs = self.ranks[event.rank].act()
        if outputs is not None:
            now = self._clock.now()
            for row in outputs.finish_reasons:
                self._router.request_ended(now, outputs.requests[row].request_id, event.rank)
        if self.replicas is not None:
            self.replicas.worked(self._clock.now(), event.rank)
        return outputs

    def send(self, now: float, request: Request) -> None:
        """A request has arrived: the router says who gets it. ConfigError for a router that fails or names nobody."""
        self.ranks[self._chosen(now, request)].send(request)

    def abort(self, request_ids: Sequence[str]) -> None:
        """Clients have gone away: each engine ends those of their requests that it has before its next step."""
        for rank in self.ranks:
            rank.abort(request_ids)

    def _chosen(self, now: float, request: Request) -> int:
        name = type(self._router).__name__
        there = range(len(self.ranks)) if self.replicas is None else self.replicas.ready(self._clock.now())
        engines = [self.ranks[i] for i in there]
        try:
            chosen = self._router.choose(now, request, engines)
        except TokenyardError:
            raise
        except Exception as error:
            raise ConfigError("router", name, f"choose() fails: {type(error).__name__}: {error}") from error
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < len(engines):
            fix = f"choose() has to return the index of an engine, from 0 to {len(engines) - 1}"
            raise ConfigError("router", name, f"{fix}, not {chosen!r}")
        return there[chosen]

    # ---- what its ranks tell it

    def told(self, report: EngineReport) -> None:
        self._router.engine_reported(self._clock.now(), report)

    def aborted(self, requests: Sequence[Request], rank: int) -> None:
        for request in requests:
            self._router.request_ended(self._clock.now(), request.request_id, rank)
        self._on_aborted(requests)

    def refused(self, error: RequestError, request: Request, rank: int) -> None:
        self._router.request_ended(self._clock.now(), request.request_id, rank)
        self._on_refused(error, request)
