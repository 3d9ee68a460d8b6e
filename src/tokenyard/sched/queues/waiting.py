"""Waiting queues: first come first served, and by priority; removal costs no more than O(log n).

:class:`WaitingQueues` holds the two queues of the scheduler: ``waiting``, and ``skipped`` for requests that were passed
over and are tried again in the next step.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from tokenyard.request import Request

__all__ = ["FCFSQueue", "PriorityQueue", "RequestQueue", "WaitingQueues"]


class RequestQueue(Protocol):
    """Requests in the order in which they are tried."""

    def add(self, request: Request) -> None:
        """A request arrives."""

    def prepend(self, request: Request) -> None:
        """A request comes back to the front, if the order knows a front."""

    def prepend_all(self, requests: Iterable[Request]) -> None:
        """Prepend one after another: the last one given ends up in front."""

    def peek(self) -> Request:
        """The request to try next; the queue must not be empty."""

    def pop(self) -> Request:
        """Take it out."""

    def discard(self, request: Request) -> bool:
        """Take any request out; False if it is not here."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...

    def get(self, request_id: str) -> Request | None:
        """The request of that id, if it is here."""


_Entry = tuple[tuple[object, ...], str, int, Request]
"""Key, request id, a number that no other entry has (so that requests are never compared), the request."""


class FCFSQueue:
    """First come, first served."""

    __slots__ = ("_requests",)

    def __init__(self) -> None:
        self._requests: OrderedDict[str, Request] = OrderedDict()

    def add(self, request: Request) -> None:
        self._requests[request.request_id] = request

    def prepend(self, request: Request) -> None:
        self._requests[request.request_id] = request
        self._requests.move_to_end(request.request_id, last=False)

    def prepend_all(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.prepend(request)

    def peek(self) -> Request:
        return next(iter(self._requests.values()))

    def pop(self) -> Request:
        return self._requests.popitem(last=False)[1]

    def discard(self, request: Request) -> bool:
        return self._requests.pop(request.request_id, None) is not None

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def get(self, request_id: str) -> Request | None:
        return self._requests.get(request_id)


class PriorityQueue:
    """Ordered by a key of the request: a heap whose removed entries are dropped when they surface."""

    __slots__ = ("_entries", "_heap", "_key", "_number")

    def __init__(self, key: Callable[[Request], tuple[object, ...]] = lambda request: request.sort_key) -> None:
        self._key = key
        self._heap: list[_Entry] = []
        self._entries: dict[str, _Entry] = {}
        """Request id -> its one entry that counts; others of that id in the heap were removed."""
        self._number = 0

    def add(self, request: Request) -> None:
        self._number += 1
        entry = (self._key(request), request.request_id, self._number, request)
        self._entries[request.request_id] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._entries):
            self._heap = list(self._entries.values())
            heapify(self._heap)

    def prepend(self, request: Request) -> None:
        self.add(request)

    def prepend_all(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.add(request)

    def peek(self) -> Request:
        while self._entries.get((entry := self._heap[0])[1]) is not entry:
            heappop(self._heap)
        return entry[3]

    def pop(self) -> Request:
        request = self.peek()
        heappop(self._heap)
        del self._entries[request.request_id]
        return request

    def discard(self, request: Request) -> bool:
        return self._entries.pop(request.request_id, None) is not None

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Request]:
        return iter([entry[3] for entry in sorted(self._entries.values())])

    def get(self, request_id: str) -> Request | None:
        entry = self._entries.get(request_id)
        return None if entry is None else entry[3]


class WaitingQueues:
    """Everything that waits: the queue, the requests passed over earlier, and the smallest of their needs."""

    __slots__ = ("_block_size", "_needs", "new_queue", "occupied", "skipped", "waiting")

    def __init__(self, new_queue: Callable[[], RequestQueue], block_size: int) -> None:
        self.new_queue = new_queue
        self.waiting = new_queue()
        self.skipped = new_queue()
        self.occupied = False
        """Somebody may wait; False: nobody does, which is asked several times a step and mostly so."""
        self._block_size = block_size
        self._needs: list[tuple[int, str]] = []

    def __len__(self) -> int:
        if not self.occupied:
            return 0
        count = len(self.waiting) + len(self.skipped)
        self.occupied = count > 0
        return count

    def __iter__(self) -> Iterator[Request]:
        yield from self.waiting
        yield from self.skipped

    def get(self, request_id: str) -> Request | None:
        """The waiting request of that id."""
        return self.waiting.get(request_id) or self.skipped.get(request_id)

    def add(self, request: Request) -> None:
        """A new request: it joins ``skipped`` at once if it has to wait for something other than its turn."""
        self.occupied = True
        (self.skipped if request.status.is_blocked else self.waiting).add(request)
        self._note_need(request)

    def put_back(self, request: Request) -> None:
        """A preempted request returns to the front."""
        self.occupied = True
        self.waiting.prepend(request)
        self._note_need(request)

    def pass_over(self, requests: RequestQueue) -> None:
        """Requests that were taken out to try others come back; the next step tries them again."""
        self.occupied = True
        self.skipped.prepend_all(requests)
        for request in requests:
            self._note_need(request)

    def discard(self, request: Request) -> bool:
        """Take a request out of whichever queue it is in."""
        return self.waiting.discard(request) or self.skipped.discard(request)

    def _need(self, request: Request) -> int:
        return -(-request.num_tokens // self._block_size)

    def _note_need(self, request: Request) -> None:
        heappush(self._needs, (self._need(request), request.request_id))
        if len(self._needs) > 64 and len(self._needs) > 2 * len(self):
            self._needs = [(self._need(r), r.request_id) for r in self]
            heapify(self._needs)

    def smallest_need(self) -> int | None:
        """Blocks of the smallest waiting request's known tokens, prefix hits not counted; None if nobody waits."""
        needs = self._needs
        while needs:
            need, request_id = needs[0]
            request = self.get(request_id)
            if request is None:
                heappop(needs)
            elif (now := self._need(request)) != need:
                # It grew while it waited, or its id was used again.
                heapreplace(needs, (now, request_id))
            else:
                return need
        return None
