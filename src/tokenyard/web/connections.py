"""The edge of the viewer's server: bounded bodies, connections that cost too much, problems as JSON."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from contextlib import nullcontext
from itertools import count
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tokenyard.errors import TokenyardError

# ---------------------------------------------------------------------------------------------------------------------
# What a request did wrong, as JSON: the field, its value, and what to do.

_SHOWN = 200
"""Characters of a value that are repeated."""


class RefusedError(Exception):
    """A request that is refused."""

    def __init__(self, status: int, field: str, value: object, fix: str) -> None:
        super().__init__(fix)
        self.status = status
        self.field = field
        self.value = value
        self.fix = fix

    def response(self) -> Response:
        """The refusal."""
        text = str(self.value)
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
        return json_response({"error": {"field": self.field, "value": shown, "fix": self.fix}}, self.status)


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """``value`` as JSON; what JSON has no words for becomes text."""
    body = msgspec.json.encode(value, enc_hook=str)
    return Response(body, status, headers, media_type="application/json")


def on_problem(_: Request, problem: Exception) -> Response:
    """Answer a :class:`RefusedError`."""
    assert isinstance(problem, RefusedError)
    return problem.response()


def on_error(_: Request, error: Exception) -> Response:
    """Answer a trace that cannot be read, or an extra that is missing."""
    assert isinstance(error, TokenyardError)
    field, value = ("path", "") if error.field is None else (error.field, error.value)
    return RefusedError(422, field, value, error.fix or str(error)).response()


def whole_number(request: Request, field: str, default: int, *, most: int = 2**53) -> int:
    """A whole number of the query string. Raises RefusedError if it is none, or out of bounds."""
    text = request.query_params.get(field)
    if text is None:
        return default
    # 17 digits are enough for 2^53, and int() would take those of other scripts.
    if not (text.isascii() and text.isdecimal() and len(text) <= 17 and int(text) <= most):
        raise RefusedError(400, field, text, f"must be a whole number from 0 to {most}")
    return int(text)


# ---------------------------------------------------------------------------------------------------------------------
# The body of a request: bounded, and JSON that was called JSON.

BODY_SECONDS = 30.0
"""Seconds in which a body has to come."""


async def json_body(request: Request, most: int, *, is_there: bool = False) -> bytes:
    """The body, if it says that it is JSON and has at most ``most`` bytes. ``is_there``: it need not be waited for.

    A form on another site's page cannot say so without asking this server first.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusedError(415, "Content-Type", kind, "must be application/json")
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > most:
        raise RefusedError(413, "body", f"{said} bytes", f"must not be longer than {most} bytes")
    body = bytearray()
    try:
        async with nullcontext() if is_there else asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise RefusedError(413, "body", f"more than {most} bytes", f"must not be longer than {most} bytes")
    except TimeoutError:
        raise RefusedError(408, "body", f"{len(body)} bytes", f"must come within {BODY_SECONDS:g} seconds") from None
    return bytes(body)


# ---------------------------------------------------------------------------------------------------------------------
# Connections that cost something and bring nothing: those that send no request, those that read no answer, and many
# from one address.
#
# uvicorn has a time-out after an answer and none before a request, and beyond a number of connections it refuses
# every client. Here none is refused because others are idle: the one that has been idle longest is closed.

_DUE = "tokenyard.room_is_due"
"""Key in the state that the connections of a server share."""
_SECONDS_BETWEEN = 0.05
"""Seconds between two looks at all of them."""


def most_connections() -> int:
    """Largest number of connections that leaves open files for the answers: each reads one."""
    if sys.platform == "win32":
        return 256
    import resource  # noqa: PLC0415 - not everywhere

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 512 if files == resource.RLIM_INFINITY else max(16, min(512, files // 3))


_numbers = count(1)


class BoundedConnection(H11Protocol):
    """uvicorn's HTTP/1.1 with a time to ask, a time to read, and a bound on idle connections."""

    seconds_to_ask = 10.0
    """From the connection, or from the last answer, until the head of a request is complete."""
    seconds_to_read = 60.0
    """Seconds in which a client has to take something of an answer that waits for it."""
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
    number = 0
    """Counts connections: a loop's clock may tell one time of several."""
    _num_resumed = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        self.number = next(_numbers)
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
        idle = sorted((each for each in everybody if each.is_idle), key=lambda each: (each.since, each.number))
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


class AddressShare:
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
            fix = f"{self._most} requests from there are being answered: retry later"
            await RefusedError(503, "client", address, fix).response()(scope, receive, send)
        else:
            self._answering[address] += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._answering[address] -= 1
                if not self._answering[address]:
                    del self._answering[address]
