"""Connections that cost something and bring nothing: those that send no request, those that read no answer, and many
from one address.

uvicorn has a time-out after an answer and none before a request, and beyond a number of connections it refuses
everybody. Here nobody is refused because others are idle: who has been idle longest is closed.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tokenyard.server.web.problems import RefusedError

__all__ = ["BoundedConnection", "FairShare", "most_connections"]

_DUE = "tokenyard.room_is_due"
"""In the state that the connections of a server share."""
_SECONDS_BETWEEN = 0.05
"""Between two looks at all of them."""


def most_connections() -> int:
    """As many as leave open files for the answers: each reads one."""
    if sys.platform == "win32":
        return 256
    import resource  # noqa: PLC0415 - not everywhere

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 512 if files == resource.RLIM_INFINITY else max(16, min(512, files // 3))


class BoundedConnection(H11Protocol):
    """uvicorn's HTTP/1.1 with a time to ask, a time to read, and a bound on idle connections."""

    seconds_to_ask = 10.0
    """From the connection, or from the last answer, until the head of a request is complete."""
    seconds_to_read = 60.0
    """In which a client has to take something of an answer that waits for it."""
    seconds_to_end = 0.4
    """For answers that are under way when the server goes down."""
    idle_per_client = 32
    """Idle connections of one address; more only while they are new."""
    seconds_new = 1.0
    most = most_connections()
    """Connections of all clients; beyond, idle ones are closed however new they are."""

    _look_again: asyncio.TimerHandle
    _state: tuple[object, ...] | None = None
    since = 0.0
    """When something last happened here, to about a second."""
    _num_resumed = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        self._look()
        if not self.app_state.get(_DUE):
            self.app_state[_DUE] = True
            self.loop.call_later(_SECONDS_BETWEEN, self._make_room)

    def connection_lost(self, exc: Exception | None) -> None:
        self._look_again.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._num_resumed += 1

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(self.seconds_to_end, self.transport.abort)

    @property
    def is_idle(self) -> bool:
        """No request is being answered, and no answer being read."""
        is_done = self.cycle is None or self.cycle.response_complete
        return is_done and not self.transport.get_write_buffer_size()

    def _look(self) -> None:
        """Close the connection if nothing has happened for too long."""
        unread, now = self.transport.get_write_buffer_size(), self.loop.time()
        # A cycle per request: one that came and went between two looks has one of its own.
        state = (self.is_idle, unread, self._num_resumed, self.cycle)
        if state != self._state:
            self._state, self.since = state, now
        elif (unread and now - self.since >= self.seconds_to_read) or (
            self.is_idle and now - self.since >= self.seconds_to_ask
        ):
            self.transport.abort()
        self._look_again = self.loop.call_later(min(1.0, self.seconds_to_ask / 4, self.seconds_to_read / 4), self._look)

    def _make_room(self) -> None:
        """Close idle connections, of whomever, that are beyond a bound: the oldest first."""
        self.app_state[_DUE] = False
        everybody = [each for each in self.connections if isinstance(each, BoundedConnection)]
        idle = sorted((each for each in everybody if each.is_idle), key=lambda each: each.since)
        excess = max(0, len(everybody) - self.most)
        closed, of_address = idle[:excess], defaultdict[str | None, list[BoundedConnection]](list)
        for each in idle[excess:]:
            of_address[each.address].append(each)
        for group in of_address.values():
            old = [each for each in group if each.since <= self.loop.time() - self.seconds_new]
            closed += old[: max(0, len(group) - self.idle_per_client)]
        for each in closed:
            self.connections.discard(each)
            each.transport.abort()

    @property
    def address(self) -> str | None:
        return self.client[0] if self.client else None


class FairShare:
    """ASGI middleware: of all that is being answered, one address gets half at most."""

    def __init__(self, app: ASGIApp, most: int = most_connections() // 2) -> None:
        self._app = app
        self._most = most
        self._answering: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        address = scope["client"][0] if scope.get("client") else ""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._answering[address] >= self._most:
            fix = f"{self._most} requests from there are being answered: ask again later"
            await RefusedError(503, "client", address, fix).response()(scope, receive, send)
        else:
            self._answering[address] += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._answering[address] -= 1
                if not self._answering[address]:
                    del self._answering[address]
