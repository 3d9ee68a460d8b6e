"""An answer to the client, at once or as a stream, for as long as there is somebody to take it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from tokenyard.server.openai.generating import Piece, events_of
from tokenyard.server.openai.going_away import EventStream, unless_gone
from tokenyard.server.web.problems import json_response

__all__ = ["Answer", "reply", "reply_at_once"]


class Answer(Protocol):
    """How the pieces of an answer are told."""

    def chunks(self, together: AsyncGenerator[Piece, None]) -> AsyncGenerator[dict[str, Any], None]:
        """Of a stream."""

    async def whole(self, together: AsyncGenerator[Piece, None]) -> dict[str, Any]:
        """At once."""


async def reply(
    http: Request, together: AsyncGenerator[Piece, None], answer: Answer, *, stream: bool, ignored: Sequence[str]
) -> Response:
    """The response. What goes wrong before its first byte is raised."""
    if not stream:
        return await reply_at_once(http, answer.whole(together), ignored=ignored)
    events = events_of(answer.chunks(together), getattr(http.state, "prompt_field", "prompt"))
    first = await unless_gone(http, _first(events))
    return EventStream(events, first, _headers(ignored))


async def reply_at_once(
    http: Request, work: Coroutine[Any, Any, dict[str, Any]], *, ignored: Sequence[str]
) -> Response:
    """The response, which is what ``work`` returns. What goes wrong is raised, also that the client has left."""
    return json_response(await unless_gone(http, work), headers=_headers(ignored))


def _headers(ignored: Sequence[str]) -> dict[str, str]:
    return {"Tokenyard-Ignored": ", ".join(ignored)} if ignored else {}


async def _first(events: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(events)
