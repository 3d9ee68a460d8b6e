"""Prefill on one engine, decode on another, both on one clock.

    arrival -> prefill engine (one token) -> decode engine (fetches the KV, answers) -> the next turn arrives

A request arrives at both with its own arrival time, so that the decode engine's latencies are those its client sees.
Each engine takes its steps when it likes; whatever ends first happens first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.connectors.prefill_decode import PrefillDecodeConnector
from tokenyard.errors import RequestError
from tokenyard.sched.observer import StepObserver
from tokenyard.sched.policy import Policy
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.engine import ClockedEngine
from tokenyard.sim.executor import SimulatedExecutor, WorkerTransfers
from tokenyard.sim.latency.model import LatencyModel
from tokenyard.sim.prefill import prefill_seconds
from tokenyard.sim.traffic import STEPS_PER_REPORT, Progress, RefusedRequest, Traffic, require_settled
from tokenyard.sim.transfers.link import Link
from tokenyard.sim.transfers.prefill_decode import DecodeTransfers, PrefillTransfers
from tokenyard.sim.workload.record import Workload, WorkloadRequest

__all__ = ["EngineUse", "KVLink", "SplitResult", "replay_split"]


class KVLink(NamedTuple):
    """From the prefill engine's GPUs to the decode engine's."""

    bytes_per_block: int
    """Of one GPU."""
    gb_per_s: float
    """Of one GPU's share of the network."""


class EngineUse(NamedTuple):
    """What one of the two did."""

    steps: int
    busy_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitResult:
    """What happened. ``num_finished + len(refused) + num_left_out`` is the number of the workload's requests."""

    seconds: float
    prefill: EngineUse
    decode: EngineUse
    num_finished: int
    refused: tuple[RefusedRequest, ...]
    num_left_out: int
    output_tokens: int
    kv_bytes: int
    """Sent from one GPU of the prefill engine."""
    link_busy_seconds: float


def replay_split(
    workload: Workload,
    config: SchedulerConfig,
    cache_config: CacheConfig,
    latency: LatencyModel,
    link: KVLink,
    *,
    observers: tuple[StepObserver | None, StepObserver | None] = (None, None),
    policies: tuple[Policy | None, Policy | None] = (None, None),
    skip_refused: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> SplitResult:
    """Run the whole workload on two engines of the same kind; ``observers`` watch the prefill and the decode engine.

    ``policies`` are theirs, in place of the one that ``config`` names.

    RequestError for a request that cannot be served, unless ``skip_refused``.
    """
    clock = VirtualClock()
    wire = Link(lambda num_bytes: num_bytes / (link.gb_per_s * 1e9))
    source = PrefillTransfers(clock.now)
    target = DecodeTransfers(clock.now, wire, link.bytes_per_block, source)
    names: tuple[tuple[str, WorkerTransfers], tuple[str, WorkerTransfers]] = (("prefill", source), ("decode", target))
    engines = []
    for (name, transfers), observer, policy in zip(names, observers, policies, strict=True):
        connector = PrefillDecodeConnector(cache_config, name, clock.now)
        scheduler = Scheduler(
            config,
            cache_config,
            clock=clock.now,
            observer=observer,
            policy=policy,
            kv_connector=connector,
            prefill_seconds=prefill_seconds(latency),
        )
        executor = SimulatedExecutor(clock, latency, transfers=transfers)
        engines.append(ClockedEngine(scheduler, executor, clock, transfers))
    traffic = Traffic(workload, skip_refused=skip_refused, on_progress=on_progress)
    loop = _Loop(traffic, engines[0], engines[1], clock)
    loop.run()
    return loop.result(wire)


class _Loop:
    """State of one replay."""

    def __init__(self, traffic: Traffic, prefill: ClockedEngine, decode: ClockedEngine, clock: VirtualClock) -> None:
        self._traffic = traffic
        self._prefill, self._decode = prefill, decode
        self._clock = clock
        self._here: dict[str, tuple[float, WorkloadRequest]] = {}
        """Requests being prefilled, with their arrivals."""

    def run(self) -> None:
        """Until nothing is left that could happen."""
        clock = self._clock
        while True:
            for moment, request in self._traffic.due(clock.now()):
                self._arrive(moment, request)
            moments = [(self._traffic.next_moment, 2), (self._prefill.next_moment, 0), (self._decode.next_moment, 1)]
            known = [(moment, who) for moment, who in moments if moment is not None]
            if not known:
                return
            moment, who = min(known)
            clock.advance_to(moment)
            if who == 0:
                self._prefilled(self._prefill.act())
            elif who == 1:
                self._decoded(self._decode.act())

    def _arrive(self, moment: float, request: WorkloadRequest) -> None:
        limit = self._prefill.scheduler.config.max_model_len
        try:
            first = replace(request, max_tokens=1).arrive(moment, limit)
            first.kv_transfer_params = {"do_remote_decode": True}
            self._prefill.add(first)
            self._here[request.request_id] = moment, request
        except RequestError as error:
            self._traffic.refuse(moment, error, request.request_id)

    def _prefilled(self, outputs: EngineOutputs | None) -> None:
        """Prompts are computed: on to the other engine with them."""
        for row in outputs.finish_reasons if outputs is not None else ():
            assert outputs is not None
            request_id = outputs.requests[row].request_id
            moment, request = self._here.pop(request_id)
            try:
                second = request.arrive(moment, self._decode.scheduler.config.max_model_len)
                second.kv_transfer_params = outputs.kv_transfer_params[request_id]
                self._decode.add(second)
            except RequestError as error:
                self._traffic.refuse(self._clock.now(), error, request_id)

    def _decoded(self, outputs: EngineOutputs | None) -> None:
        if outputs is None:
            return
        self._traffic.ended(outputs, self._clock.now())
        if outputs.step % STEPS_PER_REPORT == 0:
            self._traffic.report(self._clock.now(), self._prefill.scheduler, self._decode.scheduler)

    def result(self, wire: Link) -> SplitResult:
        """What happened, once nothing is left."""
        traffic = self._traffic
        schedulers = self._prefill.scheduler, self._decode.scheduler
        traffic.report(self._clock.now(), *schedulers)
        for scheduler in schedulers:
            require_settled(scheduler)
        traffic.require_whole()
        return SplitResult(
            seconds=self._clock.now(),
            prefill=EngineUse(self._prefill.scheduler.step, self._prefill.busy_seconds),
            decode=EngineUse(self._decode.scheduler.step, self._decode.busy_seconds),
            num_finished=traffic.num_finished,
            refused=tuple(traffic.refused),
            num_left_out=traffic.num_left_out,
            output_tokens=traffic.output_tokens,
            kv_bytes=wire.num_bytes,
            link_busy_seconds=wire.busy_seconds,
        )
