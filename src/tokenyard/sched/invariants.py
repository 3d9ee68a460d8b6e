"""What must hold of the queues between any two calls.

requests = running + waiting + skipped, disjoint
running      status RUNNING, a slot each, at most max_num_seqs
waiting      no slot, no blocks, unless it is a session or its KV is being loaded
pinned       finished, a slot each
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenyard.request import Request, RequestStatus
from tokenyard.sched.features.pins import PinBoard
from tokenyard.sched.queues.running import RunningList
from tokenyard.sched.queues.waiting import WaitingQueues

__all__ = ["check_queues"]


def check_queues(
    requests: Mapping[str, Request], running: RunningList, room: WaitingQueues, pins: PinBoard, max_num_seqs: int
) -> None:
    """Raise AssertionError if a request is lost, doubled or in the wrong place."""
    places = [r.request_id for queue in (running.requests, room) for r in queue]
    assert room.occupied or not any(True for _ in room), "somebody waits in a room that looks empty"
    assert len(places) == len(set(places)), "a request is in two places"
    assert set(places) == set(requests), "a request is in no queue"
    assert [r.slot for r in running.requests] == running.slots.tolist(), "running slots are out of step"
    assert len(running) <= max_num_seqs, "too many requests run"
    assert all(r.status is RequestStatus.RUNNING for r in running.requests), "a running request has another status"
    for request in room:
        loading = request.status is RequestStatus.WAITING_FOR_REMOTE_KVS or request.num_computed_tokens > 0
        assert request.slot < 0 or request.resumable or loading, f"waiting {request.request_id} holds blocks"
        waiting = request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        assert waiting or request.status.is_blocked, f"waiting {request.request_id} is {request.status.name}"
    for request in pins:
        assert request.status.is_finished, f"pinned {request.request_id} is {request.status.name}"
        assert request.slot >= 0, f"pinned {request.request_id} holds no blocks"
