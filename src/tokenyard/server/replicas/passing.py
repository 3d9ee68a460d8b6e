"""An HTTP request, carried to an application in another process, and its answer, piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Scope

__all__ = ["Carried", "Head", "answered"]


class Carried(NamedTuple):
    """A request whose body was read."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Head(NamedTuple):
    """The beginning of an answer."""

    status: int
    headers: list[tuple[bytes, bytes]]


class _Exchange:
    """One request at one application."""

    def __init__(self, request: Carried) -> None:
        self._request = request
        self._is_read = False
        self._gone = asyncio.Event()
        self.head: Head | None = None
        self.told = asyncio.Event()
        """There is something new."""
        self.pieces: list[bytes] = []

    def leave(self) -> None:
        """The client is gone."""
        self._gone.set()

    @property
    def scope(self) -> Scope:
        request = self._request
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.path.encode(),
            "root_path": "",
            "query_string": request.query,
            "headers": request.headers,
            "client": None,
            "server": None,
            "state": {},
        }

    async def receive(self) -> Message:
        """The body once, then the client's leaving."""
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take in a part of the answer."""
        if message["type"] == "http.response.start":
            self.head = Head(message["status"], [(bytes(name), bytes(value)) for name, value in message["headers"]])
        elif message.get("body"):
            self.pieces.append(message["body"])
        self.told.set()


async def answered(app: ASGIApp, request: Carried) -> AsyncGenerator[Head | bytes, None]:
    """The head of the application's answer, then its body as it comes; what came together is one piece.

    Whoever closes it early has left: the application is told, and waited for. Raises what it raises.
    """
    exchange = _Exchange(request)
    task = asyncio.ensure_future(app(exchange.scope, exchange.receive, exchange.send))
    task.add_done_callback(lambda _: exchange.told.set())
    try:
        is_head_told = False
        while True:
            await exchange.told.wait()
            exchange.told.clear()
            is_over = task.done()
            if exchange.head is not None and not is_head_told:
                is_head_told = True
                yield exchange.head
            if exchange.pieces:
                pieces, exchange.pieces = exchange.pieces, []
                yield b"".join(pieces)
            if is_over and not exchange.pieces:
                task.result()
                return
    finally:
        exchange.leave()
        await asyncio.gather(task, return_exceptions=True)
