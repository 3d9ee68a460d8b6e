"""The worker half of a connector in a replay: nothing is moved, but it takes as long as if it were.

link      one direction of a wire: what is sent waits until everything sent before is through
saves     and blocking loads make the step wait; asynchronous loads and stores run beside it
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from tokenyard.connectors.plan import Load, Store, TransferPlan
from tokenyard.sched.steps.model_output import ConnectorOutput

__all__ = ["Link", "SimulatedTransfers", "TransfersUnderWay"]


class Link:
    """Transfers one after the other; ``seconds_of`` says how long so many bytes take."""

    def __init__(self, seconds_of: Callable[[int], float]) -> None:
        self._seconds_of = seconds_of
        self._free_at = 0.0
        self.num_bytes = 0
        """Sent so far."""
        self.busy_seconds = 0.0

    def send(self, now: float, num_bytes: int) -> float:
        """Send at ``now``, or when the link is free; returns the moment at which it has arrived."""
        seconds = self._seconds_of(num_bytes)
        self._free_at = max(now, self._free_at) + seconds
        self.num_bytes += num_bytes
        self.busy_seconds += seconds
        return self._free_at


class _TransferEnd(NamedTuple):
    """When a job is over."""

    moment: float
    number: int
    job: Load | Store


class TransfersUnderWay:
    """Jobs that have been sent, and their ends, on a virtual clock."""

    def __init__(self, now: Callable[[], float], bytes_per_block: int) -> None:
        """Bytes are those of one GPU."""
        self._now = now
        self._bytes_per_block = bytes_per_block
        self._ending_jobs: list[_TransferEnd] = []
        self._count = 0

    def _send(self, link: Link, job: Load | Store, now: float) -> float:
        moment = link.send(now, len(job.blocks) * self._bytes_per_block)
        self._count += 1
        heappush(self._ending_jobs, _TransferEnd(moment, self._count, job))
        return moment

    @property
    def next_moment(self) -> float | None:
        """When the next transfer is over; None if there is none."""
        return self._ending_jobs[0].moment if self._ending_jobs else None

    def report(self) -> ConnectorOutput | None:
        """What has ended by now, since the last call."""
        now, endings = self._now(), self._ending_jobs
        if not endings or endings[0].moment > now:
            return None
        ended = []
        while endings and endings[0].moment <= now:
            ended.append(heappop(endings).job)
        return ConnectorOutput(
            finished_sending=frozenset(job.request_id for job in ended if isinstance(job, Store) and job.request_id),
            finished_receiving=frozenset(job.request_id for job in ended if isinstance(job, Load) and job.is_async),
            completed_jobs=frozenset(job.job_id for job in ended),
        )


class SimulatedTransfers(TransfersUnderWay):
    """Takes a step's plan and reports what has ended, on a virtual clock."""

    def __init__(self, now: Callable[[], float], inwards: Link, outwards: Link, bytes_per_block: int) -> None:
        """``inwards`` leads to the GPU, ``outwards`` away from it; bytes are those of one GPU."""
        super().__init__(now, bytes_per_block)
        self.inwards, self.outwards = inwards, outwards

    def begin(self, plan: TransferPlan | None) -> float:
        """Begin a step's transfers; returns the seconds that its computation has to wait for them."""
        if plan is None:
            return 0.0
        now = ready = self._now()
        for save in plan.saves:
            ready = max(ready, self._send(self.outwards, save, now))
        for load in plan.loads:
            arrived = self._send(self.inwards, load, now)
            if not load.is_async:
                ready = max(ready, arrived)
        for store in plan.stores:
            self._send(self.outwards, store, now)
        return ready - now
