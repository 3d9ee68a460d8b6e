"""Waiting queues: the order in which requests are tried, whatever is taken out and put back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.toy_engine import make_request

from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.queues import FCFSQueue, PriorityQueue, RequestQueue, WaitingQueues

QUEUES: list[Callable[[], RequestQueue]] = [FCFSQueue, PriorityQueue]


def request(name: str, priority: int = 0, arrival: float = 0.0, prompt: int = 4) -> Request:
    return make_request(name, prompt, priority=priority, arrival_time=arrival)


def ids(queue: RequestQueue) -> list[str]:
    return [each.request_id for each in queue]


def emptied(queue: RequestQueue) -> list[str]:
    """The order in which requests really leave."""
    left = []
    while len(queue):
        head = queue.peek()
        assert queue.pop() is head, "pop takes what peek shows"
        left.append(head.request_id)
    return left


@pytest.mark.parametrize("queue", [make() for make in QUEUES], ids=["fcfs", "priority"])
def test_an_empty_queue(queue: RequestQueue) -> None:
    assert len(queue) == 0
    assert ids(queue) == []
    assert queue.get("a") is None
    assert queue.discard(request("a")) is False


@pytest.mark.parametrize("make", QUEUES, ids=["fcfs", "priority"])
def test_membership_follows_what_is_added_and_taken(make: Callable[[], RequestQueue]) -> None:
    queue, a, b = make(), request("a"), request("b", arrival=1.0)
    queue.add(a)
    queue.add(b)
    assert (len(queue), queue.get("a"), queue.get("b")) == (2, a, b)
    assert queue.discard(a) is True
    assert (len(queue), queue.get("a"), ids(queue)) == (1, None, ["b"])
    assert queue.discard(a) is False
    assert queue.pop() is b
    assert len(queue) == 0


def test_fcfs_serves_in_order_of_arrival() -> None:
    queue = FCFSQueue()
    for name in "cab":
        queue.add(request(name))
    assert ids(queue) == ["c", "a", "b"], "iteration shows the order"
    assert emptied(queue) == ["c", "a", "b"]


def test_fcfs_puts_back_in_front() -> None:
    queue = FCFSQueue()
    for name in "ab":
        queue.add(request(name))
    queue.prepend(request("x"))
    queue.prepend_all([request("y"), request("z")])
    assert ids(queue) == ["z", "y", "x", "a", "b"]


def test_fcfs_ignores_priority() -> None:
    queue = FCFSQueue()
    queue.add(request("late", priority=9))
    queue.add(request("urgent", priority=0))
    assert queue.peek().request_id == "late"


def test_priority_order_is_priority_then_arrival_then_id() -> None:
    queue = PriorityQueue()
    for each in (
        request("d", 1, 0.0),
        request("c", 0, 2.0),
        request("b", 0, 1.0),
        request("a", 0, 2.0),
        request("e", -1, 9.0),
    ):
        queue.add(each)
    order = ["e", "b", "a", "c", "d"]
    assert ids(queue) == order, "iteration shows the order"
    assert emptied(queue) == order


def test_priority_knows_no_front() -> None:
    queue = PriorityQueue()
    queue.add(request("good", 0))
    queue.prepend(request("bad", 5))
    queue.prepend_all([request("best", -3), request("worst", 9)])
    assert emptied(queue) == ["best", "good", "bad", "worst"]


def test_a_custom_key_orders_too() -> None:
    queue = PriorityQueue(key=lambda each: (each.num_prompt_tokens,))
    for name, length in (("long", 9), ("short", 2), ("middle", 5)):
        queue.add(request(name, prompt=length))
    assert ids(queue) == ["short", "middle", "long"]
    assert emptied(queue) == ["short", "middle", "long"]


def test_a_head_whose_key_has_changed_stays_the_head_until_it_comes_back() -> None:
    """vLLM's heap compares requests as they are, and is not put in order when one changes."""
    queue, first, second = PriorityQueue(), request("first", arrival=1.0), request("second", arrival=3.0)
    queue.add(first)
    queue.add(second)
    first.arrival_time = 9.0
    queue.rekey(first)
    assert (ids(queue), queue.get("first"), len(queue)) == (["first", "second"], first, 2)
    assert queue.pop() is first
    queue.prepend(first)
    assert ids(queue) == emptied(queue) == ["second", "first"]


def test_a_changed_key_behind_the_head_counts_at_once() -> None:
    queue, head = PriorityQueue(), request("head", priority=-1)
    changed, other, gone = request("changed", arrival=1.0), request("other", arrival=2.0), request("gone", arrival=4.0)
    for each in (head, changed, other, gone):
        queue.add(each)
    changed.arrival_time = 3.0
    queue.rekey(changed)
    assert queue.discard(gone)
    assert ids(queue) == emptied(queue) == ["head", "other", "changed"]
    queue.add(head)
    queue.rekey(head)
    assert ids(queue) == ["head"], "a key that is what it was changes nothing"


def test_the_head_may_be_taken_out() -> None:
    queue = PriorityQueue()
    a, b = request("a", 0), request("b", 1)
    queue.add(b)
    queue.add(a)
    queue.discard(a)
    assert queue.peek() is b
    queue.add(a)
    assert queue.peek() is a


