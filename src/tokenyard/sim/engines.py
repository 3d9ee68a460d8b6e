"""Engines on one clock: a rank, and ranks that step together."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Protocol

import msgspec

from tokenyard.core.engine import EngineCore
from tokenyard.core.request import BlockHash, Request, RequestStatus
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import RejectedError, RequestError
from tokenyard.sim.executor import (
    SimulatedExecutor,
    SimulatedModel,
    SimulatedSpeculation,
    SimulatedStep,
    StepEnd,
    WorkerTransfers,
)
from tokenyard.sim.routers import EngineReport
from tokenyard.sim.traffic import STEPS_PER_REPORT
from tokenyard.steptime.model import LatencyModel, StepShape, host_seconds, ranks_seconds
from tokenyard.steptime.pace import VirtualClock

# ---------------------------------------------------------------------------------------------------------------------
# Ranks that step together: those of a mixture of experts, whose experts are shared out over all of them.
#
#     rank 0   | step ........... | step .....        |         A step ends for all when the slowest is done; who
#     rank 1   | step .....       | step ............ |         has nothing to compute takes part with a dummy batch.
#     rank 2   | dummy            | step ...          |
#
# They do so in waves: from the first request until none has one, which they ask each other every 32 steps. Facts of
# vLLM's ``DPEngineCoreProc``.

STEPS_BETWEEN_QUESTIONS = 32
"""Steps after which the ranks ask each other whether one of them has requests left."""


class _Round(StepEnd):
    """One step of all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.ready_at = self.waits = 0.0
        """When the last host is ready, and how long devices wait for transfers besides."""
        self.shapes: list[StepShape | None] = []
        """What each rank computes; None: nothing for a request."""
        self.computing: list[tuple[LockstepExecutor, float]] = []
        """The ranks that have requests in it, and since when."""


class Lockstep:
    """The steps that all ranks take together."""

    def __init__(self, num_ranks: int, latency: LatencyModel) -> None:
        self._num_ranks = num_ranks
        self._latency = latency
        self._rounds: deque[_Round] = deque()
        """Rounds that some rank has begun, and not all."""
        self._settled = 0
        """Rounds of this wave that all ranks have begun."""
        self._ended_at = 0.0
        """The last of them."""
        self._begun: list[int] = [0] * num_ranks
        """Rounds of this wave that each rank has begun."""
        self._asked = 0
        """The round after which the ranks have asked each other last."""
        self.wave = 0
        """Number of the wave that runs, or comes next."""
        self.is_running = False

    def start(self) -> None:
        """An engine has a request."""
        self.is_running = True

    def steps(self, rank: int) -> int:
        """Steps of this wave that a rank has begun."""
        return self._begun[rank]

    def is_held(self, rank: int) -> bool:
        """Whether a rank may not go on before all have asked each other."""
        begun = self._begun[rank]
        return begun > self._asked and begun % STEPS_BETWEEN_QUESTIONS == 0

    def ask(self, *, unfinished: bool) -> None:
        """All ranks are held: the wave goes on if one of them has unfinished requests."""
        assert all(map(self.is_held, range(self._num_ranks)))
        if unfinished:
            self._asked = self._begun[0]
            return
        self.is_running = False
        self.wave += 1
        self._asked = self._settled = 0
        self._begun = [0] * self._num_ranks

    def join(
        self, executor: LockstepExecutor, ready_at: float, waits: float, shape: StepShape | None, since: float
    ) -> StepEnd:
        """A rank begins its next step: its host is ready at ``ready_at``, its device then waits for transfers.

        ``shape`` is what it computes for requests, if for any, ``since`` the moment at which it had them.
        """
        rank = executor.rank
        assert self.is_running
        assert not self.is_held(rank)
        number = self._begun[rank] - self._settled
        self._begun[rank] += 1
        if number == len(self._rounds):
            self._rounds.append(_Round())
        joined = self._rounds[number]
        joined.ready_at = max(joined.ready_at, ready_at)
        joined.waits = max(joined.waits, waits)
        joined.shapes.append(shape)
        if shape is not None:
            joined.computing.append((executor, since))
        if len(joined.shapes) == self._num_ranks:
            self._settle(self._rounds.popleft())
        return joined

    def _settle(self, joined: _Round) -> None:
        """All have begun it: now its end is known."""
        before = self._ended_at
        device = ranks_seconds(self._latency, joined.shapes) - host_seconds(self._latency)
        joined.moment = self._ended_at = max(joined.ready_at, before) + max(device, 0.0) + joined.waits
        self._settled += 1
        for executor, since in joined.computing:
            executor.busy_seconds += joined.moment - max(since, before)


