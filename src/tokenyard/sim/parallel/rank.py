"""One engine of several: requests reach it between its steps, and it tells how many it has."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tokenyard.errors import RequestError
from tokenyard.request import Request
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.engine import ClockedEngine
from tokenyard.sim.executor import SimulatedExecutor, WorkerTransfers
from tokenyard.sim.parallel.lockstep import LockstepExecutor
from tokenyard.sim.parallel.routers.router import EngineReport

__all__ = ["Rank", "RankInStep", "RankListener", "RankUse"]


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