def test_an_id_used_again_takes_its_new_place() -> None:
    """A request was aborted while it waited; another of the same id and a worse priority arrives."""
    queue = PriorityQueue()
    old = request("x", 0)
    queue.add(old)
    queue.add(request("m", 3))
    queue.discard(old)
    queue.add(request("x", 5))
    assert ids(queue) == ["m", "x"]
    assert emptied(queue) == ["m", "x"]


def test_an_id_that_left_twice_does_not_return() -> None:
    queue = PriorityQueue()
    x = request("x", 0)
    for _ in range(3):
        queue.add(x)
        queue.discard(x)
    queue.add(request("m", 3))
    queue.add(x)
    assert emptied(queue) == ["x", "m"]


def test_what_is_removed_makes_way_for_a_head_whose_key_changes() -> None:
    """A removed head is gone at once: the session behind it becomes the head, and stays it with its new key."""
    queue = PriorityQueue()
    gone, session, other = (request(name, arrival=at) for name, at in (("gone", 1.0), ("session", 2.0), ("other", 3.0)))
    for each in (gone, session, other):
        queue.add(each)
    queue.discard(gone)
    session.arrival_time = 9.0
    queue.rekey(session)
    assert ids(queue) == emptied(queue) == ["session", "other"]


def test_removing_from_one_queue_puts_both_in_order() -> None:
    queues = WaitingQueues(lambda *_: PriorityQueue(), block_size=4)
    sessions = [request("session", arrival=1.0), request("other", arrival=2.0)]
    for each in sessions:
        each.status = RequestStatus.WAITING_FOR_STREAMING_REQ
        queues.add(each)
    waits = request("waits")
    queues.add(waits)
    sessions[0].arrival_time = 9.0
    queues.arrived_anew(sessions[0])
    assert ids(queues.skipped) == ["session", "other"]
    queues.discard_all([waits])
    assert ids(queues.skipped) == ["other", "session"]


# ---- the waiting queues


@pytest.fixture
def queues() -> WaitingQueues:
    return WaitingQueues(lambda *_: FCFSQueue(), block_size=4)


def test_blocked_requests_wait_apart(queues: WaitingQueues) -> None:
    blocked = request("blocked")
    blocked.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    queues.add(request("a"))
    queues.add(blocked)
    assert (ids(queues.waiting), ids(queues.skipped)) == (["a"], ["blocked"])
    assert [each.request_id for each in queues] == ["a", "blocked"]
    assert (len(queues), queues.get("blocked"), queues.get("none")) == (2, blocked, None)


def test_the_room_finds_whom_to_discard(queues: WaitingQueues) -> None:
    a, b = request("a"), request("b")
    b.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    queues.add(a)
    queues.add(b)
    queues.discard_all([a, b])
    assert (len(queues), queues.get("a"), queues.get("b")) == (0, None, None)
    queues.discard_all([b])
    assert len(queues) == 0


def test_a_preempted_request_returns_to_the_front(queues: WaitingQueues) -> None:
    queues.add(request("a"))
    queues.put_back(request("x"))
    assert ids(queues.waiting) == ["x", "a"]


def test_the_smallest_need_is_in_blocks_of_known_tokens(queues: WaitingQueues) -> None:
    assert queues.smallest_need() is None
    queues.add(request("a", prompt=17))
    assert queues.smallest_need() == 5
    queues.add(request("b", prompt=8))
    assert queues.smallest_need() == 2
    queues.add(request("c", prompt=9))
    assert queues.smallest_need() == 2


def test_the_smallest_need_follows_who_leaves(queues: WaitingQueues) -> None:
    requests = [request(name, prompt=size) for name, size in (("a", 4), ("b", 12), ("c", 8))]
    for each in requests:
        queues.add(each)
    queues.discard_all(requests[:1])
    assert queues.smallest_need() == 2
    queues.discard_all(requests[2:])
    assert queues.smallest_need() == 3
    queues.waiting.pop()
    assert queues.smallest_need() is None


def test_the_smallest_need_counts_skipped_requests(queues: WaitingQueues) -> None:
    blocked = request("blocked", prompt=4)
    blocked.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    queues.add(blocked)
    queues.add(request("a", prompt=12))
    assert queues.smallest_need() == 1


def test_a_returning_request_needs_what_it_has_grown_to(queues: WaitingQueues) -> None:
    x = request("x", prompt=4)
    queues.add(x)
    queues.waiting.pop()
    x.append_token(7)
    queues.put_back(x)
    assert queues.smallest_need() == 2


def test_the_smallest_need_survives_growth_while_waiting(queues: WaitingQueues) -> None:
    """A request preempted by a reset gets its sampled token while it waits."""
    x = request("x", prompt=4)
    queues.add(x)
    queues.add(request("long", prompt=40))
    x.append_token(7)
    assert queues.smallest_need() == 2


def test_the_smallest_need_survives_a_look_while_someone_is_out(queues: WaitingQueues) -> None:
    """The admission pass holds passed-over requests in its hand until it ends."""
    x = request("x", prompt=4)
    queues.add(x)
    queues.add(request("long", prompt=40))
    queues.waiting.discard(x)
    assert queues.smallest_need() == 10
    aside = FCFSQueue()
    aside.prepend(x)
    queues.take_back(aside)
    assert ids(queues.skipped) == ["x"]
    assert queues.smallest_need() == 1
