"""Prefill on one engine or several, decode on as many others, all on one clock.

    arrival -> a prefill engine (one token) -> a decode engine (fetches the KV, answers) -> the next turn arrives

A request arrives at both with its own arrival time, so that the decode engine's latencies are those its client sees.
Each side takes its steps when it likes; whatever ends first happens first. A router of each side's own says which
engine gets a request; every prefill engine has a wire of its own, and what it sends goes through it in turn. The sides
may be of different sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tokenyard.connectors.prefill_decode import PrefillDecodeConnector
from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.request import Request
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import ConfigError, RequestError
from tokenyard.sim.choices import (
    ObserverChoice,
    PolicyChoice,
    RouterChoice,
    check_arguments,
    observer_of,
    policy_maker_of,
    router_of,
    together,
)
from tokenyard.sim.engines import ARRIVAL, EngineGroup, EngineParts, Event, RankUse
from tokenyard.sim.executor import WorkerTransfers
from tokenyard.sim.extent import Extent, Unfinished, shown_progress
from tokenyard.sim.replay import prefill_seconds
from tokenyard.sim.routers import Fleet, Router, VLLMBalancing
from tokenyard.sim.rows.rows import ReplayRows, RowsOfEngine
from tokenyard.sim.settings import ReplaySettings
from tokenyard.sim.traffic import (
    STEPS_PER_REPORT,
    OnProgress,
    RefusedRequest,
    Traffic,
    require_patience,
    require_settled,
)
from tokenyard.sim.transfers import DecodeTransfers, Link, PrefillTransfers
from tokenyard.steptime.model import LatencyModel
from tokenyard.steptime.pace import VirtualClock
from tokenyard.workload.record import Workload, WorkloadRequest

__all__ = ["EngineUse", "KVLink", "SplitResult", "replay_split"]


class KVLink(NamedTuple):
    """From a prefill engine's GPUs to those of decode engines."""

    bytes_per_block: int
    """Of one GPU."""
    gb_per_s: float
    """Of one GPU's share of the network."""

    def seconds_of(self, num_bytes: int) -> float:
        """To send so many bytes."""
        return num_bytes / (self.gb_per_s * 1e9)


