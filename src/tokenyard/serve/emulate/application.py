"""From a connection to an endpoint and back: one ASGI application that is no deeper than it has to be.

    request -> of another site? key? -> may browsers send it? -> [heads that all have] -> faults -> endpoint -> answer

Starlette would go through eight layers for each request, and through five for each chunk of a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenyard.errors import TokenyardError
from tokenyard.serve.emulate.faults import Faults, FaultyNetwork
from tokenyard.serve.emulate.forms import on_error
from tokenyard.serve.emulate.live import LATE, RECEIVED, WallClock
from tokenyard.serve.openai.asking import ServerContext
from tokenyard.serve.openai.clients import GoneError, on_gone
from tokenyard.serve.openai.connection import connection_of
from tokenyard.serve.openai.fields import ApiError, going_down
from tokenyard.web.connections import RefusedError

Endpoint = Callable[[Request], Awaitable[Response]]

_EXPECTED = (ApiError, RefusedError, TokenyardError, HTTPException, GoneError, ClientDisconnect)
"""What a request may end with that is no mistake of ours."""


class Path(msgspec.Struct, frozen=True):
    """What answers at a path; one that ends with ``/`` has a name after it, one with ``//`` a name between."""

    path: str
    endpoint: Endpoint
    methods: Sequence[str] = ("GET",)


class EmulatedApplication:
    """ASGI. Starts the engines when it starts."""

    def __init__(
        self,
        context: ServerContext,
        paths: Sequence[Path],
        *,
        faults: Faults,
        clock: WallClock,
        late_seconds: Callable[[], float],
        heads: Sequence[tuple[bytes, bytes]],
        sites: Mapping[str, Any],
        guard: Callable[[ASGIApp], ASGIApp] | None = None,
    ) -> None:
        """``late_seconds``: by how much what comes next is late; ``heads`` are those of every answer.

        ``sites`` say from which ones browsers may send requests, as Starlette takes it; ``guard`` refuses those of
        others, and asks for keys.
        """
        self.context = context
        self._paths = {each.path: each for each in paths}
        self._heads, self._clock, self._late_seconds = [*heads], clock, late_seconds
        self._faulty = FaultyNetwork(self._answer, faults)
        self._for_sites = CORSMiddleware(self._faulty, **sites)
        self._guarded: ASGIApp = self._open if guard is None else guard(self._open)

        @asynccontextmanager
        async def life(_: Starlette) -> AsyncIterator[None]:
            async with context.llm:
                yield

        self._life: Callable[[Starlette], AbstractAsyncContextManager[None]] = life
        self._others = Starlette(lifespan=life)
        """Whatever is no HTTP: the beginning and the end."""

    @property
    def paths(self) -> Sequence[Path]:
        """All that are answered."""
        return list(self._paths.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        await (self._guarded if scope["type"] == "http" else self._others)(scope, receive, send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit the request: there is no key to check."""
        is_of_site = any(name == b"origin" for name, _ in scope["headers"])
        heads = self._heads if is_of_site else [*self._heads, (b"vary", b"Origin")]
        connection = connection_of(scope)
        LATE.set(None)  # tasks of one connection may share what is set
        RECEIVED.set(self._clock.now() if connection is None else self._clock.emulated(connection.received_at))
        told = scope["tokenyard.told"] = _Told(send, heads, self._clock, self._late_seconds)
        await (self._for_sites if is_of_site else self._faulty)(scope, receive, told)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by an endpoint, or with its error; clients still served at the server's end are notified."""
        http, told = Request(scope, receive), scope["tokenyard.told"]
        try:
            response = await self._endpoint(scope)(http)
            # Nothing is left to send of an answer in one piece when it has begun.
            await response(scope, receive, send)
        except asyncio.CancelledError:
            if not told.has_begun:
                await going_down().response()(scope, receive, send)
        except Exception as error:
            if told.has_begun:
                raise
            is_gone = isinstance(error, (GoneError, ClientDisconnect))
            await (on_gone if is_gone else on_error)(http, error)(scope, receive, send)
            if not isinstance(error, _EXPECTED):
                raise

    def _endpoint(self, scope: Scope) -> Endpoint:
        path, name = self._paths.get(scope["path"]), ""
        if path is None:
            before, _, name = scope["path"].rpartition("/")
            path = self._paths.get(before + "/")
            if path is None:
                before, _, between = before.rpartition("/")
                path, name = self._paths.get(f"{before}//{name}"), between
        if path is None:
            raise HTTPException(404)
        if scope["method"] not in path.methods:
            raise HTTPException(405, headers={"Allow": ", ".join(path.methods)})
        scope["path_params"] = {"name": name}
        return path.endpoint


class _Told:
    """Sends, with what every answer's head says."""

    __slots__ = ("_clock", "_heads", "_late_seconds", "_send", "has_begun")

    def __init__(
        self, send: Send, heads: Sequence[tuple[bytes, bytes]], clock: WallClock, late_seconds: Callable[[], float]
    ) -> None:
        self._send, self._heads, self._clock, self._late_seconds = send, heads, clock, late_seconds
        self.has_begun = False
        """The answer is being sent: no other answer can be given."""

    def __call__(self, message: Message) -> Awaitable[None]:
        """Send."""
        if not self.has_begun and message["type"] == "http.response.start":
            self.has_begun = True
            late = LATE.get()
            now = (
                (b"x-emulated-time", f"{self._clock.unix():.6f}".encode()),
                (b"x-emulated-late", f"{self._late_seconds() if late is None else late:.6f}".encode()),
            )
            message = {**message, "headers": [*message.get("headers", ()), *self._heads, *now]}
        return self._send(message)
