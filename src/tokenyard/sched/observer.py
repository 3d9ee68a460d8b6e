"""The seam between the scheduler and everything that watches it.

The trace recorder, the statistics and the metrics exporter are observers. A scheduler without one pays a branch per
step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tokenyard.request import Request
from tokenyard.sched.features.pins import PinBoard
from tokenyard.sched.queues.waiting import RequestQueue
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sched.steps.outcomes import StepOutcomes
from tokenyard.sched.steps.scheduler_output import SchedulerOutput

__all__ = ["Counts", "Gauges", "Observers", "SchedulerState", "StepObserver"]


Counts = tuple[int, int, int, tuple[int, int] | None]
"""In this order: ``num_free_blocks``, running requests, waiting requests, ``cpu_blocks``."""

Gauges = tuple[int, int, int, int, int, int, tuple[int, int] | None]
"""In this order: ``running_version``, ``num_free_blocks``, ``num_cached_blocks``, waiting requests, those of them that
were skipped, pinned requests, ``cpu_blocks``."""


class SchedulerState(Protocol):
    """What an observer may read while it is called; it must not keep or change anything of it."""

    @property
    def running(self) -> Sequence[Request]:
        """In running order."""

    @property
    def waiting(self) -> RequestQueue:
        """In queue order."""

    @property
    def skipped_waiting(self) -> RequestQueue:
        """In queue order."""

    def counts(self) -> Counts:
        """What statistics take of every step, in one call."""

    def gauges(self) -> Gauges:
        """What may change with every step, in one call: an observer that asks one by one pays twice as much."""

    @property
    def num_free_blocks(self) -> int:
        """Blocks in the free queue, cached evictable ones included."""

    @property
    def num_total_blocks(self) -> int:
        """Blocks in the pool, the null block included."""

    @property
    def num_cached_blocks(self) -> int:
        """Distinct hashes in the prefix index."""

    @property
    def cpu_blocks(self) -> tuple[int, int] | None:
        """Free and total blocks of a connector's tier in CPU memory; None without one."""

    @property
    def max_num_scheduled_tokens(self) -> int:
        """Token budget of a step."""

    @property
    def max_num_running_reqs(self) -> int:
        """``max_num_seqs``."""

    @property
    def block_size(self) -> int:
        """Tokens per block."""

    @property
    def pins(self) -> PinBoard:
        """Finished turns whose blocks a policy keeps."""

    @property
    def running_version(self) -> int:
        """Changes whenever the running list's members or order change (a cache key for encoders)."""

    @property
    def waiting_reorders(self) -> bool:
        """The order of the waiting queues may change although nobody came, went or was passed over."""

    def num_blocks_of(self, request: Request) -> int:
        """Blocks the request holds."""


class StepObserver(Protocol):
    """Called synchronously by the scheduler; ``ts`` is the scheduler's clock in seconds."""

    def request_arrived(self, ts: float, request: Request) -> None:
        """``add_request`` accepted it."""

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        """Top of ``schedule()``, before any decision."""

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        """A request is admitted for the first time, with its hits in tokens."""

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        """End of ``schedule()``; counters are advanced."""

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        """End of ``update_from_output()``."""

    def request_finished(self, ts: float, request: Request) -> None:
        """It reached a finished status; ``request.times`` is complete and its blocks are freed."""


class Observers:
    """Several observers as one, called in the given order."""

    def __init__(self, *observers: StepObserver) -> None:
        self._all = observers

    def request_arrived(self, ts: float, request: Request) -> None:
        for each in self._all:
            each.request_arrived(ts, request)

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        for each in self._all:
            each.step_started(ts, step, state)

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        for each in self._all:
            each.prefix_looked_up(ts, step, request, local, external)

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        for each in self._all:
            each.step_decided(ts, output, outcomes, state)

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        for each in self._all:
            each.step_completed(ts, output, outputs)

    def request_finished(self, ts: float, request: Request) -> None:
        for each in self._all:
            each.request_finished(ts, request)
