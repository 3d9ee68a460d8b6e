"""The order of a CONTINUUM queue: preempted turns, then turns of pinned jobs, then by the arrival of the program."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from tokenyard.request import Request, RequestStatus
from tokenyard.sched.queues.waiting import WaitingQueues

__all__ = ["QueueRank", "queue_rank", "requeue"]


class QueueRank(IntEnum):
    """Who goes first."""

    PREEMPTED = 0
    PINNED = 1
    OTHER = 2


def queue_rank(request: Request, *, pinned: bool) -> QueueRank:
    """Rank of a waiting request; ``pinned``: the blocks of its job's previous turn are kept."""
    if request.status is RequestStatus.PREEMPTED:
        return QueueRank.PREEMPTED
    return QueueRank.PINNED if pinned else QueueRank.OTHER


def requeue(room: WaitingQueues, request_ids: Iterable[str]) -> None:
    """Their job's pin came or went: put waiting requests where they belong now."""
    for request_id in request_ids:
        for queue in (room.waiting, room.skipped):
            request = queue.get(request_id)
            if request is not None:
                queue.discard(request)
                queue.add(request)
