"""Events of single requests with their times, for clients that draw time lines: queued, scheduled, preempted."""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from typing import NamedTuple

from tokenyard.request import Request

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


class RequestEvents:
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

    def forget(self, request: Request) -> None:
        """It has ended, and nobody will ask."""
        self._pending.pop(request, None)
