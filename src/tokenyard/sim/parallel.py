"""A workload through several engines on one virtual clock: data parallelism.

arrival -> router -> the engine's inbox -> its next step -> ... -> the end, and the next turn arrives
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tokenyard.core.config import CacheConfig, SchedulerConfig, require_int
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.request_checks import check_lengths
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import RequestError
from tokenyard.explain.report.report import ClientFigures, ReplicaFigures
from tokenyard.sim.choices import (
    ConnectorChoice,
    ObserverChoice,
    PolicyChoice,
    RouterChoice,
    check_arguments,
    connector_of,
    observer_of,
    policy_maker_of,
    router_of,
    together,
)
from tokenyard.sim.engines import ARRIVAL, HANGING_UP, SCALING, EngineGroup, EngineParts, Event, RankUse
from tokenyard.sim.executor import SimulatedSpeculation
from tokenyard.sim.extent import Extent, Unfinished, shown_progress
from tokenyard.sim.replay import prefill_seconds
from tokenyard.sim.replicas import Autoscaling
from tokenyard.sim.routers import Fleet
from tokenyard.sim.rows.rows import ReplayRows, RowsOfEngine
from tokenyard.sim.traffic import STEPS_PER_REPORT, OnProgress, RefusedRequest, Traffic, require_settled
from tokenyard.steptime.model import LatencyModel
from tokenyard.steptime.pace import VirtualClock
from tokenyard.workload.record import Workload, WorkloadRequest

__all__ = ["MOST_ENGINES", "ParallelResult", "RankUse", "replay_parallel"]

MOST_ENGINES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelResult(Unfinished):
    """What happened.

    ``num_finished + num_aborted + len(refused) + num_left_out``, and of a replay that ended before its workload
    ``len(unfinished) + num_not_arrived``, are the number of the workload's requests.
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
    rows: ReplayRows | None = None
    """Tables of requests, steps and waits of all engines, and the report, with ``rows=True``."""


def replay_parallel(
    workload: Workload,
    config: SchedulerConfig,
    cache_config: CacheConfig,
    latency: LatencyModel,
    router: RouterChoice,
    *,
    data_parallel_size: int,
    steps_together: bool = False,
    observer: ObserverChoice | Sequence[ObserverChoice] | None = None,
    observers: Sequence[ObserverChoice | None] | None = None,
    policy: PolicyChoice | None = None,
    policies: Sequence[PolicyChoice | None] | None = None,
    kv_transfer: ConnectorChoice | None = None,
    speculation: SimulatedSpeculation | None = None,
    autoscaling: Autoscaling | None = None,
    skip_refused: bool = False,
    on_progress: OnProgress | None = None,
    rows: bool = False,
    warmup: float = 0.0,
    until: float | None = None,
    progress: bool = False,
) -> ParallelResult:
    """Run the workload on ``data_parallel_size`` engines, each with a KV cache of its own.

    ``autoscaling``: of the engines there are at any moment as many as it says; they are its most.

    ``steps_together``: the ranks of a mixture of experts, which take every step with all others. ``router`` is a name,
    ``FILE.py:CLASS``, a class, an object, or a function that makes one (of the ``Fleet``, if it takes one).
    ``policy`` and ``observer`` are as for :func:`~tokenyard.sim.replay.replay`: a class or a function makes one for
    each engine, an object observes all of them. ``policies`` and ``observers`` are one for each engine. The rest is as
    for ``replay``, and with one engine so is everything that happens.

    Raises ConfigError for a router that fails or names no engine, RequestError as ``replay`` does.
    """
    check_arguments(workload, config, cache_config, latency)
    require_int("data_parallel_size", data_parallel_size, 1, MOST_ENGINES)
    extent, clock = Extent.of(warmup, until), VirtualClock()
    make_policy = policy_maker_of(policy, config)
    transfer = connector_of(kv_transfer)
    recorded: list[RowsOfEngine] = []

    def engine(rank: int) -> EngineParts:
        connector, transfers = transfer.make(cache_config, clock, latency) if transfer is not None else (None, None)
        own = policies[rank] if policies is not None else None
        decides = make_policy() if own is None else policy_maker_of(own, config)()
        apart = observers[rank] if observers is not None else None
        watching = [
            observer_of(observer, config, cache_config, engines=data_parallel_size, warmup=extent.warmup),
            observer_of(apart, config, cache_config, warmup=extent.warmup),
        ]
        if rows:
            recorded.append(RowsOfEngine(config, cache_config, warmup=extent.warmup, policy=decides))
            watching.insert(0, recorded[-1].observer)
        scheduler = Scheduler(
            config,
            cache_config,
            clock=clock.now,
            observer=together(watching),
            policy=decides,
            kv_connector=connector,
            speculative_config=speculation.config if speculation is not None else None,
            prefill_seconds=prefill_seconds(latency),
        )
        return EngineParts(scheduler, transfers)

    with shown_progress(on_progress, len(workload), shown=progress) as told:
        traffic = Traffic(workload, skip_refused=skip_refused, on_progress=told)
        group = EngineGroup(
            clock,
            latency,
            router_of(router, Fleet(data_parallel_size, steps_together, config.profile.vllm_version)),
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
        loop = _Loop(traffic, group, clock, extent)
        loop.run()
        return loop.result(ReplayRows(recorded, warmup=extent.warmup) if rows else None)


class _Loop:
    """State of one replay."""

    def __init__(self, traffic: Traffic, group: EngineGroup, clock: VirtualClock, extent: Extent) -> None:
        self._traffic = traffic
        self._group = group
        self._clock = clock
        self._extent = extent
        self._out_of_time = False

    def run(self) -> None:
        """Until nothing is left that could happen, or it is to end."""
        while not self._traffic.is_stopped and (event := self._next_event()) is not None:
            if not self._extent.reaches(event.moment, may_be_last=event.kind <= ARRIVAL):
                self._clock.advance_to(self._extent.until)
                self._out_of_time = True
                break
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

    def result(self, rows: ReplayRows | None) -> ParallelResult:
        """What happened."""
        traffic, group = self._traffic, self._group
        is_cut = self._out_of_time or traffic.is_stopped
        ended_by = self._extent.ended_by(traffic, out_of_time=self._out_of_time)
        traffic.report(self._clock.now(), *group.schedulers)
        if not is_cut:
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
            rows=rows,
            ended_by=ended_by,
            unfinished=traffic.unfinished,
            num_not_arrived=traffic.num_not_arrived,
        )
