"""A request carried to an application: head and body come back, and a client that leaves is known to have left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tokenyard.serve.openai.app import together
from tokenyard.serve.replicas.passing import Head, ProxiedRequest, answered


def carried(path: str, body: bytes = b"", query: bytes = b"") -> ProxiedRequest:
    return ProxiedRequest("POST", path, query, [(b"x-said", b"yes")], body)


async def echo(request: Request) -> PlainTextResponse:
    said = f"{(await request.body()).decode()} {request.query_params.get('q')} {request.headers['x-said']}"
    return PlainTextResponse(said, status_code=201, headers={"X-Found": "1"})


async def pieces() -> AsyncIterator[bytes]:
    for number in range(5):
        yield str(number).encode()
        await asyncio.sleep(0.01)


async def stream(_: Request) -> StreamingResponse:
    return StreamingResponse(pieces(), media_type="text/event-stream")


APP = Starlette(routes=[Route("/echo", echo, methods=["POST"]), Route("/stream", stream, methods=["POST"])])


def test_an_answer_comes_back() -> None:
    async def work() -> None:
        head, *body = [part async for part in answered(APP, carried("/echo", b"hello", b"q=3"))]
        assert isinstance(head, Head)
        assert head.status == 201
        assert (b"x-found", b"1") in head.headers
        assert body == [b"hello 3 yes"]

    asyncio.run(work())


def test_a_stream_comes_as_it_is_made() -> None:
    async def work() -> None:
        head, *body = [part async for part in answered(APP, carried("/stream"))]
        assert isinstance(head, Head)
        assert len(body) > 1
        assert b"".join(each for each in body if isinstance(each, bytes)) == b"01234"

    asyncio.run(work())


def test_who_leaves_is_known_to_have_left() -> None:
    seen = []

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        seen.append((await receive())["type"])
        seen.append((await receive())["type"])

    async def work() -> None:
        parts = answered(waits, carried("/"))
        assert isinstance(await anext(parts), Head)
        await parts.aclose()

    asyncio.run(work())
    assert seen == ["http.request", "http.disconnect"]


def test_what_the_application_raises_is_raised() -> None:
    async def breaks(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("broken")

    async def work() -> None:
        with pytest.raises(RuntimeError, match="broken"):
            _ = [part async for part in answered(breaks, carried("/"))]

    asyncio.run(work())


def test_metrics_of_several_are_one_text() -> None:
    one = b'# HELP a What.\n# TYPE a gauge\na{engine="0"} 1.0\n# HELP b Else.\n# TYPE b counter\nb{engine="0"} 2.0\n'
    two = one.replace(b'"0"', b'"1"')
    assert together([one, two]).splitlines() == [
        *(b"# HELP a What.", b"# TYPE a gauge", b'a{engine="0"} 1.0', b'a{engine="1"} 1.0'),
        *(b"# HELP b Else.", b"# TYPE b counter", b'b{engine="0"} 2.0', b'b{engine="1"} 2.0'),
    ]
