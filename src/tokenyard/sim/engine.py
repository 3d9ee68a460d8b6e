"""An engine core on a virtual clock that it shares with others."""

from __future__ import annotations

from tokenyard.engine.core import EngineCore
from tokenyard.request import Request
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.executor import SimulatedExecutor, SimulatedStep, WorkerTransfers

__all__ = ["ClockedEngine"]


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
