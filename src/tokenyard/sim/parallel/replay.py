"""A workload through several engines on one virtual clock: data parallelism.

arrival -> router -> the engine's inbox -> its next step -> ... -> the end, and the next turn arrives
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from tokenyard.config import CacheConfig, SchedulerConfig, require_int
from tokenyard.errors import RequestError
from tokenyard.explain.report.clients import ClientFigures
from tokenyard.explain.report.replicas import ReplicaFigures
from tokenyard.sched.observer import StepObserver
from tokenyard.sched.policy import Policy
from tokenyard.sched.request_checks import check_lengths
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sim.arguments import check_arguments
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.latency.model import LatencyModel
from tokenyard.sim.parallel.autoscaler import Autoscaling
from tokenyard.sim.parallel.group import ARRIVAL, HANGING_UP, SCALING, EngineGroup, EngineParts, Event
from tokenyard.sim.parallel.rank import RankUse
from tokenyard.sim.parallel.routers.router import Router
from tokenyard.sim.prefill import prefill_seconds
from tokenyard.sim.traffic import (
    STEPS_PER_REPORT,
    Progress,
    RefusedRequest,
    Traffic,
    require_settled,
)
from tokenyard.sim.transfers.offload import KVTransfer
from tokenyard.sim.workload.record import Workload, WorkloadRequest

__all__ = ["MOST_ENGINES", "ParallelResult", "RankUse", "replay_parallel"]

MOST_ENGINES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelResult:
    """What happened.

    ``num_finished + num_aborted + len(refused) + num_left_out`` is the number of the workload's requests.
    """

    seconds: float
    """Virtual time from 0 to the end of the last step."""
    ranks: tuple[RankUse, ...]
    waves: int
    """Times that all ranks began to step together; 0 where each steps alone."""
    num_finished: int
    refused: tuple[RefusedRequest, ...]
    num_left_out: int
    output_tokens: int
    num_aborted: int = 0
    """Requests whose clients went away before their end."""
    clients: ClientFigures | None = None
    """Of a workload whose clients ask again."""
    replicas: ReplicaFigures | None = None
    """Of engines that come and go."""


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
    autoscaling: Autoscaling | None = None,
    skip_refused: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> ParallelResult:
    """Run the whole workload on ``data_parallel_size`` engines, each with a KV cache of its own.

    ``autoscaling``: of the engines there are at any moment as many as it says; they are its most.

    ``steps_together``: the ranks of a mixture of experts, which take every step with all others. ``observers`` and
    ``policies`` are one for each engine. The rest is as for :func:`~tokenyard.sim.replay.replay`, and with one engine
    so is everything that happens. Raises ConfigError for a router that fails or names no engine, RequestError as
    ``replay`` does.
    """
    check_arguments(workload, config, cache_config, latency)
    require_int("data_parallel_size", data_parallel_size, 1, MOST_ENGINES)
    clock = VirtualClock()
    traffic = Traffic(workload, skip_refused=skip_refused, on_progress=on_progress)

    def engine(rank: int) -> EngineParts:
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
        return EngineParts(scheduler, transfers)

    group = EngineGroup(
        clock,
        latency,
        router,
        [engine(rank) for rank in range(data_parallel_size)],
        on_refused=lambda error, request: traffic.refuse(request.arrival_time, error, request.request_id),
        on_aborted=lambda requests: traffic.aborted(requests, clock.now()),
        steps_together=steps_together,
        speculation=speculation,
        autoscaling=autoscaling,
    )
    if not skip_refused:
        kv = group.schedulers[0].kv
        for request in workload:
            check_lengths(request.request_id, len(request.prompt), request.max_tokens, config=config, kv=kv)
    loop = _Loop(traffic, group, clock)
    loop.run()
    return loop.result()


class _Loop:
    """State of one replay."""

    def __init__(self, traffic: Traffic, group: EngineGroup, clock: VirtualClock) -> None:
        self._traffic = traffic
        self._group = group
        self._clock = clock

    def run(self) -> None:
        """Until nothing is left that could happen."""
        while (event := self._next_event()) is not None:
            self._clock.advance_to(event.moment)
            if event.kind == ARRIVAL:
                for moment, request in self._traffic.due(self._clock.now()):
                    self._arrive(moment, request)
            elif event.kind == SCALING:
                assert self._group.replicas is not None
                self._group.replicas.act(self._clock.now())
            elif event.kind == HANGING_UP:
                self._group.abort(self._traffic.leaving(self._clock.now()))
            else:
                self._took_in(self._group.happen(event))

    def _next_event(self) -> Event | None:
        arrival = self._traffic.next_moment
        if arrival is None and not self._group.has_work:
            return None
        events = [self._group.next_event]
        if arrival is not None:
            events.append(Event(max(arrival, self._clock.now()), ARRIVAL))
        if self._group.replicas is not None and (moment := self._group.replicas.next_moment) < inf:
            events.append(Event(max(moment, self._clock.now()), SCALING))
        leaving = self._traffic.next_abort
        if leaving is not None and self._group.has_work:
            events.append(Event(max(leaving, self._clock.now()), HANGING_UP))
        return min((event for event in events if event is not None), default=None)

    def _took_in(self, outputs: EngineOutputs | None) -> None:
        if outputs is None:
            return
        self._traffic.ended(outputs, self._clock.now())
        if outputs.step % STEPS_PER_REPORT == 0:
            self._traffic.report(self._clock.now(), *self._group.schedulers)

    def _arrive(self, moment: float, request: WorkloadRequest) -> None:
        try:
            arrived = request.arrive(moment, self._group.schedulers[0].config.max_model_len)
        except RequestError as error:
            self._traffic.refuse(moment, error, request.request_id)
        else:
            self._group.send(moment, arrived)

    def result(self) -> ParallelResult:
        """What happened, once nothing is left."""
        traffic, group = self._traffic, self._group
        traffic.report(self._clock.now(), *group.schedulers)
        for scheduler in group.schedulers:
            require_settled(scheduler)
        traffic.require_whole()
        return ParallelResult(
            seconds=self._clock.now(),
            ranks=group.uses,
            waves=group.waves,
            num_finished=traffic.num_finished,
            refused=tuple(traffic.refused),
            num_left_out=traffic.num_left_out,
            output_tokens=traffic.output_tokens,
            num_aborted=traffic.num_aborted,
            clients=traffic.clients,
            replicas=None if group.replicas is None else group.replicas.figures(self._clock.now()),
        )
