"""A workload through one scheduler on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.engine import EngineCore, StepFuture
from tokenyard.core.kv.hybrid_coordinator import hash_block_size
from tokenyard.core.request import Request
from tokenyard.core.sched.observer import StepObserver
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.policy import Policy, looks_at_tokens
from tokenyard.core.sched.request_checks import check_lengths
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import RequestError
from tokenyard.explain.report.report import ClientFigures
from tokenyard.sim.choices import (
    ConnectorChoice,
    ObserverChoice,
    PolicyChoice,
    check_arguments,
    connector_of,
    observer_of,
    policy_maker_of,
)
from tokenyard.sim.executor import SimulatedExecutor, SimulatedSpeculation, SimulatedStep, WorkerTransfers, executor_for
from tokenyard.sim.extent import Extent, Unfinished, shown_progress
from tokenyard.sim.numbering import NumberedBlocks, blank_tokens
from tokenyard.sim.rows.rows import ReplayRows, RowsOfEngine
from tokenyard.sim.traffic import STEPS_PER_REPORT, OnProgress, Progress, RefusedRequest, Traffic, require_settled
from tokenyard.steptime.model import LatencyModel, StepShape, step_seconds
from tokenyard.steptime.pace import MachineSpeed, PacedLatency, VirtualClock
from tokenyard.workload.record import Workload, WorkloadRequest

__all__ = ["ClockedEngine", "Progress", "RefusedRequest", "ReplayResult", "prefill_seconds", "replay"]


# ---------------------------------------------------------------------------------------------------------------------
# An engine core on a virtual clock that it shares with others.


class ClockedEngine:
    """It never waits, and says when it wants to be called: whatever ends first, of all engines, happens first."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: SimulatedExecutor,
        clock: VirtualClock,
        transfers: WorkerTransfers | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.core = EngineCore(scheduler, executor)
        self._clock = clock
        self._transfers = transfers
        self._executor = executor
        self._is_due = False
        """The oldest step in flight has to be taken in before anything else."""
        self._slept_at = 0.0

    def add(self, request: Request) -> None:
        """Queue a request now. Raises RequestError if it can never be served."""
        self.core.add_request(request)
        self._executor.num_empty_steps = 0

    @property
    def busy_seconds(self) -> float:
        """Time in steps, until now."""
        return self._executor.busy_before(self._clock.now())

    @property
    def is_due(self) -> bool:
        """Whether the next thing that it does is to take in a step."""
        return self._is_due

    @property
    def next_moment(self) -> float | None:
        """When it does something by itself; None: only when somebody adds a request."""
        if self._is_due:
            oldest = self.core.oldest
            assert isinstance(oldest, SimulatedStep)
            return oldest.ends_at
        if not self.scheduler.has_requests():
            return self._clock.now() if self.core.num_in_flight else None
        if not self._executor.is_idle:
            return self._clock.now()
        moments = (
            self._transfers.next_moment if self._transfers is not None else None,
            self.scheduler.next_moment(self._slept_at),
        )
        return min((moment for moment in moments if moment is not None), default=None)

    def act(self) -> EngineOutputs | None:
        """Take in the step that is due, if it is over, or begin one; what a step brought."""
        if self._is_due:
            return self._take_in()
        self._begin()
        return None

    def _take_in(self) -> EngineOutputs:
        core, executor = self.core, self._executor
        step = core.oldest
        outputs = core.take_in()
        if executor.is_idle:
            executor.taken_in(step, core.depth)
        self._is_due = executor.is_idle and core.num_in_flight > 0
        return outputs

    def _begin(self) -> None:
        if self._executor.is_idle:
            self._executor.num_empty_steps = 0
        self._slept_at = self._clock.now()
        self._is_due = self.core.fill()


# ---------------------------------------------------------------------------------------------------------------------
# How long a prompt takes to compute, by a latency model: what policies that weigh recomputing want to know.


def prefill_seconds(latency: LatencyModel) -> Callable[[int], float]:
    """Seconds of one step that computes a prompt of so many tokens, alone and whole."""

    def seconds(num_tokens: int) -> float:
        return step_seconds(latency, StepShape(np.array([num_tokens]), np.array([0]), 1, num_tokens))

    return seconds


