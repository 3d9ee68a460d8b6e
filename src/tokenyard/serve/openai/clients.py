"""Clients that leave before they have their answer, or wait for too long: what is done for them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenyard.serve.openai.connection import Connection, connection_of
from tokenyard.serve.openai.fields import going_down, timed_out

_GONE = 499
"""The client that left does not read it; it is what nginx writes into its log."""

_Result = TypeVar("_Result")


class GoneError(Exception):
    """The client does not wait for the answer any more."""


def on_gone(_: Request, __: Exception) -> Response:
    """The answer to a client that has left."""
    return Response(status_code=_GONE)


class Ending:
    """ASGI middleware: who is still being served when the server's time to end is over gets a line that says so."""

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


class ForClient:
    """``async with``: what is done inside ends when the client leaves, and after ``seconds``, if any are given.

    It is cancelled then, and leaves as a GoneError, or as the ApiError for the time that is over. The body of the
    request was read before. A ``connection`` says itself that the client leaves; else a task waits for that.
    """

    def __init__(self, receive: Receive, seconds: float | None = None, *, connection: Connection | None = None) -> None:
        self._receive, self._seconds, self._connection = receive, seconds, connection
        self._watcher: asyncio.Future[None] | None = None
        self._reason: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelled_before = task, task.cancelling()
        if self._connection is None:
            self._watcher = asyncio.ensure_future(self._watch())
        else:
            self._connection.when_lost(self._gone)
        if self._seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._time_is_over, self._seconds)

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone()

    def _gone(self) -> None:
        self._end(GoneError())

    def _time_is_over(self, seconds: float) -> None:
        self._end(timed_out(seconds))

    def _end(self, reason: Exception) -> None:
        if self._reason is None:
            self._reason = reason
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        elif self._connection is not None:
            self._connection.when_lost(None)
        if self._timer is not None:
            self._timer.cancel()
        if self._reason is not None:
            others = self._task.uncancel() - self._cancelled_before
            if others <= 0 and kind is asyncio.CancelledError:
                raise self._reason from None


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of ``work``, which is cancelled if the client leaves: GoneError then. The body was read before."""
    async with ForClient(request.receive, connection=connection_of(request.scope)):
        return await work
