"""Events of single requests with their times, for clients that draw time lines: queued, scheduled, preempted."""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from typing import NamedTuple

from tokenyard.request import Request
from tokenyard.sched.features.hooks import StepHook
from tokenyard.sched.limits.candidate import Candidate

__all__ = ["EventType", "RequestEvent", "RequestEvents"]


class EventType(IntEnum):
    """What happened (vLLM's ``EngineCoreEventType``)."""

    QUEUED = 1
    """It arrived, or a session got its next input."""
    SCHEDULED = 2
    """It was admitted, for the first time or again."""
    PREEMPTED = 3
    """It lost its blocks."""


class RequestEvent(NamedTuple):
    """One event; ``timestamp`` is in seconds on the scheduler's clock."""

    type: EventType
    timestamp: float


class RequestEvents(StepHook):
    """Events that no client has been told yet."""

    def __init__(self) -> None:
        self._pending: defaultdict[Request, list[RequestEvent]] = defaultdict(list)

    def __len__(self) -> int:
        """Requests with events that nobody has been told."""
        return len(self._pending)

    def record(self, request: Request, kind: EventType, timestamp: float) -> None:
        """Something happened to a request."""
        self._pending[request].append(RequestEvent(kind, timestamp))

    def take(self, request: Request) -> tuple[RequestEvent, ...]:
        """Its events since the last call."""
        return tuple(self._pending.pop(request, ()))

    def request_added(self, now: float, request: Request) -> None:
        self.record(request, EventType.QUEUED, now)

    def request_admitted(self, now: float, candidate: Candidate) -> None:
        self.record(candidate.request, EventType.SCHEDULED, now)

    def request_preempted(self, now: float, request: Request) -> None:
        self.record(request, EventType.PREEMPTED, now)

    def request_aborted(self, request: Request) -> None:
        self._pending.pop(request, None)
