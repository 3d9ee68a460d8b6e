"""A workload through several engines on one virtual clock: data parallelism.

    arrival -> router -> the engine's inbox -> its next step -> ... -> the end, and the next turn arrives

At one moment steps end first, then requests arrive, then steps begin: a router sees every engine after the same moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from tokenyard.config import CacheConfig, SchedulerConfig, require_int
from tokenyard.errors import ConfigError, RequestError, TokenyardError
from tokenyard.request import Request
from tokenyard.sched.observer import StepObserver
from tokenyard.sched.policy import Policy
from tokenyard.sched.request_checks import check_lengths
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.executor import SimulatedExecutor
from tokenyard.sim.latency.model import LatencyModel
from tokenyard.sim.parallel.lockstep import Lockstep, LockstepExecutor
from tokenyard.sim.parallel.rank import Rank, RankInStep, RankUse
from tokenyard.sim.parallel.routers.router import EngineReport, Router
from tokenyard.sim.prefill import prefill_seconds
from tokenyard.sim.traffic import STEPS_PER_REPORT, Progress, RefusedRequest, Traffic, require_settled
from tokenyard.sim.transfers.offload import KVTransfer
from tokenyard.sim.workload.record import Workload, WorkloadRequest

__all__ = ["MOST_ENGINES", "ParallelResult", "RankUse", "replay_parallel"]

MOST_ENGINES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelResult:
    """What happened. ``num_finished + len(refused) + num_left_out`` is the number of the workload's requests."""

    seconds: float
    """Virtual time from 0 to the end of the last step."""
    ranks: tuple[RankUse, ...]
    waves: int
    """Times that all ranks began to step together; 0 where each steps alone."""
    num_finished: int
    refused: tuple[RefusedRequest, ...]
    num_left_out: int
    output_tokens: int


