"""Waiting queues against plain lists: any mixture of arrivals, returns, removals and ids used again."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.examples import examples

from tokenyard.core.request import Request
from tokenyard.core.sched.queues import FCFSQueue, PriorityQueue, RequestQueue, WaitingQueues

NAMES = st.sampled_from("abcdefgh")
ORDER = st.tuples(st.integers(0, 2), st.sampled_from([0.0, 1.0]))


def _request(name: str, order: tuple[int, float], length: int = 1) -> Request:
    return Request(name, [1] * length, priority=order[0], arrival_time=order[1])


class FCFSMachine(RuleBasedStateMachine):
    """The model is a list in queue order; requests outside wait in ``out`` to come back."""

    make: Callable[[], RequestQueue] = FCFSQueue

    def __init__(self) -> None:
        super().__init__()
        self.queue = type(self).make()
        self.model: list[Request] = []
        self.out: list[Request] = []

    def place(self, request: Request, *, front: bool) -> None:
        """Where the model puts a request."""
        self.model.insert(0 if front else len(self.model), request)

    def _names(self) -> set[str]:
        return {request.request_id for request in self.model}

    @rule(name=NAMES, order=ORDER)
    def add(self, name: str, order: tuple[int, float]) -> None:
        if name not in self._names():
            request = _request(name, order)
            self.queue.add(request)
            self.place(request, front=False)

    @precondition(lambda self: self.model)
    @rule()
    def pop(self) -> None:
        assert self.queue.pop() is self.model[0]
        self.out.append(self.model.pop(0))

    @precondition(lambda self: self.model)
    @rule(pick=st.integers(0, 7))
    def discard(self, pick: int) -> None:
        request = self.model.pop(pick % len(self.model))
        assert self.queue.discard(request) is True
        self.out.append(request)

    @rule(name=NAMES)
    def discard_absent(self, name: str) -> None:
        if name not in self._names():
            assert self.queue.discard(_request(name, (0, 0.0))) is False

    @rule(count=st.integers(1, 3))
    def come_back(self, count: int) -> None:
        back: list[Request] = []
        while self.out and len(back) < count:
            request = self.out.pop()
            if request.request_id not in self._names() | {each.request_id for each in back}:
                back.append(request)
        self.queue.prepend_all(back)
        for request in back:
            self.place(request, front=True)

    @invariant()
    def it_is_the_list(self) -> None:
        assert [request.request_id for request in self.queue] == [request.request_id for request in self.model]
        assert len(self.queue) == len(self.model)
        if self.model:
            assert self.queue.peek() is self.model[0]
        for name in "abcdefgh":
            held = [request for request in self.model if request.request_id == name]
            assert self.queue.get(name) is (held[0] if held else None)


class PriorityMachine(FCFSMachine):
    """The model is kept sorted; there is no front."""

    make = PriorityQueue

    def place(self, request: Request, *, front: bool) -> None:
        self.model = sorted([*self.model, request], key=lambda each: each.sort_key)


class _Compared:
    """A request as a heap of requests compares it: by what its key is at that moment."""

    def __init__(self, request: Request) -> None:
        self.request = request

    def __lt__(self, other: _Compared) -> bool:
        return self.request.sort_key < other.request.sort_key


class RekeyedMachine(RuleBasedStateMachine):
    """Keys change while requests wait. The model is a heap of the requests themselves; a removal puts it in order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = PriorityQueue()
        self.model: list[_Compared] = []

    @rule(name=NAMES, order=ORDER)
    def add(self, name: str, order: tuple[int, float]) -> None:
        if self.queue.get(name) is None:
            request = _request(name, order)
            self.queue.add(request)
            heappush(self.model, _Compared(request))

    @precondition(lambda self: self.model)
    @rule(pick=st.integers(0, 7), arrival=st.integers(0, 9))
    def change(self, pick: int, arrival: int) -> None:
        request = self.model[pick % len(self.model)].request
        request.arrival_time = float(arrival)
        self.queue.rekey(request)

    @precondition(lambda self: self.model)
    @rule()
    def pop(self) -> None:
        assert self.queue.pop() is heappop(self.model).request

    @precondition(lambda self: self.model)
    @rule(picks=st.sets(st.integers(0, 7), min_size=1, max_size=3))
    def discard(self, picks: set[int]) -> None:
        gone = [self.model[pick % len(self.model)].request for pick in picks]
        assert self.queue.discard_all(gone)
        self.model = [each for each in self.model if each.request not in gone]
        heapify(self.model)

    @invariant()
    def it_tries_whom_the_heap_tries(self) -> None:
        heap = self.model.copy()
        assert [each.request_id for each in self.queue] == [heappop(heap).request.request_id for _ in self.model]


class NeedsMachine(RuleBasedStateMachine):
    """The smallest need, against counting everybody again."""

    def __init__(self) -> None:
        super().__init__()
        self.queues = WaitingQueues(lambda *_: FCFSQueue(), block_size=4)
        self.inside: dict[str, Request] = {}
        self.aside: list[Request] = []

    @rule(name=NAMES, length=st.integers(1, 20))
    def add(self, name: str, length: int) -> None:
        if name not in self.inside and name not in [request.request_id for request in self.aside]:
            self.inside[name] = _request(name, (0, 0.0), length)
            self.queues.add(self.inside[name])

    @precondition(lambda self: self.inside)
    @rule(pick=st.integers(0, 7), tokens=st.integers(1, 6))
    def grow(self, pick: int, tokens: int) -> None:
        """Tokens arrive for a request that waits."""
        request = self._pick(pick)
        for _ in range(tokens):
            request.append_token(1)

    @precondition(lambda self: self.inside)
    @rule(pick=st.integers(0, 7), returns=st.booleans())
    def leave(self, pick: int, returns: bool) -> None:
        request = self._pick(pick)
        self.queues.discard_all([request])
        assert self.queues.get(request.request_id) is None
        del self.inside[request.request_id]
        if returns:
            self.queues.put_back(request)
            self.inside[request.request_id] = request

    @precondition(lambda self: self.inside)
    @rule(pick=st.integers(0, 7))
    def set_aside(self, pick: int) -> None:
        request = self._pick(pick)
        self.queues.discard_all([request])
        self.aside.append(self.inside.pop(request.request_id))

    @rule()
    def take_back(self) -> None:
        queue: RequestQueue = FCFSQueue()
        for request in self.aside:
            queue.prepend(request)
            self.inside[request.request_id] = request
        self.aside.clear()
        self.queues.take_back(queue)

    def _pick(self, pick: int) -> Request:
        return list(self.inside.values())[pick % len(self.inside)]

    @invariant()
    def the_smallest_is_the_smallest(self) -> None:
        needs: list[Any] = [-(-request.num_tokens // 4) for request in self.inside.values()]
        assert self.queues.smallest_need() == min(needs, default=None)
        assert len(self.queues) == len(self.inside)


TestFCFS = FCFSMachine.TestCase
TestPriority = PriorityMachine.TestCase
TestRekeyed = RekeyedMachine.TestCase
TestNeeds = NeedsMachine.TestCase
SETTINGS = settings(max_examples=examples(200), stateful_step_count=40)
TestFCFS.settings = TestPriority.settings = TestRekeyed.settings = TestNeeds.settings = SETTINGS