class LockstepExecutor(SimulatedExecutor):
    """The executor of one of the ranks."""

    def __init__(
        self,
        clock: VirtualClock,
        latency: LatencyModel,
        lockstep: Lockstep,
        rank: int,
        *,
        transfers: WorkerTransfers | None = None,
        speculation: SimulatedSpeculation | None = None,
        model: SimulatedModel | None = None,
    ) -> None:
        super().__init__(clock, latency, transfers=transfers, speculation=speculation, model=model)
        self.rank = rank
        self.num_dummies = 0
        """Dummy batches so far."""
        self.lockstep = lockstep
        self._dummy = StepEnd(0.0)
        """The end of the last dummy batch that nothing was scheduled for."""

    @property
    def dummy_ends_at(self) -> float:
        """When its last dummy batch is over; infinite while some rank has yet to begin that step."""
        return self._dummy.moment

    def run_dummy(self) -> None:
        """Take part in a step without requests."""
        self._dummy = self._join(None, 0.0)

    def _join(self, shape: StepShape | None, waits: float) -> StepEnd:
        if shape is None:
            self.num_dummies += 1
        now = self._clock.now()
        self._host_free_at = max(now, self._host_free_at) + host_seconds(self._latency)
        return self.lockstep.join(self, self._host_free_at, waits, shape, now)

    def pass_over(self, waits: float) -> StepEnd:
        """While the others step, so does who has nothing scheduled."""
        return self._join(None, waits) if self.lockstep.is_running else SimulatedExecutor.pass_over(self, waits)

    def _compute(self, plan: SchedulerOutput, waits: float) -> StepEnd:
        return self._join(StepShape.of(plan), waits)


def copy_of(request: Request, *, with_outputs: bool) -> Request:
    """Return a request that has not begun; ``with_outputs``: it goes on behind the tokens that it has."""
    copy = Request(
        request.request_id,
        request.token_slice(0, request.num_prompt_tokens),
        request.sampling_params,
        arrival_time=request.arrival_time,
        priority=request.priority,
        lora_name=request.lora_name,
        cache_salt=request.cache_salt,
        mm_features=request.mm_features,
        job_id=request.job_id,
        is_last_step=request.is_last_step,
        this_func_call=request.this_func_call,
        output_seed=request.output_seed,
        client_index=request.client_index,
        predicted_output_tokens=request.predicted_output_tokens,
        ends_after=request.ends_after,
        meta=request.meta,
    )
    if with_outputs:
        for token in request.output_token_ids:
            copy.append_token(token)
        copy.times.first_scheduled, copy.times.first_token = request.times.first_scheduled, request.times.first_token
        copy.num_preemptions, copy.num_cached_tokens = request.num_preemptions, request.num_cached_tokens
    return copy


# ---------------------------------------------------------------------------------------------------------------------
# One engine of several: requests reach it between its steps, and it reports how many it has.


_AT_ONCE = -inf


class RankListener(Protocol):
    """Observers of what happens on a rank besides its steps."""

    @property
    def wants_reports(self) -> bool:
        """Whether it has to be notified of counts."""

    def engine_reported(self, report: EngineReport) -> None:
        """Its counts have changed."""

    def refused(self, error: RequestError, request: Request, rank: int) -> None:
        """It cannot serve a request that was sent to it."""

    def aborted(self, requests: Sequence[Request], rank: int) -> None:
        """It ended requests whose clients went away."""


class RankUse(msgspec.Struct, frozen=True):
    """What one engine did."""

    steps: int
    """Steps that were decided."""
    dummy_batches: int
    """Steps in which it kept step with the others and computed nothing for a request."""
    busy_seconds: float
    """Time in steps with requests; where ranks step together, waiting for the slowest included."""
    num_requests: int
    """Requests sent to this engine, without refused ones."""
    num_finished: int
    output_tokens: int
    """Tokens sampled."""


