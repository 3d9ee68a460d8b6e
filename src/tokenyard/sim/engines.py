"""Engines behind one router on one clock: a rank, ranks in lockstep, a group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple, Protocol

from tokenyard.core.request import Request
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import ConfigError, RequestError, TokenyardError
from tokenyard.sim.executor import SimulatedExecutor, SimulatedSpeculation, StepEnd, WorkerTransfers, executor_for
from tokenyard.sim.replay import ClockedEngine
from tokenyard.sim.replicas import Autoscaling, Replicas
from tokenyard.sim.routers import EngineReport, Router
from tokenyard.steptime.model import LatencyModel, StepShape, host_seconds, ranks_seconds
from tokenyard.steptime.pace import VirtualClock

__all__ = [
    "ARRIVAL",
    "HANGING_UP",
    "SCALING",
    "STEPS_BETWEEN_QUESTIONS",
    "EngineGroup",
    "EngineParts",
    "Event",
    "Lockstep",
    "LockstepExecutor",
    "Rank",
    "RankInStep",
    "RankListener",
    "RankUse",
]


# ---------------------------------------------------------------------------------------------------------------------
# Ranks that step together: those of a mixture of experts, whose experts are shared out over all of them.
#
#     rank 0   | step ........... | step .....        |         A step ends for everybody when the slowest is done; who
#     rank 1   | step .....       | step ............ |         has nothing to compute takes part with a dummy batch.
#     rank 2   | dummy            | step ...          |
#
# They do so in waves: from the first request until nobody has one, which they ask each other every 32 steps. Facts of
# vLLM's ``DPEngineCoreProc``.

STEPS_BETWEEN_QUESTIONS = 32
"""Steps after which the ranks ask each other whether anybody has requests left."""


class _Round(StepEnd):
    """One step of all ranks."""

    __slots__ = ("computing", "ready_at", "shapes", "waits")

    def __init__(self) -> None:
        super().__init__()
        self.ready_at = self.waits = 0.0
        """When the last host is ready, and how long devices wait for transfers besides."""
        self.shapes: list[StepShape | None] = []
        """What each rank computes; None: nothing for anybody."""
        self.computing: list[tuple[LockstepExecutor, float]] = []
        """Who has requests in it, and since when."""


class Lockstep:
    """The steps that all ranks take together."""

    def __init__(self, num_ranks: int, latency: LatencyModel) -> None:
        self._num_ranks = num_ranks
        self._latency = latency
        self._rounds: deque[_Round] = deque()
        """Those that some rank has begun, and not all."""
        self._settled = 0
        """Rounds of this wave that all ranks have begun."""
        self._ended_at = 0.0
        """The last of them."""
        self._begun = [0] * num_ranks
        """Rounds of this wave that each rank has begun."""
        self._asked = 0
        """The round after which the ranks have asked each other last."""
        self.wave = 0
        """Number of the wave that runs, or comes next."""
        self.is_running = False

    def start(self) -> None:
        """Somebody has a request."""
        self.is_running = True

    def steps(self, rank: int) -> int:
        """Steps of this wave that a rank has begun."""
        return self._begun[rank]

    def is_held(self, rank: int) -> bool:
        """Whether a rank may not go on before all have asked each other."""
        begun = self._begun[rank]
        return begun > self._asked and begun % STEPS_BETWEEN_QUESTIONS == 0

    def ask(self, *, unfinished: bool) -> None:
        """All ranks are held: the wave goes on if anybody has unfinished requests."""
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
    ) -> None:
        super().__init__(clock, latency, transfers=transfers, speculation=speculation)
        self.rank = rank
        self.num_dummies = 0
        """Dummy batches so far."""
        self.lockstep = lockstep
        self._dummy = StepEnd(0.0)
        """Of the last dummy batch that nothing was scheduled for."""

    @property
    def dummy_ends_at(self) -> float:
        """When its last dummy batch is over; infinite while some rank has yet to begin that step."""
        return self._dummy.moment

    def run_dummy(self) -> None:
        """Take part in a step without requests."""
        self._dummy = self._join(None, 0.0)

    def _join(self, shape: StepShape | None, waits: float) -> StepEnd:
        self.num_dummies += shape is None
        now = self._clock.now()
        self._host_free_at = max(now, self._host_free_at) + host_seconds(self._latency)
        return self.lockstep.join(self, self._host_free_at, waits, shape, now)

    def _pass_over(self, waits: float) -> StepEnd:
        """While the others step, so does who has nothing scheduled."""
        return self._join(None, waits) if self.lockstep.is_running else super()._pass_over(waits)

    def _compute(self, plan: SchedulerOutput, waits: float) -> StepEnd:
        return self._join(StepShape.of(plan), waits)


# ---------------------------------------------------------------------------------------------------------------------
# One engine of several: requests reach it between its steps, and it tells how many it has.


class RankListener(Protocol):
    """Who hears of what happens on a rank besides its steps."""

    def told(self, report: EngineReport) -> None:
        """Its counts have changed."""

    def refused(self, error: RequestError, request: Request, rank: int) -> None:
        """It cannot serve a request that was sent to it."""

    def aborted(self, requests: Sequence[Request], rank: int) -> None:
        """It ended requests whose clients went away."""


class RankUse(NamedTuple):
    """What one engine did."""

    steps: int
    """Steps that were decided."""
    dummy_batches: int
    """Steps in which it kept step with the others and computed nothing for anybody."""
    busy_seconds: float
    """Time in steps with requests; where ranks step together, waiting for the slowest included."""
    num_requests: int
    """Sent to it, refused ones aside."""
    num_finished: int
    output_tokens: int
    """Tokens sampled."""


class Rank(ClockedEngine):
    """An ``EngineState``, and the engine itself."""

    def __init__(
        self,
        rank: int,
        scheduler: Scheduler,
        executor: SimulatedExecutor,
        clock: VirtualClock,
        transfers: WorkerTransfers | None,
        listener: RankListener,
    ) -> None:
        super().__init__(scheduler, executor, clock, transfers)
        self.rank = rank
        self._num_requests = self._num_finished = self._output_tokens = 0
        self._listener = listener
        self._inbox: deque[Request] = deque()
        self._under_way: set[str] = set()
        """Requests that were sent to it and have not ended."""
        self._leaving: list[str] = []
        """Of them, those whose clients have gone away."""
        self._told = (0, 0)

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

    # ---- what the replay does

    def send(self, request: Request) -> None:
        """A request is under way to it: it comes in before the next step is scheduled."""
        self._inbox.append(request)
        self._under_way.add(request.request_id)
        self._num_requests += 1

    def abort(self, request_ids: Sequence[str]) -> None:
        """Clients have gone away: those of their requests that it has are ended before the next step is scheduled."""
        self._leaving += [each for each in request_ids if each in self._under_way]

    @property
    def has_work(self) -> bool:
        """Whether it will do something by itself, other than keeping step with others."""
        return self._is_due or bool(self._inbox or self._leaving) or super().next_moment is not None

    @property
    def next_moment(self) -> float | None:
        if (self._inbox or self._leaving) and not self._is_due:
            return self._clock.now()
        return super().next_moment

    def act(self) -> EngineOutputs | None:
        if not self._is_due:
            return super().act()
        outputs = self._take_in()
        for row in outputs.finish_reasons:
            self._num_finished += 1
            self._under_way.discard(outputs.requests[row].request_id)
            self._output_tokens += outputs.requests[row].num_output_tokens
        self._tell_counts()
        return outputs

    @property
    def use(self) -> RankUse:
        """What it has done so far."""
        return RankUse(
            steps=self.scheduler.step,
            dummy_batches=self._num_dummies,
            busy_seconds=self.busy_seconds,
            num_requests=self._num_requests,
            num_finished=self._num_finished,
            output_tokens=self._output_tokens,
        )

    @property
    def _num_dummies(self) -> int:
        return 0

    def _begin(self) -> None:
        self._receive()
        super()._begin()
        if not self._is_due:
            self._tell_counts()

    def _receive(self) -> None:
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
            self._under_way.difference_update(request.request_id for request in aborted)
            self._listener.aborted(aborted, self.rank)
        self._tell_counts()

    def _tell_counts(self) -> None:
        counts = running, waiting = self.scheduler.get_request_counts()
        if counts != self._told:
            self._told = counts
            wave, step = self._wave_and_step
            self._listener.told(EngineReport(self.rank, waiting, running, self.kv_usage, wave, step))

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
        self._lockstep = executor.lockstep
        self._in_step = executor

    @property
    def next_moment(self) -> float | None:
        own = super().next_moment
        if self._is_due:
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
        if self._is_due or not self._lockstep.is_held(self.rank):
            return None
        return self._in_step.dummy_ends_at

    def _begin(self) -> None:
        moment = super().next_moment
        if moment is not None and moment <= self._clock.now():
            super()._begin()
        else:
            self._in_step.run_dummy()

    def _receive(self) -> None:
        super()._receive()
        if self.scheduler.has_unfinished_requests():
            self._lockstep.start()

    @property
    def _wave_and_step(self) -> tuple[int, int]:
        return self._lockstep.wave, self._lockstep.steps(self.rank)

    @property
    def _num_dummies(self) -> int:
        return self._in_step.num_dummies


# ---------------------------------------------------------------------------------------------------------------------
# Engines behind one router, on a clock that they may share with others.
#
# At one moment steps end first, then requests arrive, then steps begin: a router sees every engine after the same
# moment.

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
