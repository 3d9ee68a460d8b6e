"""Ranks that step together: those of a mixture of experts, whose experts are shared out over all of them.

    rank 0   | step ........... | step .....        |         A step ends for everybody when the slowest is done; who
    rank 1   | step .....       | step ............ |         has nothing to compute takes part with a dummy batch.
    rank 2   | dummy            | step ...          |

They do so in waves: from the first request until nobody has one, which they ask each other every 32 steps. Facts of
vLLM's ``DPEngineCoreProc``.
"""

from __future__ import annotations

from collections import deque

from tokenyard.sched.steps.scheduler_output import SchedulerOutput
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.drafts import SimulatedSpeculation
from tokenyard.sim.executor import SimulatedExecutor, StepEnd, WorkerTransfers
from tokenyard.sim.latency.model import LatencyModel, StepShape
from tokenyard.sim.latency.pricing import host_seconds, ranks_seconds

__all__ = ["STEPS_BETWEEN_QUESTIONS", "Lockstep", "LockstepExecutor"]

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
