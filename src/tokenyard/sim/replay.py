"""A workload through the scheduler on a virtual clock.

    while there is work:   arrivals that are due  ->  one step of the engine core, which lets its time pass

A step decides on what has arrived when it is scheduled; what arrives while it runs is seen by the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.engine.core import EngineCore
from tokenyard.errors import RequestError
from tokenyard.explain.report.clients import ClientFigures
from tokenyard.kv.hybrid_coordinator import hash_block_size
from tokenyard.sched.observer import StepObserver
from tokenyard.sched.policy import FCFS, Policy, Priority, make_policy
from tokenyard.sched.request_checks import check_lengths
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sim.arguments import check_arguments
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.executor import SimulatedExecutor, WorkerTransfers
from tokenyard.sim.latency.model import LatencyModel
from tokenyard.sim.latency.pace import Pace, PacedLatency
from tokenyard.sim.numbering import NumberedBlocks, blank_tokens
from tokenyard.sim.pipeline import executor_for
from tokenyard.sim.prefill import prefill_seconds
from tokenyard.sim.traffic import STEPS_PER_REPORT, Progress, RefusedRequest, Traffic, require_settled
from tokenyard.sim.transfers.offload import KVTransfer
from tokenyard.sim.workload.record import Workload, WorkloadRequest

__all__ = ["Progress", "RefusedRequest", "ReplayResult", "replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What happened.

    ``num_finished + num_aborted + len(refused) + num_left_out`` is the number of the workload's requests.
    """

    steps: int
    """Steps that were decided."""
    seconds: float
    """Virtual time from 0 to the end of the last step."""
    busy_seconds: float
    """Of it, time in steps."""
    num_finished: int
    """Requests that ran to their end."""
    refused: tuple[RefusedRequest, ...]
    """Requests that can never be served, with ``skip_refused``."""
    num_left_out: int
    """Turns after a refused one: their session ended with it."""
    output_tokens: int
    """Tokens sampled."""
    num_aborted: int = 0
    """Requests whose clients went away before their end."""
    clients: ClientFigures | None = None
    """Of a workload whose clients ask again."""


def replay(
    workload: Workload,
    config: SchedulerConfig,
    cache_config: CacheConfig,
    latency: LatencyModel,
    *,
    pace: Pace | None = None,
    observer: StepObserver | None = None,
    policy: Policy | None = None,
    kv_transfer: KVTransfer | None = None,
    speculation: SimulatedSpeculation | None = None,
    skip_refused: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    leaps: bool = True,
) -> ReplayResult:
    """Run the whole workload; with ``kv_transfer`` on an engine that keeps KV elsewhere, too.

    With ``config.pipeline_parallel_size`` above 1 several steps are in flight, each in another stage; a step's time is
    that of all stages together.

    ``pace``: the machine is slower than ``latency`` at some moments and faster at others.

    ``speculation`` proposes drafts after every step and says how many are right; making them takes no time. With
    ``config.async_scheduling`` two steps are in flight: the host's part of a step passes while the GPU computes.

    A request that can never be served (longer than ``max_model_len`` or than the pool) raises its RequestError before
    the first step; with ``skip_refused`` it is counted, and the turns after it are left out with it. ConfigError for
    arguments that are something else, or in another order.

    Steps that decide alike are taken in one stroke, and token ids and hashes are made only where somebody looks at
    them; without ``leaps`` steps are taken one by one and everything is made, which gives the same.
    """
    check_arguments(workload, config, cache_config, latency)
    clock = VirtualClock()
    if pace is not None:
        latency = PacedLatency(latency, pace, clock)
    policy = make_policy(config.policy) if policy is None else policy
    blocks = None
    if leaps and kv_transfer is None and speculation is None and _nobody_looks(cache_config, observer, policy):
        size = hash_block_size(cache_config)
        blocks = NumberedBlocks(workload, size) if NumberedBlocks.knows(workload, size) else None
    connector, transfers = kv_transfer.make(cache_config, clock, latency) if kv_transfer is not None else (None, None)
    scheduler = Scheduler(
        config,
        cache_config,
        clock=clock.now,
        observer=observer,
        policy=policy,
        kv_connector=connector,
        speculative_config=speculation.config if speculation is not None else None,
        prefill_seconds=prefill_seconds(latency),
        block_hasher=blocks,
    )
    if not skip_refused:
        for request in workload:
            check_lengths(request.request_id, len(request.prompt), request.max_tokens, config=config, kv=scheduler.kv)
    executor = executor_for(
        clock,
        latency,
        config,
        transfers=transfers,
        speculation=speculation,
        silent=blocks is not None,
    )
    core = EngineCore(scheduler, executor)
    traffic = Traffic(workload, skip_refused=skip_refused, on_progress=on_progress)
    return _Loop(traffic, core, executor, clock, transfers, leaps=leaps, blank=blocks is not None).run()