def replay_parallel(
    workload: Workload,
    config: SchedulerConfig,
    cache_config: CacheConfig,
    latency: LatencyModel,
    router: Router,
    *,
    data_parallel_size: int,
    steps_together: bool = False,
    observers: Sequence[StepObserver | None] | None = None,
    policies: Sequence[Policy | None] | None = None,
    kv_transfer: KVTransfer | None = None,
    speculation: SimulatedSpeculation | None = None,
    skip_refused: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> ParallelResult:
    """Run the whole workload on ``data_parallel_size`` engines, each with a KV cache of its own.

    ``steps_together``: the ranks of a mixture of experts, which take every step with all others. ``observers`` and
    ``policies`` are one for each engine. The rest is as for :func:`~tokenyard.sim.replay.replay`, and with one engine
    so is everything that happens. Raises ConfigError for a router that fails or names no engine, RequestError as
    ``replay`` does.
    """
    require_int("data_parallel_size", data_parallel_size, 1, MOST_ENGINES)
    size = data_parallel_size
    clock = VirtualClock()
    traffic = Traffic(workload, skip_refused=skip_refused, on_progress=on_progress)
    lockstep = Lockstep(size, latency) if steps_together and size > 1 else None
    loop = _Loop(traffic, router, clock, lockstep)
    for rank in range(size):
        moved = kv_transfer.make(cache_config, clock, latency) if kv_transfer is not None else (None, None)
        connector, transfers = moved
        scheduler = Scheduler(
            config,
            cache_config,
            clock=clock.now,
            observer=observers[rank] if observers is not None else None,
            policy=policies[rank] if policies is not None else None,
            kv_connector=connector,
            speculative_config=speculation.config if speculation is not None else None,
            prefill_seconds=prefill_seconds(latency),
        )
        if lockstep is None:
            alone = SimulatedExecutor(clock, latency, transfers=transfers, speculation=speculation)
            loop.ranks.append(Rank(rank, scheduler, alone, clock, transfers, loop))
        else:
            joined = LockstepExecutor(clock, latency, lockstep, rank, transfers=transfers, speculation=speculation)
            loop.ranks.append(RankInStep(rank, scheduler, joined, clock, transfers, loop))
    if not skip_refused:
        kv = loop.ranks[0].scheduler.kv
        for request in workload:
            check_lengths(request.request_id, len(request.prompt), request.max_tokens, config=config, kv=kv)
    loop.run()
    return loop.result()


_STEP_ENDS, _ARRIVAL, _STEP_BEGINS, _QUESTION = range(4)
"""What may happen at a moment, in this order."""


class _Event(NamedTuple):
    moment: float
    kind: int
    rank: int = 0


class _Loop:
    """State of one replay; it listens to its ranks."""

    def __init__(self, traffic: Traffic, router: Router, clock: VirtualClock, lockstep: Lockstep | None) -> None:
        self.ranks: list[Rank] = []
        self._traffic = traffic
        self._router = router
        self._clock = clock
        self._lockstep = lockstep

    def run(self) -> None:
        """Until nothing is left that could happen."""
        while (event := self._next_event()) is not None:
            self._clock.advance_to(event.moment)
            if event.kind == _ARRIVAL:
                for moment, request in self._traffic.due(self._clock.now()):
                    self._arrive(moment, request)
            elif event.kind == _QUESTION:
                assert self._lockstep is not None
                self._lockstep.ask(unfinished=any(rank.scheduler.has_unfinished_requests() for rank in self.ranks))
            else:
                self._act(self.ranks[event.rank])

    def _next_event(self) -> _Event | None:
        now, arrival = self._clock.now(), self._traffic.next_moment
        if arrival is None and not any(rank.has_work for rank in self.ranks):
            return None
        events = [
            _Event(max(moment, now), _STEP_ENDS if rank.is_due else _STEP_BEGINS, rank.rank)
            for rank in self.ranks
            if (moment := rank.next_moment) is not None and moment < inf
        ]
        if arrival is not None:
            events.append(_Event(max(arrival, now), _ARRIVAL))
        if self._lockstep is not None and self._lockstep.is_running:
            held = [rank.held_until for rank in self.ranks if isinstance(rank, RankInStep)]
            if None not in held:
                events.append(_Event(max(now, *(moment for moment in held if moment is not None)), _QUESTION))
        assert events, "ranks that step together wait for each other"
        return min(events)

    def _act(self, rank: Rank) -> None:
        outputs = rank.act()
        if outputs is None:
            return
        now = self._clock.now()
        for row in outputs.finish_reasons:
            self._router.request_ended(now, outputs.requests[row].request_id, rank.rank)
        self._traffic.ended(outputs, now)
        if outputs.step % STEPS_PER_REPORT == 0:
            self._traffic.report(now, *(each.scheduler for each in self.ranks))

    def _arrive(self, moment: float, request: WorkloadRequest) -> None:
        try:
            arrived = request.arrive(moment, self.ranks[0].scheduler.config.max_model_len)
        except RequestError as error:
            self._traffic.refuse(moment, error, request.request_id)
        else:
            self.ranks[self._chosen(moment, arrived)].send(arrived)

    def _chosen(self, moment: float, request: Request) -> int:
        name = type(self._router).__name__
        try:
            chosen = self._router.choose(moment, request, self.ranks)
        except TokenyardError:
            raise
        except Exception as error:
            raise ConfigError("router", name, f"choose() fails: {type(error).__name__}: {error}") from error
        if isinstance(chosen, bool) or not isinstance(chosen, int) or not 0 <= chosen < len(self.ranks):
            fix = f"choose() has to return the index of an engine, from 0 to {len(self.ranks) - 1}"
            raise ConfigError("router", name, f"{fix}, not {chosen!r}")
        return chosen

    def told(self, report: EngineReport) -> None:
        self._router.engine_reported(self._clock.now(), report)

    def refused(self, error: RequestError, request: Request, rank: int) -> None:
        self._router.request_ended(self._clock.now(), request.request_id, rank)
        self._traffic.refuse(request.arrival_time, error, request.request_id)

    def result(self) -> ParallelResult:
        """What happened, once nothing is left."""
        traffic, lockstep = self._traffic, self._lockstep
        traffic.report(self._clock.now(), *(rank.scheduler for rank in self.ranks))
        for rank in self.ranks:
            require_settled(rank.scheduler)
        traffic.require_whole()
        return ParallelResult(
            seconds=self._clock.now(),
            ranks=tuple([rank.use for rank in self.ranks]),
            waves=0 if lockstep is None else lockstep.wave + lockstep.is_running,
            num_finished=traffic.num_finished,
            refused=tuple(traffic.refused),
            num_left_out=traffic.num_left_out,
            output_tokens=traffic.output_tokens,
        )
