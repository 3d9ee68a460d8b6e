"""The waiting queues and the running list."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from tokenyard.core.request import Request, RequestStatus

__all__ = ["FCFSQueue", "HoldersFirstQueues", "PriorityQueue", "RequestQueue", "RunningList", "WaitingQueues"]


# ---------------------------------------------------------------------------------------------------------------------
# The running list: requests that hold a place in the batch, in admission order.


class RunningList:
    """``version`` changes with every change of members or order."""

    requests: list[Request]
    version: int
    shown: tuple[Request, ...]
    """The requests as others see them ..."""
    shown_version: int
    """... at this version."""

    def __init__(self) -> None:
        self.requests = []
        self.version = 0
        self.shown = ()
        self.shown_version = 0

    def members(self) -> tuple[Request, ...]:
        """Return the requests, to be kept: the same tuple until one comes or goes."""
        if self.shown_version != self.version:
            self.shown, self.shown_version = tuple(self.requests), self.version
        return self.shown

    def __len__(self) -> int:
        return len(self.requests)

    def append(self, request: Request) -> None:
        """Admit a request."""
        self.requests.append(request)
        self.version += 1

    def pop(self, index: int) -> Request:
        """Take the request at ``index`` out, keeping the order."""
        self.version += 1
        return self.requests.pop(index)

    def remove_all(self, gone: Collection[Request]) -> None:
        """Take several requests out, keeping the order."""
        if gone:
            out = set(gone)
            self.requests = [request for request in self.requests if request not in out]
            self.version += 1


# ---------------------------------------------------------------------------------------------------------------------
# Waiting queues: first come first served, and by priority.
#
# :class:`WaitingQueues` holds the two queues of the scheduler: ``waiting``, and ``skipped`` for requests that were
# refused while others were tried, and are tried again in the next step.


class RequestQueue(Protocol):
    """Requests in the order in which they are tried.

    One that raises closes the scheduler, as its policy would.
    """

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
        return self._requests.popitem(False)[1]  # "last", whose name would double the cost

    def discard(self, request: Request) -> bool:
        return self._requests.pop(request.request_id, None) is not None

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def get(self, request_id: str) -> Request | None:
        return self._requests.get(request_id)


class PriorityQueue:
    """Ordered by a key of the request: a heap, laid out as vLLM's.

    The key of a session changes while it waits (:meth:`rekey`). As in vLLM it keeps its place in the heap until it is
    taken out and comes back, or something else is removed: a head stays the head, though others are ahead of it by
    their keys. Whom that concerns depends on the places of all, so what is removed leaves at once, for O(n).
    """

    def __init__(
        self, key: Callable[[Request], tuple[object, ...]] = lambda request: request.sort_key, *, by_id: bool = True
    ) -> None:
        """``by_id``: of equal keys the id decides, as a text; else who joined first."""
        self._by_id: bool = by_id
        self._key: Callable[[Request], tuple[object, ...]] = key
        self._heap: list[_Entry] = []
        self._entries: dict[str, _Entry] = {}
        """Request id -> its entry in the heap."""
        self._number: int = 0
        self._is_heap: bool = True
        """No key has changed since the heap was last put in order: sorted entries show the order."""

    def add(self, request: Request) -> None:
        self._number += 1
        entry = (self._key(request), request.request_id if self._by_id else "", self._number, request)
        self._entries[request.request_id] = entry
        heappush(self._heap, entry)

    def rekey(self, request: Request) -> None:
        """The key of a request that waits here has changed; costs O(n)."""
        entry = self._entries[request.request_id]
        changed = (self._key(request), *entry[1:])
        if changed != entry:
            at = next(i for i, each in enumerate(self._heap) if each is entry)
            self._heap[at] = self._entries[request.request_id] = changed
            self._is_heap = False

    def prepend(self, request: Request) -> None:
        self.add(request)

    def prepend_all(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.add(request)

    def peek(self) -> Request:
        return self._heap[0][3]

    def pop(self) -> Request:
        request = heappop(self._heap)[3]
        del self._entries[request.request_id]
        if not self._heap:
            self._is_heap = True
        return request

    def discard(self, request: Request) -> bool:
        return self.discard_all((request,))

    def discard_all(self, requests: Iterable[Request]) -> bool:
        """Take out those that are here, and put the heap in order; False if none is."""
        gone = {each.request_id for each in requests if self._entries.pop(each.request_id, None) is not None}
        if gone:
            self._heap = [entry for entry in self._heap if entry[3].request_id not in gone]
            self._is_heap = False
        self.put_in_order()
        return bool(gone)

    def put_in_order(self) -> None:
        """Every request takes the place of its key as it is now."""
        if not self._is_heap:
            heapify(self._heap)
            self._is_heap = True

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Request]:
        if self._is_heap:
            return iter([entry[3] for entry in sorted(self._heap)])
        heap = self._heap.copy()
        return iter([heappop(heap)[3] for _ in range(len(heap))])

    def get(self, request_id: str) -> Request | None:
        entry = self._entries.get(request_id)
        return None if entry is None else entry[3]


def _take_out(queue: RequestQueue, requests: Sequence[Request]) -> None:
    if isinstance(queue, PriorityQueue):
        queue.discard_all(requests)
    else:
        for request in requests:
            queue.discard(request)


class QueueOrder(Protocol):
    """The part of a policy that chooses between the two queues."""

    def next_queue(self, queues: WaitingQueues) -> RequestQueue: ...


class WaitingQueues:
    """Everything that waits: the queue, the requests skipped earlier, and the smallest of their needs."""

    def __init__(self, new_queue: Callable[..., RequestQueue], block_size: int) -> None:
        """``new_queue`` makes an empty queue, which is none of those that it is given."""
        self._new_queue: Callable[..., RequestQueue] = new_queue
        self.waiting: RequestQueue = new_queue()
        self.skipped: RequestQueue = new_queue(self.waiting)
        self.occupied: bool = False
        """A request may wait; False: none does, which is asked several times a step and mostly so."""
        self._block_size: int = block_size
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
        """A request that comes, or a session that ran and waits again.

        It joins ``skipped`` at once if it has to wait for something other than its turn.
        """
        self.occupied = True
        self._queue_of(request).add(request)
        self._note_need(request)

    def _queue_of(self, request: Request) -> RequestQueue:
        """Where a request waits that was not looked at yet."""
        return self.skipped if request.status.is_blocked else self.waiting

    def arrived_anew(self, session: Request) -> None:
        """A session that waits has got its next input, and with it another time of arrival."""
        queue = self.waiting if self.waiting.get(session.request_id) is session else self.skipped
        if isinstance(queue, PriorityQueue) and queue.get(session.request_id) is session:
            queue.rekey(session)

    def put_back(self, request: Request) -> None:
        """A preempted request returns to the front."""
        self.occupied = True
        self.waiting.prepend(request)
        self._note_need(request)

    def take(self, queue: RequestQueue, into: RequestQueue | None = None) -> None:
        """Take the head of one of the queues out, to be admitted or to wait ``into`` another queue meanwhile."""
        head = queue.pop()
        if into is not None:
            into.prepend(head)

    def holding_queue(self) -> RequestQueue:
        """A queue for those who are taken out to try others."""
        return self._new_queue(self.waiting, self.skipped)

    def take_back(self, requests: RequestQueue) -> None:
        """Requests that were taken out to try others come back; the next step tries them again."""
        self.occupied = True
        self._return_all(self.skipped, requests)

    def _return_all(self, queue: RequestQueue, requests: Iterable[Request]) -> None:
        """They come back to the front of ``queue``."""
        queue.prepend_all(requests)
        for request in requests:
            self._note_need(request)

    def discard_stopped(self, requests: Sequence[Request]) -> None:
        """Take requests out that sampled their last token while they waited: ``skipped`` is not put in order."""
        _take_out(self.waiting, requests)
        for request in requests:
            if self.skipped.get(request.request_id) is request:
                self.skipped.discard(request)

    def discard_all(self, requests: Sequence[Request]) -> None:
        """Take requests out of whichever queue they are in; as in vLLM both are put in order."""
        _take_out(self.waiting, requests)
        _take_out(self.skipped, requests)

    def next_queue(self, policy: QueueOrder) -> RequestQueue:
        """The queue whose head is tried next; a request waits."""
        return policy.next_queue(self)

    @property
    def num_going_on(self) -> int:
        """Requests that wait and are served even while new ones are paused."""
        return 0

    @property
    def counts(self) -> tuple[int, int]:
        """How many wait for their turn, and how many were skipped or wait for something else."""
        if not self.occupied:
            return 0, 0
        return len(self.waiting), len(self.skipped)

    def _need(self, request: Request) -> int:
        return -(-request.num_tokens // self._block_size)

    def _note_need(self, request: Request) -> None:
        heappush(self._needs, (self._need(request), request.request_id))
        if len(self._needs) > 64 and len(self._needs) > 2 * len(self):
            self._needs = [(self._need(r), r.request_id) for r in self]
            heapify(self._needs)

    def smallest_need(self) -> int | None:
        """Blocks of the smallest waiting request's known tokens, prefix hits not counted; None if none waits."""
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


