"""What a connection passes to an application beside ASGI: when a request came, that its client has left, and a way to
write a piece at once.

    scope["extensions"]["tokenyard.connection"]    a :class:`Connection`, where uvicorn serves with httptools

An application that gets none uses ASGI alone: what is sent has the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from starlette.types import Scope

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_NAME = "tokenyard.connection"


class Connection(Protocol):
    """The connection of a request."""

    received_at: float
    """When its head was there, in seconds of ``time.monotonic``."""

    @property
    def body_is_there(self) -> bool:
        """All of the body has come."""

    def write(self, piece: bytes) -> bool:
        """A piece of a body that has begun and goes on; False: it has to be sent, as the client takes none now."""

    def when_lost(self, call: Callable[[], None] | None) -> None:
        """Call it when the client leaves, or now if it has; None: call nothing. The body has been read before."""


class CycleConnection:
    """The connection of one of uvicorn's cycles of request and response."""

    __slots__ = ("_cycle", "_flow", "_transport", "_when_lost", "received_at")

    def __init__(self, cycle: RequestResponseCycle, received_at: float) -> None:
        self._cycle, self._flow, self._transport = cycle, cycle.flow, cycle.transport
        self._when_lost: Callable[[], None] | None = None
        self.received_at = received_at

    @property
    def body_is_there(self) -> bool:
        return not self._cycle.more_body

    @property
    def is_over(self) -> bool:
        """The response is complete."""
        return self._cycle.response_complete

    def when_lost(self, call: Callable[[], None] | None) -> None:
        self._when_lost = call
        if call is not None:
            self._flow.resume_reading()  # who does not read does not see a client leave
            if self._cycle.disconnected or self._transport.is_closing():
                call()

    def lost(self) -> None:
        """The client has left."""
        if self._when_lost is not None:
            self._when_lost()

    def write(self, piece: bytes) -> bool:
        cycle = self._cycle
        if self._flow.write_paused or cycle.disconnected or cycle.response_complete or not cycle.chunked_encoding:
            return False
        self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True


def connection_of(scope: Scope) -> Connection | None:
    """The connection of a request; None: ASGI is all there is."""
    extensions: dict[str, Any] = scope.get("extensions") or {}
    found: Connection | None = extensions.get(_NAME)
    return found


def tell_connection(scope: Any, connection: Connection) -> None:
    """Pass it to an application."""
    scope["extensions"] = {**scope.get("extensions", {}), _NAME: connection}


def without_connection(scope: Scope) -> Scope:
    """The same request for an application that is to send everything: something listens to what is sent."""
    return {**scope, "extensions": {k: v for k, v in (scope.get("extensions") or {}).items() if k != _NAME}}
