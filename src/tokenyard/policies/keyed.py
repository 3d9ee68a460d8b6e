"""Policies that order both queues of the waiting room by a key of the request."""

from __future__ import annotations

from math import isnan

from tokenyard.errors import PolicyError, shown
from tokenyard.request import Request
from tokenyard.sched.policy import Policy
from tokenyard.sched.policy_gate import named
from tokenyard.sched.queues.waiting import PriorityQueue, RequestQueue, WaitingQueues

__all__ = ["Key", "KeyedPolicy"]

Key = tuple[float, ...]


class KeyedPolicy(Policy):
    """The least key first, whichever queue it is in; the request id breaks ties within a queue."""

    def key(self, request: Request) -> Key:
        """Sorts requests; taken when one joins a queue, and when a session that waits there gets its next input.

        So it must not change otherwise while the request waits.
        """
        return (request.arrival_time,)

    def new_queue(self) -> RequestQueue:
        asked = named(self, "key", self.key)

        def checked(request: Request) -> Key:
            key = asked(request)
            if not isinstance(key, tuple) or not all(isinstance(each, int | float) and not isnan(each) for each in key):
                raise PolicyError(self, "key", f"returned {shown(key)}: return a tuple of numbers")
            return key

        return PriorityQueue(key=checked)

    def next_queue(self, room: WaitingQueues) -> RequestQueue:
        waiting, skipped = room.waiting, room.skipped
        if not len(skipped) or (len(waiting) and self.key(waiting.peek()) < self.key(skipped.peek())):
            return waiting
        return skipped
