"""The edge of all servers: bounded bodies, connections that cost too much, problems as JSON."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
import socket
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from itertools import count
from typing import Any, NamedTuple

import msgspec
import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.web.framing import Framing, FramingError

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
_KEEPER = "tokenyard.keeper"
"""Key in the state that the connections of a server share."""


class _Coming:
    """A body of which something has come, and not all."""

    def __init__(self, ends: asyncio.Timeout) -> None:
        self.ends = ends
        self.size = 0
        self.gave_way = False
        """There was no room for it any more."""


class BodyRoom:
    """Memory for the bodies that are coming, of all clients of a server together."""

    def __init__(self, most: int = 2**28) -> None:
        self.most = most
        self.held = 0
        self._coming = dict[_Coming, None]()

    def grew(self, body: _Coming, size: int, largest: int) -> None:
        """A body has so many bytes now, and may have ``largest``. Where room is short, the one that came first goes."""
        self._coming[body] = None
        self.held += size - body.size
        body.size = size
        while self.held > max(self.most, 2 * largest):
            first = next(iter(self._coming))
            self.left(first)
            first.gave_way = True
            if not first.ends.expired():
                first.ends.reschedule(0)

    def left(self, body: _Coming) -> None:
        """It is complete, or given up."""
        self._coming.pop(body, None)
        self.held -= body.size
        body.size = 0


def _room_of(request: Request) -> BodyRoom:
    keeper = request.scope.get("state", {}).get(_KEEPER)
    return BodyRoom() if keeper is None else keeper.bodies


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
    if is_there:
        return await _read(request, most, lambda size: None)
    room, coming = _room_of(request), _Coming(asyncio.timeout(BODY_SECONDS))
    try:
        async with coming.ends:
            return await _read(request, most, lambda size: room.grew(coming, size, most))
    except TimeoutError:
        came = f"{coming.size} bytes"
        if coming.gave_way:
            await _thrown_away(request)
            raise RefusedError(503, "body", came, "there was no room for it among those of others: retry") from None
        raise RefusedError(408, "body", came, f"must come within {BODY_SECONDS:g} seconds") from None
    finally:
        room.left(coming)


async def _thrown_away(request: Request) -> None:
    """Drop what still comes, for a second: closed with bytes unread, a connection takes the answer with it."""
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(1.0):
            async for _ in request.stream():
                pass


async def _read(request: Request, most: int, grew: Callable[[int], None]) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise RefusedError(413, "body", f"more than {most} bytes", f"must not be longer than {most} bytes")
        grew(len(body))
    return bytes(body)


# ---------------------------------------------------------------------------------------------------------------------
# Connections that cost something and bring nothing: those that send no request, those that read no answer, and many
# from one address.
#
# uvicorn has a time-out after an answer and none before a request. Here the connection that has been idle longest is
# closed where there are too many; a client is refused (by uvicorn's `limit_concurrency`) where all others are served.

_SECONDS_BETWEEN = 0.05
"""Seconds between two counts of the connections of each address."""
_SPARE_FILES = 64
"""Open files that are no connections: the trace, pipes, libraries."""


_TURNS = 4
"""Turns of asyncio's loop until a connection that it accepts is counted, and the file of one that is closed is free."""


_QUEUE = 1024
"""Connections that wait in the system's queue; those of clients that come then are tried again after a second."""


class FileShare(NamedTuple):
    """How many of the files that this process may open are for clients."""

    connections: int
    backlog: int
    """Connections that the event loop may accept at a time."""


MOST_CLIENTS = 16_384
"""Connections of a server whose answers read no files, if it may open as many: memory is bounded, too."""


