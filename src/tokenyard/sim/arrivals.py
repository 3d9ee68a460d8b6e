"""Which request arrives when: fixed moments, and turns that follow the end of others.

pending[i]     turns that request i still waits for
queue          (moment, i) of requests whose moment is known; in a closed loop the due ones wait there for room
every request is exactly one of: waiting for others, queued, arrived, left out
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heappop, heappush

from tokenyard.sim.workload.record import Workload, WorkloadRequest

__all__ = ["ArrivalQueue"]


class ArrivalQueue:
    """The workload's requests, one after the other as they become due."""

    def __init__(self, workload: Workload) -> None:
        self._requests = list(workload.requests)
        self._followers: dict[str, list[int]] = defaultdict(list)
        self._pending = [len(request.after) for request in self._requests]
        self._left_out: set[int] = set()
        for i, request in enumerate(self._requests):
            for parent in request.after:
                self._followers[parent].append(i)
        self._room = [0.0] * min(workload.max_concurrency or len(self._requests), len(self._requests))
        """Since when each free place of a closed loop is free: who waited for it arrives then."""
        self._queue = [
            (request.arrival_time + request.delay, i) for i, request in enumerate(self._requests) if not request.after
        ]
        heapify(self._queue)

    @property
    def next_moment(self) -> float | None:
        """When the scheduler gets the next request, as far as is known now; None: no moment is known."""
        return self._queue[0][0] if self._queue and self._room else None

    @property
    def num_left_out(self) -> int:
        """Turns that will never arrive because one before them did not run."""
        return len(self._left_out)

    def due(self, now: float) -> list[tuple[float, WorkloadRequest]]:
        """Requests that the scheduler has got by ``now``, each with the moment of its arrival, in order."""
        queue = self._queue
        arrived = []
        while queue and queue[0][0] <= now and self._room:
            moment, i = heappop(queue)
            request = self._requests[i]
            arrived.append((max(moment - request.delay, heappop(self._room)), request))
        return arrived

    def ended(self, request_id: str, *, arrived: float, now: float) -> None:
        """A request ended ``now``: its followers come after their gap."""
        heappush(self._room, now)
        for i in self._followers.pop(request_id, ()):
            self._pending[i] -= 1
            if not self._pending[i] and i not in self._left_out:
                request = self._requests[i]
                heappush(self._queue, (max(now + request.gap, arrived + request.spacing) + request.delay, i))

    def again(self, request: WorkloadRequest, *, now: float) -> None:
        """A request that was given up ``now`` is sent again at its ``arrival_time``; until then its place is free."""
        heappush(self._room, now)
        self._requests.append(request)
        heappush(self._queue, (request.arrival_time + request.delay, len(self._requests) - 1))

    def refused(self, request_id: str, *, now: float) -> None:
        """A request did not run: neither do the turns after it, nor theirs."""
        heappush(self._room, now)
        refused = [request_id]
        while refused:
            followers = self._followers.pop(refused.pop(), ())
            refused += [self._requests[i].request_id for i in followers if i not in self._left_out]
            self._left_out.update(followers)
