"""Bounded bypass: while memory refuses the head of the queue, requests behind it may go first, but not for ever.

With a strict queue one long prompt that has to wait for memory makes every short one behind it wait as well (vLLM's
issues 31731 and 35852). Here those behind it are tried. The head ages: once it has been passed over for ``patience``
seconds, or by ``limit`` admitted requests, nobody passes it any more, memory comes back as running requests end, and it
is admitted.
"""

from __future__ import annotations

from tokenyard.config import require_int
from tokenyard.errors import ConfigError
from tokenyard.request import Request
from tokenyard.sched.policy import Policy
from tokenyard.sched.queues.waiting import WaitingQueues
from tokenyard.sched.steps.outcomes import Outcome

__all__ = ["Bypass"]


class _Blocked:
    """A request that memory refused."""

    __slots__ = ("admitted", "since")

    def __init__(self, since: float, admitted: int) -> None:
        self.since = since
        """When it was refused first."""
        self.admitted = admitted
        """Requests that had been admitted by then."""


class Bypass(Policy):
    """First come, first served, past a head that memory refuses.

    ``looks`` bounds the requests that are passed over in one step, and with them what a step costs.
    """

    reads_tokens = False

    def __init__(self, patience: float = 5.0, limit: int = 64, looks: int = 16) -> None:
        if not 0 <= patience < float("inf"):
            raise ConfigError("patience", patience, "give a number of seconds from 0 on")
        require_int("limit", limit, 0)
        require_int("looks", looks, 1)
        self._patience = patience
        self._limit = limit
        self._looks = looks
        self._now = 0.0
        self._looked = 0
        self._admitted = 0
        self._blocked: dict[str, _Blocked] = {}

    def step_begins(self, now: float, room: WaitingQueues) -> None:
        self._now, self._looked = now, 0
        if len(self._blocked) > 4 * self._looks:
            # Aborted while they were blocked: nobody says so.
            self._blocked = {rid: each for rid, each in self._blocked.items() if room.get(rid) is not None}

    def request_admitted(self, now: float, request: Request) -> None:
        self._admitted += 1
        self._blocked.pop(request.request_id, None)

    def passes_over(self, refusal: Outcome) -> bool:
        assert refusal.request_id is not None
        blocked = self._blocked.setdefault(refusal.request_id, _Blocked(self._now, self._admitted))
        self._looked += 1
        return (
            self._looked <= self._looks
            and self._now - blocked.since < self._patience
            and self._admitted - blocked.admitted < self._limit
        )