class EngineUse(NamedTuple):
    """What one side did."""

    steps: int
    """Of all its engines."""
    busy_seconds: float
    """Of one engine, on average."""
    ranks: tuple[RankUse, ...]
    """What each of its engines did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitResult(Unfinished):
    """What happened.

    ``num_finished + len(refused) + num_left_out``, and of a replay that ended before its workload ``len(unfinished) +
    num_not_arrived``, are the number of the workload's requests.
    """

    seconds: float
    prefill: EngineUse
    decode: EngineUse
    num_finished: int
    refused: tuple[RefusedRequest, ...]
    num_left_out: int
    output_tokens: int
    kv_bytes: int
    """Sent from one GPU of every prefill engine, added up."""
    link_busy_seconds: float
    """Of the wire of one prefill engine, on average."""
    rows: ReplayRows | None = None
    """Tables of requests, steps and waits, and the report, with ``rows=True``. Engines are counted from the first that
    prefills to the last that decodes; requests are those of the decode engines, and those that did not get there."""


def replay_split(
    workload: Workload,
    config: SchedulerConfig,
    cache_config: CacheConfig,
    latency: LatencyModel,
    link: KVLink,
    *,
    fleet: Fleet | None = None,
    router: RouterChoice = VLLMBalancing,
    decode: ReplaySettings | None = None,
    observer: ObserverChoice | Sequence[ObserverChoice] | None = None,
    observers: tuple[Sequence[ObserverChoice | None], Sequence[ObserverChoice | None]] | None = None,
    policy: PolicyChoice | None = None,
    skip_refused: bool = False,
    on_progress: OnProgress | None = None,
    rows: bool = False,
    warmup: float = 0.0,
    until: float | None = None,
    progress: bool = False,
) -> SplitResult:
    """Run the workload on two fleets of engines of the same kind.

    ``fleet`` (one engine, if it is None) and ``router`` are of each side. ``decode``: scheduler, cache, latency, fleet
    and router of the decode engines, where they are others than those of the prefill engines; blocks are as large.
    ``observers`` watch the prefill engines and the decode engines, one each, ``observer`` all of them. ``policy`` and
    ``router`` are names, classes, or functions that make one: one is needed for each engine, and for each side. The
    rest is as for :func:`~tokenyard.sim.replay.replay`.

    RequestError for a request that cannot be served, unless ``skip_refused``.
    """
    check_arguments(workload, config, cache_config, latency)
    extent, clock = Extent.of(warmup, until), VirtualClock()
    require_patience(workload)
    prefill = ReplaySettings(config, cache_config, latency, fleet=fleet or Fleet(1), router=router)
    decode = prefill if decode is None else decode
    names = [f"prefill-{rank}" for rank in range(prefill.fleet.num_engines)]
    sources = {name: PrefillTransfers(clock.now, Link(link.seconds_of)) for name in names}
    targets = {
        f"decode-{rank}": DecodeTransfers(clock.now, link.bytes_per_block, sources)
        for rank in range(decode.fleet.num_engines)
    }

    if decode.router is prefill.router and isinstance(prefill.router, Router):
        name = type(prefill.router).__name__
        raise ConfigError("router", name, "each side needs one of its own: give the class, a function, or a name")
    num_engines = len(sources) + len(targets)
    recorded: list[RowsOfEngine] = []
    make_policy = None if policy is None else policy_maker_of(policy, config)

    def group(
        side: ReplaySettings, engines: Mapping[str, WorkerTransfers], watching: Sequence[ObserverChoice | None] | None
    ) -> EngineGroup:
        own_policy = policy_maker_of(None, side.scheduler) if make_policy is None else make_policy

        def engine(name: str, transfers: WorkerTransfers, apart: ObserverChoice | None) -> EngineParts:
            decides = own_policy()
            watchers = [
                observer_of(observer, side.scheduler, side.cache, engines=num_engines, warmup=extent.warmup),
                observer_of(apart, side.scheduler, side.cache, warmup=extent.warmup),
            ]
            if rows:
                recorded.append(RowsOfEngine(side.scheduler, side.cache, warmup=extent.warmup, policy=decides))
                watchers.insert(0, recorded[-1].observer)
            scheduler = Scheduler(
                side.scheduler,
                side.cache,
                clock=clock.now,
                observer=together(watchers),
                policy=decides,
                kv_connector=PrefillDecodeConnector(side.cache, name, clock.now),
                prefill_seconds=prefill_seconds(side.latency),
            )
            return EngineParts(scheduler, transfers)

        def refuse(error: RequestError, request: Request) -> None:
            traffic.refuse(clock.now(), error, request.request_id)

        watchers = watching if watching is not None else [None] * len(engines)
        return EngineGroup(
            clock,
            side.latency,
            router_of(side.router, side.fleet),
            [engine(*each, watcher) for each, watcher in zip(engines.items(), watchers, strict=True)],
            on_refused=refuse,
            steps_together=side.fleet.steps_together,
        )

    watched = observers or (None, None)
    with shown_progress(on_progress, len(workload), shown=progress) as told:
        traffic = Traffic(workload, skip_refused=skip_refused, on_progress=told)
        groups = group(prefill, sources, watched[0]), group(decode, targets, watched[1])
        loop = _Loop(traffic, *groups, clock, extent)
        loop.run()
        tables = ReplayRows(recorded, warmup=extent.warmup, leave_out=len(sources)) if rows else None
        return loop.result([source.link for source in sources.values()], tables)


class _Loop:
    """State of one replay."""

    def __init__(
        self, traffic: Traffic, prefill: EngineGroup, decode: EngineGroup, clock: VirtualClock, extent: Extent
    ) -> None:
        self._traffic = traffic
        self._extent = extent
        self._out_of_time = False
        self._prefill, self._decode = prefill, decode
        self._clock = clock
        self._here: dict[str, tuple[float, WorkloadRequest]] = {}
        """Requests being prefilled, with their arrivals."""

    def run(self) -> None:
        """Until nothing is left that could happen, or it is to end. At one moment the prefill engines act before the
        decode engines.
        """
        while not self._traffic.is_stopped and self._has_work:
            arrival = self._traffic.next_moment
            first, then = self._prefill.next_event, self._decode.next_event
            events = [event for event in (first, then) if event is not None]
            if arrival is not None:
                events.append(Event(max(arrival, self._clock.now()), ARRIVAL))
            if not events:
                return  # somebody waits for what never comes: result() says who
            event = min(events)
            if not self._extent.reaches(event.moment, may_be_last=event.kind <= ARRIVAL):
                self._clock.advance_to(self._extent.until)
                self._out_of_time = True
                return
            self._clock.advance_to(event.moment)
            if event.kind == ARRIVAL:
                for moment, request in self._traffic.due(self._clock.now()):
                    self._arrive(moment, request)
            elif event is first:
                self._prefilled(self._prefill.happen(event))
            else:
                self._decoded(self._decode.happen(event))

    @property
    def _has_work(self) -> bool:
        return self._traffic.next_moment is not None or self._prefill.has_work or self._decode.has_work

    def _arrive(self, moment: float, request: WorkloadRequest) -> None:
        try:
            longest = self._prefill.schedulers[0].config.max_model_len
            first = replace(request, max_tokens=1).arrive(moment, longest)
        except RequestError as error:
            self._traffic.refuse(moment, error, request.request_id)
            return
        first.kv_transfer_params = {"do_remote_decode": True}
        self._here[request.request_id] = moment, request
        self._prefill.send(moment, first)

    def _prefilled(self, outputs: EngineOutputs | None) -> None:
        """Prompts are computed: on to the other side with them."""
        for row in outputs.finish_reasons if outputs is not None else ():
            assert outputs is not None
            request_id = outputs.requests[row].request_id
            moment, request = self._here.pop(request_id)
            try:
                second = request.arrive(moment, self._decode.schedulers[0].config.max_model_len)
            except RequestError as error:
                self._traffic.refuse(self._clock.now(), error, request_id)
                continue
            second.kv_transfer_params = outputs.kv_transfer_params[request_id]
            self._decode.send(self._clock.now(), second)

    def _decoded(self, outputs: EngineOutputs | None) -> None:
        if outputs is None:
            return
        self._traffic.ended(outputs, self._clock.now())
        if outputs.step % STEPS_PER_REPORT == 0:
            self._traffic.report(self._clock.now(), *self._prefill.schedulers, *self._decode.schedulers)

    def result(self, links: Sequence[Link], rows: ReplayRows | None) -> SplitResult:
        """What happened."""
        traffic = self._traffic
        schedulers = *self._prefill.schedulers, *self._decode.schedulers
        is_cut = self._out_of_time or traffic.is_stopped
        ended_by = self._extent.ended_by(traffic, out_of_time=self._out_of_time)
        traffic.report(self._clock.now(), *schedulers)
        if not is_cut:
            for scheduler in schedulers:
                require_settled(scheduler)
            traffic.require_whole()
        return SplitResult(
            seconds=self._clock.now(),
            prefill=_use(self._prefill),
            decode=_use(self._decode),
            num_finished=traffic.num_finished,
            refused=tuple(traffic.refused),
            num_left_out=traffic.num_left_out,
            output_tokens=traffic.output_tokens,
            kv_bytes=sum(link.num_bytes for link in links),
            link_busy_seconds=sum(link.busy_seconds for link in links) / len(links),
            rows=rows,
            ended_by=ended_by,
            unfinished=traffic.unfinished,
            num_not_arrived=traffic.num_not_arrived,
        )


def _use(group: EngineGroup) -> EngineUse:
    uses = group.uses
    return EngineUse(sum(use.steps for use in uses), sum(use.busy_seconds for use in uses) / len(uses), uses)