class HoldersFirstQueues(WaitingQueues):
    """Since vLLM 0.31: ``skipped`` holds the requests with blocks, which are always tried first, and no others.

    A request that holds none keeps its place in ``waiting`` while it is skipped or waits for its grammar.
    """

    def __init__(self, new_queue: Callable[..., RequestQueue], block_size: int, *, go_on: bool = True) -> None:
        super().__init__(new_queue, block_size)
        self._go_on: bool = go_on
        """Whether those with blocks are served while new ones are paused."""
        self._deferred: set[str] = set()
        """Requests that were skipped in the last pass, or came waiting for something."""

    @staticmethod
    def _holds_blocks(request: Request) -> bool:
        return request.num_computed_tokens > 0 or request.status is RequestStatus.WAITING_FOR_REMOTE_KVS

    def holding_queue(self) -> RequestQueue:
        # They come back in the opposite of the order in which they were tried, whatever the policy's order is.
        return FCFSQueue()

    def add(self, request: Request) -> None:
        if request.status.is_blocked:
            self._deferred.add(request.request_id)
        WaitingQueues.add(self, request)

    def _queue_of(self, request: Request) -> RequestQueue:
        return self.skipped if self._holds_blocks(request) else self.waiting

    def take(self, queue: RequestQueue, into: RequestQueue | None = None) -> None:
        if into is None and self._deferred:
            self._deferred.discard(queue.peek().request_id)
        WaitingQueues.take(self, queue, into)

    def take_back(self, requests: RequestQueue) -> None:
        self.occupied = True
        self._deferred.update([request.request_id for request in requests])
        self._return_all(self.skipped, [request for request in requests if self._holds_blocks(request)])
        self._return_all(self.waiting, [request for request in requests if not self._holds_blocks(request)])

    def discard_stopped(self, requests: Sequence[Request]) -> None:
        self.discard_all(requests)

    def discard_all(self, requests: Sequence[Request]) -> None:
        self._deferred.difference_update([request.request_id for request in requests])
        WaitingQueues.discard_all(self, requests)

    def next_queue(self, policy: QueueOrder) -> RequestQueue:
        return self.skipped if len(self.skipped) else policy.next_queue(self)

    @property
    def num_going_on(self) -> int:
        return self._go_on and sum(
            request.status is not RequestStatus.WAITING_FOR_STREAMING_REQ for request in self.skipped
        )

    @property
    def counts(self) -> tuple[int, int]:
        total = len(self)
        deferred = len(self._deferred) if total else 0
        return total - deferred, deferred