def _nobody_looks(cache_config: CacheConfig, observer: StepObserver | None, policy: Policy) -> bool:
    """Whether token ids and hashes of blocks decide nothing but which blocks are equal."""
    watched = observer is not None and observer.reads_tokens
    return not watched and not cache_config.enable_kv_cache_events and type(policy) in (Policy, FCFS, Priority)


class _Loop:
    """State of one replay."""

    def __init__(
        self,
        traffic: Traffic,
        core: EngineCore,
        executor: SimulatedExecutor,
        clock: VirtualClock,
        transfers: WorkerTransfers | None,
        *,
        leaps: bool,
        blank: bool,
    ) -> None:
        """``blank``: prompts need no tokens."""
        self._leaps = leaps
        self._blank = blank
        self._report_at = 0
        self._traffic = traffic
        self._core = core
        self._scheduler = core.scheduler
        self._executor = executor
        self._max_model_len = core.scheduler.config.max_model_len
        self._clock = clock
        self._transfers = transfers

    def run(self) -> ReplayResult:
        core, executor, clock, traffic = self._core, self._executor, self._clock, self._traffic
        while True:
            for moment, request in traffic.due(clock.now()):
                self._arrive(moment, request)
            self._abort(traffic.leaving(clock.now()))
            if executor.is_idle and core.num_in_flight:
                step = core.oldest
                self._took_in(core.take_in())
                executor.taken_in(step, core.depth)
                continue
            if not executor.is_idle:
                step = core.oldest
                if self._leaps:
                    executor.runs_until = traffic.next_event
                outputs = core.step()
                if outputs is not None:
                    self._took_in(outputs)
                    if executor.is_idle:  # what came in may have changed that
                        executor.taken_in(step, core.depth)
                    continue
                if core.num_in_flight:
                    continue  # a further step can be scheduled before this one ends
            moment_next = self._next_moment()
            if moment_next is None:
                break
            clock.advance_to(moment_next)
            executor.num_empty_steps = 0
        return self._result()

    def _next_moment(self) -> float | None:
        """When something happens by itself: an arrival and, if somebody waits, the end of a transfer or of a pin."""
        moments = [self._traffic.next_moment]
        if self._scheduler.has_requests():
            moments.append(self._traffic.next_abort)
            moments.append(self._scheduler.next_moment(self._clock.now()))
            if self._transfers is not None:
                moments.append(self._transfers.next_moment)
        return min((moment for moment in moments if moment is not None), default=None)

    def _arrive(self, moment: float, request: WorkloadRequest) -> None:
        try:
            length = request.num_prompt_tokens
            tokens = blank_tokens(length) if self._blank and length < self._max_model_len else None
            self._core.add_request(request.arrive(moment, self._max_model_len, tokens=tokens))
        except RequestError as error:
            self._traffic.refuse(moment, error, request.request_id)

    def _abort(self, request_ids: list[str]) -> None:
        """Clients have gone away: those of their requests that have not ended do now."""
        aborted = self._core.abort_requests(request_ids) if request_ids else []
        if aborted:
            self._traffic.aborted(aborted, self._clock.now())
            self._executor.num_empty_steps = 0

    def _took_in(self, outputs: EngineOutputs) -> None:
        if outputs.finish_reasons:
            self._traffic.ended(outputs, self._clock.now())
        if outputs.step >= self._report_at:
            self._report_at = outputs.step + STEPS_PER_REPORT
            self._traffic.report(self._clock.now(), self._scheduler)

    def _result(self) -> ReplayResult:
        traffic, scheduler = self._traffic, self._scheduler
        traffic.report(self._clock.now(), scheduler)
        require_settled(scheduler)
        traffic.require_whole()
        return ReplayResult(
            steps=scheduler.step,
            seconds=self._clock.now(),
            busy_seconds=self._executor.busy_seconds,
            num_finished=traffic.num_finished,
            refused=tuple(traffic.refused),
            num_left_out=traffic.num_left_out,
            output_tokens=traffic.output_tokens,
            num_aborted=traffic.num_aborted,
            clients=traffic.clients,
        )