class Rank:
    """An engine core on a clock that it shares with others. It never waits, and says when it wants to be called.

    It is an ``EngineState``, too: what a router sees of it.
    """

    def __init__(
        self,
        rank: int,
        scheduler: Scheduler,
        executor: SimulatedExecutor,
        clock: VirtualClock,
        transfers: WorkerTransfers | None,
        listener: RankListener,
        *,
        leaps: bool = False,
    ) -> None:
        """``leaps``: steps that decide alike may be taken in one stroke."""
        self.rank = rank
        self.scheduler = scheduler
        self.core = EngineCore(scheduler, executor)
        self._clock = clock
        self._transfers = transfers
        self._executor = executor
        self._listener = listener
        self._leaps = leaps
        self.is_due = False
        """The next thing that it does is to take in the oldest step in flight."""
        self._slept_at = 0.0
        self._inbox: deque[Request] = deque()
        self._under_way: set[str] = set()
        """Requests that were sent to it and have not ended."""
        self._leaving: list[str] = []
        """Requests whose clients have gone away."""
        self._told: tuple[int, int] = (0, 0)
        self._report_at = 0
        """The step after which it is time to say how far it has come."""
        self._num_requests = self._num_finished = self._output_tokens = 0

    # ---- what a router sees

    @property
    def num_waiting(self) -> int:
        return self.scheduler.get_request_counts()[1] + len(self._inbox)

    @property
    def num_running(self) -> int:
        return self.scheduler.get_request_counts()[0]

    @property
    def kv_usage(self) -> float:
        return self.scheduler.kv.usage

    def num_cached_tokens(self, request: Request) -> int:
        return self.scheduler.kv.num_cached_tokens(request)

    # ---- what it is sent

    def send(self, request: Request) -> None:
        """A request is under way to it: it comes in before the next step is scheduled."""
        self._inbox.append(request)
        self._under_way.add(request.request_id)
        self._num_requests += 1

    def went_on_without(self, request: Request) -> None:
        """Tell the observer of a request that was refused."""
        if self.scheduler.observer is not None:
            self.scheduler.observer.request_refused(request.arrival_time, request)

    def _tell_rejected(self) -> None:
        """The policy has ended requests unserved."""
        for request, word in self.scheduler.take_rejected():
            self._num_requests -= 1
            self._under_way.discard(request.request_id)
            self._listener.refused(RejectedError(request.request_id, word), request, self.rank)

    def abort(self, request_ids: Sequence[str]) -> None:
        """Clients have gone away: those of their requests that it has are ended before the next step is scheduled."""
        self._leaving += [each for each in request_ids if each in self._under_way]

    # ---- what its fleet does with it

    @property
    def now(self) -> float:
        """Seconds on the clock that it shares with others."""
        return self._clock.now()

    @property
    def queued(self) -> tuple[Request, ...]:
        """Requests that wait, in their order, those on their way to it last."""
        return (*self.scheduler.waiting, *self._inbox)

    def wake(self) -> None:
        """Something has changed that it may have waited for."""
        self._executor.num_empty_steps = 0

    def take_out(self, request_id: str) -> tuple[Request, list[BlockHash]] | None:
        """Take a request away, with the contents of the blocks that are computed of it; None: it cannot be moved.

        What steps in flight bring for it is lost.
        """
        waiting = next((each for each in self._inbox if each.request_id == request_id), None)
        request = waiting or self.scheduler.requests.get(request_id)
        if request is None or request.resumable or request.structured_output is not None:
            return None
        size = self.scheduler.kv.block_size
        computed = min(request.num_computed_tokens, request.num_tokens) if request.slot >= 0 else 0
        contents = list(request.block_hashes[: computed // size])
        moved = copy_of(request, with_outputs=True)
        self._let_go(request, waiting, RequestStatus.FINISHED_MOVED)
        return moved, contents

    def take_in_kv(self, contents: Sequence[BlockHash]) -> None:
        """KV that another engine has computed is here now, as cached blocks, as far as there is room."""
        pool = self.scheduler.kv.pool
        missing = [each for each in contents if not pool.find(each, 0)]
        if self.scheduler.kv.num_groups == 1 and self.scheduler.cache_config.enable_prefix_caching:
            blocks = pool.take(min(len(missing), pool.num_free))
            for block, content in zip(blocks, missing, strict=False):
                pool.publish(block, content, 0)
            pool.release(blocks[::-1])

    def lose_all(self, *, resend: bool) -> list[Request]:
        """Lose all requests and all KV; returns the requests as clients would send them again."""
        lost = [(each, None) for each in self.scheduler.requests.values()]
        waiting = [(each, each) for each in self._inbox]
        again = [copy_of(request, with_outputs=False) for request, _ in (*lost, *waiting)]
        for request, inbox in (*lost, *waiting):
            self._let_go(request, inbox, RequestStatus.FINISHED_MOVED if resend else RequestStatus.FINISHED_ERROR)
            if not resend:
                error = RejectedError(request.request_id, "crash", "has lost it with its engine")
                self._listener.refused(error, request, self.rank)
                if inbox is not None:
                    self.went_on_without(request)
        self.scheduler.pins.clear()
        self.scheduler.reset_prefix_cache()
        return again

    def _let_go(self, request: Request, waiting: Request | None, status: RequestStatus) -> None:
        self._num_requests -= 1
        self._under_way.discard(request.request_id)
        if waiting is not None:
            self._inbox.remove(waiting)
        else:
            self.scheduler.finish_requests([request.request_id], status)
        self._tell_counts()

    def receive(self) -> None:
        """Take in what was sent."""
        if not (self.scheduler.has_requests() or self.core.num_in_flight):
            self._executor.num_empty_steps = 0
        while self._inbox:
            request = self._inbox.popleft()
            try:
                self.core.add_request(request)
            except RequestError as error:
                self._num_requests -= 1
                self._under_way.discard(request.request_id)
                self._listener.refused(error, request, self.rank)
        if self._leaving:
            aborted = self.core.abort_requests(self._leaving)
            self._leaving.clear()
            self._under_way.difference_update([request.request_id for request in aborted])
            self._listener.aborted(aborted, self.rank)
        self._tell_counts()

    # ---- what it does by itself

    @property
    def has_work(self) -> bool:
        """Whether it will do something by itself, other than keeping step with others."""
        return self.wakes_at() is not None

    def next_moment(self) -> float | None:
        """When it does something by itself; None: only when a request is sent."""
        wakes_at = self.wakes_at()
        return self._clock.now() if wakes_at == _AT_ONCE else wakes_at

    def wakes_at(self) -> float | None:
        """The same, with no look at the clock: -inf where it is at once. Without transfers only what is sent to it and
        what it does change that.
        """
        if self.is_due:
            return self._due_at()
        if self._inbox or self._leaving:
            return _AT_ONCE
        if not self.scheduler.has_requests():
            return _AT_ONCE if self.core.num_in_flight else None
        if self._executor.num_empty_steps < self._executor.most_empty:
            return _AT_ONCE
        moved = self._transfers.next_moment if self._transfers is not None else None
        changed = self.scheduler.next_moment(self._slept_at)
        return min([moment for moment in (moved, changed) if moment is not None], default=None)

    def _due_at(self) -> float:
        """When the step ends that is to be taken in."""
        oldest = self.core.oldest
        assert isinstance(oldest, SimulatedStep)
        return oldest.ends_at

    def act(self, horizon: float = _AT_ONCE) -> EngineOutputs | None:
        """Take in the step that is due, if it is over, or begin one; and so on, until ``horizon``: no other thing
        happens before that moment.

        Returns what a step brought with which requests ended, at once, or after which it is time to say how far
        it has come; None: neither.
        """
        while True:
            if self.is_due:
                outputs = self._take_in()
                if outputs.finish_reasons or outputs.step >= self._report_at:
                    return outputs
            else:
                if self._inbox or self._leaving:  # one that is refused or aborted may make room for another
                    horizon = _AT_ONCE
                self.begin(horizon)
                if self.scheduler.has_rejected:  # which may bring a turn, or make room for one
                    self._tell_rejected()
                    return None
            moment = self.next_moment()
            if moment is None or moment >= horizon:
                return None
            self._clock.advance_to(moment)

    def wants_report(self, outputs: EngineOutputs) -> bool:
        """Whether it is time to say how far it has come."""
        if outputs.step < self._report_at:
            return False
        self._report_at = outputs.step + STEPS_PER_REPORT
        return True

    def _take_in(self) -> EngineOutputs:
        core, executor = self.core, self._executor
        step = core.oldest
        outputs = core.take_in()
        if executor.num_empty_steps >= executor.most_empty:  # what came in may have changed that
            executor.taken_in(step, core.depth)
        self.is_due = executor.num_empty_steps >= executor.most_empty and core.num_in_flight > 0
        for row in outputs.finish_reasons:
            self._num_finished += 1
            self._under_way.discard(outputs.requests[row].request_id)
            self._output_tokens += outputs.requests[row].num_output_tokens
        self._tell_counts()
        return outputs

    def begin(self, horizon: float) -> None:
        core, executor = self.core, self._executor
        if self._inbox or self._leaving:
            self.receive()
        if executor.num_empty_steps >= executor.most_empty:
            executor.num_empty_steps = 0
        self._slept_at = self._clock.now()
        self.is_due = core.fill()
        if not self.is_due:
            self.is_due = executor.num_empty_steps >= executor.most_empty and core.num_in_flight > 0
            self._tell_counts()
        elif self._leaps and self._due_at() < horizon:
            executor.runs_until = horizon
            core.run_ahead()

    def _tell_counts(self) -> None:
        if not self._listener.wants_reports:
            return
        counts = running, waiting = self.scheduler.get_request_counts()
        if counts != self._told:
            self._told = counts
            wave, step = self._wave_and_step
            self._listener.engine_reported(EngineReport(self.rank, waiting, running, self.kv_usage, wave, step))

    # ---- what it did

    @property
    def use(self) -> RankUse:
        """What it has done so far."""
        return RankUse(
            steps=self.scheduler.step,
            dummy_batches=self._num_dummies,
            busy_seconds=self._executor.busy_before(self._clock.now()),
            num_requests=self._num_requests,
            num_finished=self._num_finished,
            output_tokens=self._output_tokens,
        )

    @property
    def _num_dummies(self) -> int:
        return 0

    @property
    def _wave_and_step(self) -> tuple[int, int]:
        return 0, 0


class RankInStep(Rank):
    """One whose steps are also those of the others."""

    def __init__(
        self,
        rank: int,
        scheduler: Scheduler,
        executor: LockstepExecutor,
        clock: VirtualClock,
        transfers: WorkerTransfers | None,
        listener: RankListener,
    ) -> None:
        super().__init__(rank, scheduler, executor, clock, transfers, listener)
        self._lockstep: Lockstep = executor.lockstep
        self._in_step = executor

    def next_moment(self) -> float | None:
        own = Rank.next_moment(self)
        if self.is_due:
            return own
        if self._lockstep.is_held(self.rank):
            return None
        free_at = self._in_step.dummy_ends_at
        if self._lockstep.is_running:
            own = free_at if own is None else min(own, free_at)
        return None if own is None else max(own, free_at)

    @property
    def held_until(self) -> float | None:
        """When it is ready to hear whether the wave goes on; None: it is not that far."""
        if self.is_due or not self._lockstep.is_held(self.rank):
            return None
        return self._in_step.dummy_ends_at

    def begin(self, horizon: float) -> None:
        moment = Rank.next_moment(self)
        if moment is not None and moment <= self._clock.now():
            Rank.begin(self, horizon)
        else:
            self._in_step.run_dummy()

    def receive(self) -> None:
        Rank.receive(self)
        if self.scheduler.has_unfinished_requests():
            self._lockstep.start()

    @property
    def _wave_and_step(self) -> tuple[int, int]:
        return self._lockstep.wave, self._lockstep.steps(self.rank)

    @property
    def _num_dummies(self) -> int:
        return self._in_step.num_dummies
