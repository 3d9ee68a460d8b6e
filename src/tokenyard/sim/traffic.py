"""The requests of a replay, from their arrival to their end: who is to come, who was refused, how many are done."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tokenyard.errors import RequestError
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sched.steps.engine_outputs import EngineOutputs
from tokenyard.sim.arrivals import ArrivalQueue
from tokenyard.sim.workload.record import Workload, WorkloadRequest

__all__ = ["STEPS_PER_REPORT", "Progress", "RefusedRequest", "Traffic", "require_settled"]

STEPS_PER_REPORT = 256
"""Steps between two reports of progress."""


class Progress(NamedTuple):
    """How far a replay has come."""

    steps: int
    now: float
    """Virtual seconds."""
    num_done: int
    """Requests that have finished, were refused or were left out."""
    num_running: int
    num_waiting: int


class RefusedRequest(NamedTuple):
    """A request that the scheduler would not take."""

    request_id: str
    problem: str


class Traffic:
    """A workload under way. ``num_finished + len(refused) + num_left_out`` is in the end the number of its requests."""

    def __init__(
        self, workload: Workload, *, skip_refused: bool, on_progress: Callable[[Progress], None] | None = None
    ) -> None:
        self._num_requests = len(workload)
        self._skip_refused = skip_refused
        self._on_progress = on_progress
        self._arrivals = ArrivalQueue(workload)
        self.refused: list[RefusedRequest] = []
        self.num_finished = 0
        self.output_tokens = 0
        """Of the requests that have finished."""

    @property
    def next_moment(self) -> float | None:
        """When the next request arrives, as far as is known now."""
        return self._arrivals.next_moment

    @property
    def num_left_out(self) -> int:
        """Turns after a refused one."""
        return self._arrivals.num_left_out

    def due(self, now: float) -> list[tuple[float, WorkloadRequest]]:
        """Requests that have arrived by ``now``, each with its moment, in order."""
        return self._arrivals.due(now)

    def refuse(self, now: float, error: RequestError, request_id: str) -> None:
        """A request cannot be served: it is counted, or the error raised."""
        if not self._skip_refused:
            raise error
        self.refused.append(RefusedRequest(request_id, str(error)))
        self._arrivals.refused(request_id, now=now)

    def ended(self, outputs: EngineOutputs, now: float) -> None:
        """A step's outputs were taken in: requests that they finish make way for those that follow."""
        for row in outputs.finish_reasons:
            request = outputs.requests[row]
            self.num_finished += 1
            self.output_tokens += request.num_output_tokens
            self._arrivals.ended(request.request_id, arrived=request.arrival_time, now=now)

    def report(self, now: float, *schedulers: Scheduler) -> None:
        """Say how far the replay has come, over all ``schedulers``."""
        if self._on_progress is not None:
            running, waiting = (sum(each) for each in zip(*(s.get_request_counts() for s in schedulers), strict=True))
            done = self.num_finished + len(self.refused) + self.num_left_out
            self._on_progress(Progress(sum(s.step for s in schedulers), now, done, running, waiting))

    def require_whole(self) -> None:
        """Nothing was lost, once nothing is left that could happen."""
        assert self.num_finished + len(self.refused) + self.num_left_out == self._num_requests, "a request was lost"


def require_settled(scheduler: Scheduler) -> None:
    """A scheduler has nothing left to do, and nobody holds a block."""
    assert scheduler.get_request_counts() == (0, 0), "the scheduler stalled with requests in its queues"
    scheduler.pins.clear()  # of jobs whose last turn was left out, or not marked as such
    assert scheduler.num_free_blocks == scheduler.num_total_blocks - 1, "a block is held by nobody"
