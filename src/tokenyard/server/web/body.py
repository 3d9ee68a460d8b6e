"""The body of a request: bounded, and JSON that was called JSON."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from tokenyard.server.web.problems import RefusedError

__all__ = ["json_body"]

_SECONDS = 30.0
"""In which a body has to come."""


async def json_body(request: Request, most: int) -> bytes:
    """The body, if it says that it is JSON and has at most ``most`` bytes.

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
        async with asyncio.timeout(_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise RefusedError(413, "body", f"more than {most} bytes", f"must not be longer than {most} bytes")
    except TimeoutError:
        raise RefusedError(408, "body", f"{len(body)} bytes", f"must come within {_SECONDS:g} seconds") from None
    return bytes(body)