def share_of_files(most: int, *, per_answer: int = 0) -> FileShare:
    """At most ``most`` connections, which leaves files for the backlog, and for ``per_answer`` of each answer."""
    if sys.platform == "win32":
        return FileShare(min(most, 256), 128)
    import resource  # noqa: PLC0415 - not everywhere

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        files = 2**20
    backlog = max(4, min(1024, files // 16))
    left = files - _TURNS * backlog - min(_SPARE_FILES, files // 4)
    return FileShare(max(16, min(most, left // (1 + per_answer))), backlog)


def most_connections() -> int:
    """Connections that leave open files for the answers: each reads one."""
    return share_of_files(512, per_answer=1).connections


_numbers = count(1)


class Bounds(asyncio.Protocol):
    """Put before one of uvicorn's protocols: framing, a time to ask, a time to read, a bound on idle connections."""

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
    most_of_bodies = 2**28
    """Bytes of all bodies that are coming, or two of the largest; beyond, the one that began first gives way."""

    # uvicorn's
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    connections: set[Any]
    app_state: dict[str, Any]
    client: tuple[str, int] | None
    cycle: Any
    flow: Any

    since = 0.0
    """When something last happened here, to about a second."""
    number = 0
    """Counts connections: a loop's clock may tell one time of several."""
    _last: tuple[object, ...] | None = None
    _num_resumed = 0
    _refused: FramingError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        self.number, self.since = next(_numbers), self.loop.time()
        self._framing = Framing()
        keeper = self.app_state.get(_KEEPER)
        if keeper is None:
            keeper = self.app_state[_KEEPER] = _Keeper(self)
        keeper.came()

    def data_received(self, data: bytes) -> None:
        if self._refused is not None:
            return
        try:
            self._framing.feed(data)
        except FramingError as error:
            if error.taken:
                super().data_received(data[: error.taken])
            self._refused = error
            self._refuse(error)
        else:
            super().data_received(data)

    def _refuse(self, error: FramingError) -> None:
        """Say why, and close: now, or when the answers before have been sent."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            if not error.is_of_body:
                self.flow.pause_reading()  # on_response_complete goes on
                return
            if self.cycle.response_started:
                self.transport.abort()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        text = f"{error}\n"
        head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nContent-Type: text/plain; charset=utf-8"
        size = f"Content-Length: {len(text)}\r\nConnection: close"
        self.transport.write(f"{head}\r\n{size}\r\n\r\n{text}".encode())
        self.transport.close()

    def on_response_complete(self) -> None:
        """Called by the cycle of a request."""
        super().on_response_complete()  # type: ignore[misc]  # uvicorn's
        if self._refused is not None:
            self._refuse(self._refused)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._num_resumed += 1

    def shutdown(self) -> None:
        """Called by the server when it ends."""
        super().shutdown()  # type: ignore[misc]  # uvicorn's
        self.loop.call_later(self.seconds_to_end, self.transport.abort)

    @property
    def is_idle(self) -> bool:
        """No request is being answered, and no answer being read."""
        is_done = self.cycle is None or self.cycle.response_complete
        return is_done and not self.transport.get_write_buffer_size()

    def look(self, now: float) -> None:
        """Close the connection if nothing has happened for too long."""
        unread, is_idle = self.transport.get_write_buffer_size(), self.is_idle
        # A cycle per request: one that came and went between two looks has one of its own.
        found = (is_idle, unread, self._num_resumed, self.cycle)
        if found != self._last:
            self._last, self.since = found, now
        elif (unread and now - self.since >= self.seconds_to_read) or (
            is_idle and now - self.since >= self.seconds_to_ask
        ):
            self.close()

    def close(self) -> None:
        """Whatever it is doing."""
        self.connections.discard(self)
        self.transport.abort()

    @property
    def address(self) -> str | None:
        return self.client[0] if self.client else None


class BoundedConnection(Bounds, H11Protocol):
    """uvicorn's HTTP/1.1 by h11."""


class _Keeper:
    """Looks at all connections of a server: every second or so, and when there are more."""

    def __init__(self, one: Bounds) -> None:
        self._loop, self._connections, self._rules = one.loop, one.connections, type(one)
        self.bodies = BodyRoom(one.most_of_bodies)
        self._counts = self._looks = False
        """A call is due."""

    def came(self) -> None:
        """There is one more connection."""
        if len(self._connections) > self._rules.most:
            self._make_room()
        if not self._counts:
            self._counts = True
            self._loop.call_later(_SECONDS_BETWEEN, self._count)
        if not self._looks:
            self._look_later()

    def _look_later(self) -> None:
        rules = self._rules
        self._looks = True
        self._loop.call_later(min(1.0, rules.seconds_to_ask / 4, rules.seconds_to_read / 4), self._look)

    def _all(self) -> list[Bounds]:
        return [each for each in self._connections if isinstance(each, Bounds)]

    def _idle(self) -> list[Bounds]:
        """The oldest first."""
        return sorted((each for each in self._all() if each.is_idle), key=lambda each: (each.since, each.number))

    def _look(self) -> None:
        self._looks, now = False, self._loop.time()
        for each in self._all():
            each.look(now)
        if self._connections:
            self._look_later()

    def _make_room(self) -> None:
        """Close idle connections beyond the bound of all, but for the newest, and some more: it is not cheap."""
        most = self._rules.most
        for each in self._idle()[:-1][: len(self._connections) - most + most // 16]:
            each.close()

    def _count(self) -> None:
        """Close idle connections of an address that has too many of them."""
        self._counts, rules = False, self._rules
        if rules.idle_per_client >= rules.most:
            return
        of_address = defaultdict[str | None, list[Bounds]](list)
        for each in self._idle():
            of_address[each.address].append(each)
        for group in of_address.values():
            old = [each for each in group if each.since <= self._loop.time() - rules.seconds_new]
            for each in old[: max(0, len(group) - rules.idle_per_client)]:
                each.close()


class EdgeServer(uvicorn.Server):
    """uvicorn's server. The event loop accepts as many connections at a time as it can count (``backlog``); more wait
    in the system's queue, where they cost no open file.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(_QUEUE)


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


# ---------------------------------------------------------------------------------------------------------------------
# Which clients a server admits, and with which key: the same rules for view, serve and emulate.

# ---------------------------------------------------------------------------------------------------------------------
# Which clients the server admits: programs of this machine, and pages that the server itself gave out.
#
# A page of another site must not reach it through the visitor's browser: not by a request across origins (``Origin``,
# ``Sec-Fetch-Site``), and not by a name of its own that it lets point to 127.0.0.1 ("DNS rebinding", ``Host``).

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


_READING = frozenset(("GET", "HEAD"))
"""Methods of requests that change nothing: links of other pages make them."""
_HOST = re.compile(r"(\[(?P<six>[0-9A-Fa-f:.]*)\]|(?P<name>[^:\[\]]*))(:[0-9]{0,5})?", re.ASCII)
"""A ``Host`` header."""


class Guard:
    """ASGI middleware. ``bound`` is the address on which the server listens; ``refuse`` makes a refusal.

    Pages of ``origins`` may call it as well; ``*`` stands for all.
    """

    def __init__(
        self,
        app: ASGIApp,
        bound: str,
        refuse: Callable[[RefusedError], Response] = RefusedError.response,
        *,
        origins: Sequence[str] = (),
    ) -> None:
        self._app = app
        self._refuse = refuse
        self._origins = frozenset(origins)
        self._only_loopback = is_loopback(bound)
        self._names = {bound.lower().strip("[]"), "localhost"}
        if not self._only_loopback:
            self._names.add(socket.gethostname().lower())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on; every answer gets the headers that keep other sites out."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self.refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send_guarded)

    def refusal(self, scope: Scope) -> Response | None:
        """What a request is answered with that is not admitted; None: it is."""
        problem = self._problem(scope)
        return None if problem is None else self._refuse(problem)

    def _problem(self, scope: Scope) -> RefusedError | None:
        host, hosts, is_named = "", 0, False
        asked = {b"host", b"origin", b"sec-fetch-site"}
        found = [(name, value.decode("latin-1")) for name, value in scope["headers"] if name in asked]
        for name, value in found:
            if name == b"host":
                host, hosts = value, hosts + 1
        if hosts > 1 or not self._is_ours(_without_port(host)):
            return RefusedError(403, "Host", host, "must be an address of this machine: open the URL that was printed")
        for name, value in found:
            if name == b"origin":
                is_named = not self._origins.isdisjoint((value, "*"))
                if not is_named and value not in (f"http://{host}", f"https://{host}"):
                    return RefusedError(403, "Origin", value, "only pages of this server may call it")
        is_looked_at = not is_named and (scope["path"].startswith("/api/") or scope["method"] not in _READING)
        for name, value in found:
            if name == b"sec-fetch-site" and is_looked_at and value not in ("same-origin", "none"):
                return RefusedError(403, "Sec-Fetch-Site", value, "only pages of this server may call it")
        return None

    def _is_ours(self, name: str) -> bool:
        # Rebinding needs a name: an address cannot be made to point elsewhere.
        if name.lower() in self._names:
            return True
        return is_loopback(name) or (not self._only_loopback and _is_address(name))


def is_loopback(name: str) -> bool:
    """An address, or the name, by which only this machine is reached."""
    return name.lower() == "localhost" or (_is_address(name) and ipaddress.ip_address(name.strip("[]")).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _without_port(host: str) -> str:
    """The name or address; nothing where what follows it is no port."""
    matched = _HOST.fullmatch(host)
    return "" if matched is None else matched["six"] or matched["name"]


# ---------------------------------------------------------------------------------------------------------------------
# A viewer with a key: a browser that opens the address that was printed gets a cookie, any other nothing.


class Key:
    """ASGI middleware. ``/?key=KEY`` answers with a cookie and leads to the page without the key in its address."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key
        # Cookies are shared by all ports of a host: each viewer has one of its own.
        self._cookie = f"tokenyard-{hashlib.sha256(key.encode()).hexdigest()[:12]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        app: ASGIApp = self._app
        if scope["path"] == "/" and self._is_right(request.query_params.get("key", "")):
            answer = RedirectResponse("/", status_code=303)
            answer.set_cookie(self._cookie, self._key, httponly=True, samesite="lax")
            app = answer
        elif not self._is_right(request.cookies.get(self._cookie, "")):
            fix = "open the address that the server has printed, which holds its key"
            app = RefusedError(401, "key", "none, or another one", fix).response()
        await app(scope, receive, send)

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self._key.encode())


# ---------------------------------------------------------------------------------------------------------------------
# API keys: a client without one gets nothing but the server's health.


class ApiKeys:
    """ASGI middleware. Keys are compared in constant time, and all of them every time."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Sequence[str] | None,
        *,
        refuse: Callable[[], Response],
        is_open: Callable[[Scope], bool] = lambda scope: scope["path"] == "/health",
    ) -> None:
        """``keys``: those that are right; None: any is, but there has to be one. ``is_open``: none is asked for."""
        for key in keys or ():
            if not key.strip() or not key.isascii():
                raise ConfigError("api_key", "an empty key" if not key.strip() else "a key", "give ASCII characters")
        self._app = app
        self._refuse, self._is_open = refuse, is_open
        self._digests = None if keys is None else [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on."""
        is_admitted = scope["type"] != "http" or self._is_open(scope) or self.is_known(Headers(scope=scope))
        await (self._app if is_admitted else self._refuse())(scope, receive, send)

    def is_known(self, headers: Headers) -> bool:
        """Whether there is a key that is right."""
        kind, _, key = headers.get("authorization", "").partition(" ")
        if self._digests is None:
            return kind.lower() == "bearer" and bool(key.strip())
        digest = _digest(key.strip().encode(errors="replace"))
        found = [hmac.compare_digest(digest, each) for each in self._digests]
        return kind.lower() == "bearer" and any(found)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
