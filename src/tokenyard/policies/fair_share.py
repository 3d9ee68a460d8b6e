"""Weighted fair sharing between users: whoever has been given least goes first (virtual token counters).

A *user* is a ``client_index`` (one per front end) and, within it, the part of ``job_id`` before its first ``/``:
``alice/task-7`` is alice's. A job id without ``/`` is a user of its own; requests without a job share their client's
counter. Within a user it is first come, first served. Whoever comes back from being idle starts no lower than the
lowest of those who wait: idleness earns no credit.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from tokenyard.errors import ConfigError
from tokenyard.policies.service import ServiceMeter
from tokenyard.policies.user_queue import User, UserQueue, user_of
from tokenyard.request import Request
from tokenyard.sched.policy import Policy
from tokenyard.sched.queues.waiting import RequestQueue, WaitingQueues

__all__ = ["FairShare"]

_MANY_USERS = 10_000
"""Counters kept before those are dropped that an arrival would lift anyway."""


class FairShare(Policy):
    """The user who was given least goes first, by weight; a user is a client, or what stands before / in the job id.

    ``weights`` by user name: a user of weight 2 is given twice the tokens of one of weight 1 (the default).
    """

    reads_tokens = False
    reorders = True

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {})
        for name, weight in self._weights.items():
            if not 0 < weight < inf:
                raise ConfigError("weights", f"{name}: {weight}", "give a number above 0")
        self.given: dict[User, float] = {}
        """Weighted tokens per user; only their differences mean something."""
        self._meter = ServiceMeter(self._charge)
        self._taken: dict[User, float] = {}
        """Prompts admitted in this step, until the meter charges for them."""
        self._queues: list[UserQueue] = []
        """The waiting room's two, which are the first it asks for."""
        self._floor = 0.0
        """Counter of the user served last: where users start when nobody waits."""

    def new_queue(self) -> RequestQueue:
        queue = UserQueue(self._counter, self._charge_in_advance)
        if len(self._queues) < 2:
            self._queues.append(queue)
        return queue

    def next_queue(self, room: WaitingQueues) -> RequestQueue:
        if not len(room.skipped) or (
            len(room.waiting) and self._counter_of_head(room.waiting) < self._counter_of_head(room.skipped)
        ):
            return room.waiting
        return room.skipped

    def request_arrived(self, now: float, request: Request) -> None:
        user = user_of(request)
        lines = [queue.lines for queue in self._queues]
        if sum(len(line[user]) for line in lines if user in line) > 1:
            return
        others = {other for line in lines for other in line} - {user}
        least = min((self.given.get(other, 0.0) for other in others), default=self._floor)
        self.given[user] = max(self.given.get(user, 0.0), least)
        if len(self.given) > _MANY_USERS:
            self.given = {
                u: counter for u, counter in self.given.items() if counter > least or u in others or u == user
            }

    def step_begins(self, now: float, room: WaitingQueues) -> None:
        self._taken.clear()
        if len(room) or len(self._meter) > _MANY_USERS:
            self._meter.charge_output()

    def request_admitted(self, now: float, request: Request) -> None:
        self._meter.admitted(request)
        self._floor = self.given.get(user_of(request), 0.0)

    def _counter_of_head(self, queue: RequestQueue) -> float:
        return self._counter(user_of(queue.peek()))

    def _counter(self, user: User) -> float:
        return self.given.get(user, 0.0) + self._taken.get(user, 0.0)

    def _weighted(self, request: Request, tokens: int) -> float:
        return tokens / self._weights.get(user_of(request)[1], 1.0)

    def _charge_in_advance(self, request: Request) -> None:
        user = user_of(request)
        self._taken[user] = self._taken.get(user, 0.0) + self._weighted(request, request.num_tokens)

    def _charge(self, request: Request, tokens: int) -> None:
        user = user_of(request)
        self.given[user] = self.given.get(user, 0.0) + self._weighted(request, tokens)