# ---------------------------------------------------------------------------------------------------------------------
# A workload through the scheduler on a virtual clock.
#
#     while there is work:   arrivals that are due  ->  one step of the engine core, which lets its time pass
#
# A step decides on what has arrived when it is scheduled; what arrives while it runs is seen by the next one.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult(Unfinished):
    """What happened.

    ``num_finished + num_aborted + len(refused) + num_left_out``, and of a replay that ended before its workload
    ``len(unfinished) + num_not_arrived``, are the number of the workload's requests.
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
    rows: ReplayRows | None = None
    """Tables of requests, steps and waits, and the report, with ``rows=True``."""


def replay(
    workload: Workload,
    config: SchedulerConfig,
    cache_config: CacheConfig,
    latency: LatencyModel,
    *,
    pace: MachineSpeed | None = None,
    observer: ObserverChoice | Sequence[ObserverChoice] | None = None,
    policy: PolicyChoice | None = None,
    kv_transfer: ConnectorChoice | None = None,
    speculation: SimulatedSpeculation | None = None,
    skip_refused: bool = False,
    on_progress: OnProgress | None = None,
    leaps: bool = True,
    rows: bool = False,
    warmup: float = 0.0,
    until: float | None = None,
    progress: bool = False,
) -> ReplayResult:
    """Run the workload; with ``kv_transfer`` on an engine that keeps KV elsewhere, too.

    ``policy`` (default: the one that ``config`` names) is a registered name, ``FILE.py:CLASS``, a class, an object, or
    a function that makes one; ``observer`` an object, a class, a function that makes one, a ``ReportBuilder``, or a
    list of them; ``kv_transfer`` a ``KVTransfer``, anything with its ``make``, or a function with the arguments of
    ``make``.

    ``rows``: the result has tables of requests, steps and waits. ``warmup``: requests that arrive in the first so many
    seconds of virtual time count neither there nor in a ``ReportBuilder``; they are replayed, and other observers see
    them. ``until``: the replay ends at so many seconds of virtual time, and the result names what is unfinished then;
    it also ends when ``on_progress``, which is called every 256 steps or so, returns ``"stop"``. ``progress`` shows a
    line on standard error.

    With ``config.pipeline_parallel_size`` above 1 several steps are in flight, each in another stage; a step's time is
    that of all stages together.

    ``pace``: the machine is slower than ``latency`` at some moments and faster at others.

    ``speculation`` proposes drafts after every step and says how many are right; making them takes no time. With
    ``config.async_scheduling`` two steps are in flight: the host's part of a step passes while the GPU computes.

    A request that can never be served (longer than ``max_model_len`` or than the pool) raises its RequestError before
    the first step; with ``skip_refused`` it is counted, and the turns after it are left out with it. ConfigError for
    arguments that are something else, or in another order.

    Steps that decide alike are taken in one stroke, and token ids and hashes are made only where somebody looks at
    them (``reads_tokens`` of the observer and the policy); without ``leaps`` steps are taken one by one and everything
    is made, which gives the same.
    """
    check_arguments(workload, config, cache_config, latency)
    extent, clock = Extent.of(warmup, until), VirtualClock()
    if pace is not None:
        latency = PacedLatency(latency, pace, clock)
    decides = policy_maker_of(policy, config)()
    watch = observer_of(observer, config, cache_config, warmup=extent.warmup)
    recorded = RowsOfEngine(config, cache_config, warmup=extent.warmup, policy=decides) if rows else None
    watch = watch if recorded is None else recorded.beside(watch)
    blocks = None
    if leaps and kv_transfer is None and speculation is None and _nobody_looks(cache_config, watch, decides):
        size = hash_block_size(cache_config)
        blocks = NumberedBlocks(workload, size) if NumberedBlocks.knows(workload, size) else None
    transfer = connector_of(kv_transfer)
    connector, transfers = transfer.make(cache_config, clock, latency) if transfer is not None else (None, None)
    scheduler = Scheduler(
        config,
        cache_config,
        clock=clock.now,
        observer=watch,
        policy=decides,
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
    with shown_progress(on_progress, len(workload), shown=progress) as told:
        traffic = Traffic(workload, skip_refused=skip_refused, on_progress=told)
        loop = _Loop(traffic, core, executor, clock, transfers, extent, leaps=leaps, blank=blocks is not None)
        loop.run()
        return loop.result(None if recorded is None else ReplayRows([recorded], warmup=extent.warmup))


def _nobody_looks(cache_config: CacheConfig, observer: StepObserver | None, policy: Policy) -> bool:
    """Whether token ids and hashes of blocks decide nothing but which blocks are equal."""
    watched = observer is not None and observer.reads_tokens
    return not watched and not cache_config.enable_kv_cache_events and not looks_at_tokens(policy)


class _Loop:
    """State of one replay."""

    def __init__(
        self,
        traffic: Traffic,
        core: EngineCore,
        executor: SimulatedExecutor,
        clock: VirtualClock,
        transfers: WorkerTransfers | None,
        extent: Extent,
        *,
        leaps: bool,
        blank: bool,
    ) -> None:
        """``blank``: prompts need no tokens."""
        self._leaps = leaps
        self._extent = extent
        self._out_of_time = False
        self._blank = blank
        self._report_at = 0
        self._traffic = traffic
        self._core = core
        self._scheduler = core.scheduler
        self._executor = executor
        self._max_model_len = core.scheduler.config.max_model_len
        self._clock = clock
        self._transfers = transfers

    def run(self) -> None:
        """Until nothing is left that could happen, or it is to end."""
        clock, traffic = self._clock, self._traffic
        while not traffic.is_stopped and not self._ends_at(clock.now()):
            for moment, request in traffic.due(clock.now()):
                self._arrive(moment, request)
            self._abort(traffic.leaving(clock.now()))
            if self._acts():
                continue
            moment_next = self._next_moment()
            if moment_next is None:
                break
            clock.advance_to(min(moment_next, self._extent.until))
            self._executor.num_empty_steps = 0
        if self._out_of_time:
            for moment, request in traffic.due(clock.now()):  # while the last step ran
                self._arrive(moment, request)

    def _acts(self) -> bool:
        """Take in a step, or begin one; False: nothing can be done at this moment."""
        core, executor = self._core, self._executor
        step = core.oldest
        if executor.is_idle:
            if not core.num_in_flight:
                return False
        else:
            if self._leaps:
                executor.runs_until = min(self._traffic.next_event, self._extent.until)
            if not core.fill():
                return core.num_in_flight > 0  # a further step can be scheduled before this one ends
            core.run_ahead()
        if not self._goes_beyond(core.oldest):
            self._took_in(core.take_in())
            if executor.is_idle:  # what came in may have changed that
                executor.taken_in(step, core.depth)
        return True

    def _ends_at(self, now: float) -> bool:
        """Whether the replay's time is over."""
        self._out_of_time = self._out_of_time or now >= self._extent.until
        return self._out_of_time

    def _goes_beyond(self, step: StepFuture | None) -> bool:
        """Whether the oldest step in flight ends after the replay: the clock stands at its end then."""
        if isinstance(step, SimulatedStep) and step.ends_at > self._extent.until:
            self._clock.advance_to(self._extent.until)
            self._out_of_time = True
        return self._out_of_time

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

    def result(self, rows: ReplayRows | None) -> ReplayResult:
        """What happened."""
        traffic, scheduler = self._traffic, self._scheduler
        is_cut = self._out_of_time or traffic.is_stopped
        ended_by = self._extent.ended_by(traffic, out_of_time=self._out_of_time)
        traffic.report(self._clock.now(), scheduler)
        if not is_cut:
            require_settled(scheduler)
            traffic.require_whole()
        return ReplayResult(
            steps=scheduler.step,
            seconds=self._clock.now(),
            busy_seconds=self._executor.busy_before(self._clock.now()),
            num_finished=traffic.num_finished,
            refused=tuple(traffic.refused),
            num_left_out=traffic.num_left_out,
            output_tokens=traffic.output_tokens,
            num_aborted=traffic.num_aborted,
            clients=traffic.clients,
            rows=rows,
            ended_by=ended_by,
            unfinished=traffic.unfinished,
            num_not_arrived=traffic.num_not_arrived,
        )
