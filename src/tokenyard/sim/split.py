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
from tokenyard.engine.core import EngineCore
from tokenyard.errors import RequestError
from tokenyard.request import Request
from tokenyard.sched.observer import StepObserver
from tokenyard.sched.policy import Policy
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sim.arrivals import ArrivalQueue
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.executor import SimulatedExecutor, SimulatedStep, WorkerTransfers
from tokenyard.sim.latency.model import LatencyModel
from tokenyard.sim.prefill import prefill_seconds
from tokenyard.sim.replay import EMPTY_STEPS, STEPS_PER_REPORT, Progress, RefusedRequest
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
        engines.append(_Engine(scheduler, clock, latency, transfers))
    loop = _Loop(workload, engines[0], engines[1], clock, skip_refused=skip_refused, on_progress=on_progress)
    loop.run()
    return loop.result(wire)


class _Engine:
    """An engine core on a clock that it shares: it never waits, and says when it wants to be called."""

    def __init__(
        self, scheduler: Scheduler, clock: VirtualClock, latency: LatencyModel, transfers: WorkerTransfers
    ) -> None:
        self.scheduler = scheduler
        self._clock = clock
        self._transfers = transfers
        self._executor = SimulatedExecutor(clock, latency, transfers=transfers)
        self._core = EngineCore(scheduler, self._executor)
        self._is_due = False
        """The oldest step in flight has to be taken in before anything else."""
        self._is_draining = False
        """It is due because nothing can be scheduled, not because enough is in flight."""
        self._slept_at = 0.0

    def add(self, request: Request) -> None:
        self._core.add_request(request)
        self._executor.num_empty_steps = 0

    @property
    def busy_seconds(self) -> float:
        """Time in steps."""
        return self._executor.busy_seconds

    @property
    def next_moment(self) -> float | None:
        """When it does something by itself; None: only when somebody adds a request."""
        if self._is_due:
            oldest = self._core.oldest
            assert isinstance(oldest, SimulatedStep)
            return oldest.ends_at
        if not self.scheduler.has_requests():
            return self._clock.now() if self._core.num_in_flight else None
        if self._executor.num_empty_steps < EMPTY_STEPS:
            return self._clock.now()
        moments = (self._transfers.next_moment, self.scheduler.next_moment(self._slept_at))
        return min((moment for moment in moments if moment is not None), default=None)

    def act(self) -> EngineOutputs | None:
        """Take in the step that is due, if it is over, or begin one; what a step brought."""
        core, executor = self._core, self._executor
        if self._is_due:
            outputs = core.take_in()
            if self._is_draining:
                executor.num_empty_steps -= 1  # another step sees what this one has brought
            self._is_due = self._is_draining = executor.num_empty_steps >= EMPTY_STEPS and core.num_in_flight > 0
            return outputs
        if executor.num_empty_steps >= EMPTY_STEPS:
            executor.num_empty_steps = 0
        self._slept_at = self._clock.now()
        self._is_due = core.fill()
        return None


class _Loop:
    """State of one replay."""

    def __init__(
        self,
        workload: Workload,
        prefill: _Engine,
        decode: _Engine,
        clock: VirtualClock,
        *,
        skip_refused: bool,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._prefill, self._decode = prefill, decode
        self._clock = clock
        self._skip_refused = skip_refused
        self._on_progress = on_progress
        self._arrivals = ArrivalQueue(workload)
        self._num_requests = len(workload)
        self._here: dict[str, tuple[float, WorkloadRequest]] = {}
        """Requests being prefilled, with their arrivals."""
        self._refused: list[RefusedRequest] = []
        self._num_finished = self._output_tokens = 0

    def run(self) -> None:
        """Until nothing is left that could happen."""
        clock = self._clock
        while True:
            for moment, request in self._arrivals.due(clock.now()):
                self._arrive(moment, request)
            moments = [(self._arrivals.next_moment, 2), (self._prefill.next_moment, 0), (self._decode.next_moment, 1)]
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
            self._refuse(moment, request, error)

    def _refuse(self, now: float, request: WorkloadRequest, error: RequestError) -> None:
        if not self._skip_refused:
            raise error
        self._refused.append(RefusedRequest(request.request_id, str(error)))
        self._arrivals.refused(request.request_id, now=now)

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
                self._refuse(self._clock.now(), request, error)

    def _decoded(self, outputs: EngineOutputs | None) -> None:
        if outputs is None:
            return
        now = self._clock.now()
        for row in outputs.finish_reasons:
            request = outputs.requests[row]
            self._num_finished += 1
            self._output_tokens += request.num_output_tokens
            self._arrivals.ended(request.request_id, arrived=request.arrival_time, now=now)
        if outputs.step % STEPS_PER_REPORT == 0:
            self._report()

    def _report(self) -> None:
        if self._on_progress is not None:
            counts = [engine.scheduler.get_request_counts() for engine in (self._prefill, self._decode)]
            running, waiting = (sum(each) for each in zip(*counts, strict=True))
            done = self._num_finished + len(self._refused) + self._arrivals.num_left_out
            steps = self._prefill.scheduler.step + self._decode.scheduler.step
            self._on_progress(Progress(steps, self._clock.now(), done, running, waiting))

    def result(self, wire: Link) -> SplitResult:
        """What happened, once nothing is left."""
        self._report()
        left_out = self._arrivals.num_left_out
        for engine in (self._prefill, self._decode):
            scheduler = engine.scheduler
            assert scheduler.get_request_counts() == (0, 0), "an engine stalled with requests in its queues"
            scheduler.pins.clear()
            assert scheduler.num_free_blocks == scheduler.num_total_blocks - 1, "a block is held by nobody"
        assert self._num_finished + len(self._refused) + left_out == self._num_requests, "a request was lost"
        return SplitResult(
            seconds=self._clock.now(),
            prefill=EngineUse(self._prefill.scheduler.step, self._prefill.busy_seconds),
            decode=EngineUse(self._decode.scheduler.step, self._decode.busy_seconds),
            num_finished=self._num_finished,
            refused=tuple(self._refused),
            num_left_out=left_out,
            output_tokens=self._output_tokens,
            kv_bytes=wire.num_bytes,
            link_busy_seconds=wire.busy_seconds,
        )
