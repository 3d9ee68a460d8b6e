"""Clients that leave before they have their answer: what is being done for them ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenyard.server.openai.errors import going_down

__all__ = ["Ending", "EventStream", "GoneError", "on_gone", "unless_gone"]

_GONE = 499
"""Nobody reads it; it is what nginx writes into its log."""

_Result = TypeVar("_Result")


class GoneError(Exception):
    """Nobody waits for the answer any more."""


def on_gone(_: Request, __: Exception) -> Response:
    """The answer to a client that has left."""
    return Response(status_code=_GONE)


class Ending:
    """ASGI middleware: who is still being served when the server's time to end is over is told so."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on."""
        has_begun = False

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                raise
            if not has_begun:
                await going_down().response()(scope, receive, send)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _first_of(work: Coroutine[Any, Any, _Result], receive: Receive) -> _Result:
    """The result of ``work``, which is cancelled if the client leaves: GoneError then."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise GoneError
        return working.result()
    finally:
        for each in (working, leaving):
            each.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def unless_gone(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of ``work``, which is cancelled if the client leaves: GoneError then. The body was read before."""
    return await _first_of(work, request.receive)


class EventStream(Response):
    """Server-sent events. The generator is closed in any case: when it ends, and when the client leaves."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncGenerator[bytes, None], first: bytes, headers: dict[str, str] | None = None
    ) -> None:
        """``first`` is the first event, which was waited for: what could be refused has been by now."""
        super().__init__(headers={"Cache-Control": "no-cache", **(headers or {})})
        del self.headers["content-length"]
        self._events = events
        self._first = first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events as they come."""
        try:
            await _first_of(self._send_all(send), receive)
        except GoneError:
            return
        except asyncio.CancelledError:  # the server goes down, and its time to end is over
            await send({"type": "http.response.body", "body": going_down().event(), "more_body": False})
        finally:
            await self._events.aclose()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async for event in self._events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
