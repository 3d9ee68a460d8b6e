"""``GET /api/tail``: what has been added to a trace that is still being written."""

from __future__ import annotations

import asyncio
import os
import time
from typing import BinaryIO, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.files.bounds import Bounds
from tokenyard.server.web.identity import identity_of, is_other
from tokenyard.server.web.problems import RefusedError, whole_number
from tokenyard.server.web.roots import Roots

__all__ = ["TailServer"]

_AT_ONCE = 4 << 20
_POLL = 0.2
"""Seconds between two looks at a file that somebody waits for."""
_WAIT = 30
"""Longest wait in seconds."""
_WAITING = 32
"""Clients that may wait at the same time."""


class _Piece(NamedTuple):
    body: bytes
    offset: int
    """Where the next piece begins."""
    size: int
    identity: str
    reset: bool
    searched: int
    """No line ends between ``offset`` and here."""
    state: tuple[int, int, int]
    """Which file it was, how long, and when it was written."""


class TailServer:
    """Answers with whole lines, at once or when there are some."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._waiting = 0
        self._stopping = False

    def stop(self) -> None:
        """Let nobody wait any longer: the server goes down."""
        self._stopping = True

    async def serve(self, request: Request) -> Response:
        """Answer one request."""
        offset = whole_number(request, "offset", 0)
        wait = whole_number(request, "wait", 0, most=_WAIT)
        path, identity = request.query_params.get("path"), request.query_params.get("id", "")
        piece = await run_in_threadpool(self._piece, path, offset, identity)
        if wait and not piece.body and not piece.reset:
            piece = await self._patiently(request, path, identity, wait, piece)
        headers = {
            "Tokenyard-Offset": str(piece.offset),
            "Tokenyard-Size": str(piece.size),
            "Tokenyard-Id": piece.identity,
            "Tokenyard-Reset": str(int(piece.reset)),
        }
        return Response(piece.body, headers=headers, media_type="application/x-ndjson")

    async def _patiently(self, request: Request, path: str | None, identity: str, wait: int, piece: _Piece) -> _Piece:
        """Look again until there is something, the time is up, or the client has gone."""
        if self._waiting >= _WAITING:
            raise RefusedError(429, "wait", wait, "too many clients wait already: ask again later, or without wait")
        self._waiting += 1
        try:
            end = time.monotonic() + wait
            while time.monotonic() < end and not self._stopping and not await request.is_disconnected():
                await asyncio.sleep(_POLL)
                piece = await run_in_threadpool(self._piece, path, piece.offset, identity, piece)
                if piece.body or piece.reset:
                    break
        finally:
            self._waiting -= 1
        return piece

    def _piece(self, path: str | None, offset: int, identity: str, before: _Piece | None = None) -> _Piece:
        """What there is from ``offset`` on; only what is new since the look ``before`` is read."""
        real = self._roots.resolve(path)
        if real.suffix != ".jsonl":
            raise RefusedError(400, "path", path, "only a plain .jsonl file grows: load this one whole")
        with self._roots.open(path) as file:
            status = os.fstat(file.fileno())
            state = (status.st_ino, status.st_size, status.st_mtime_ns)
            if before is not None and before.state == state:
                return before
            now = identity_of(file)
            reset = offset > 0 and (is_other(identity, now) or not _begins_a_line(file, offset, status.st_size))
            is_longer = before is not None and before.state[0] == state[0] and before.state[1] <= state[1]
            offset, searched = (0, 0) if reset else (offset, before.searched if before and is_longer else offset)
            body, searched = _whole_lines(file, offset, searched)
            return _Piece(body, offset + len(body), status.st_size, now, reset, searched, state)


def _begins_a_line(file: BinaryIO, offset: int, size: int) -> bool:
    if offset > size:
        return False
    file.seek(offset - 1)
    return file.read(1) == b"\n"


def _whole_lines(file: BinaryIO, offset: int, searched: int) -> tuple[bytes, int]:
    """Whole lines from ``offset`` on, in which none ends before ``searched``; and how far that is true now."""
    at = max(offset, searched)
    file.seek(at)
    while piece := file.read(_AT_ONCE):
        end = (piece.rfind(b"\n") if at == offset else piece.find(b"\n")) + 1
        if end and at == offset:
            return piece[:end], offset
        at += end or len(piece)
        if at - offset > (longest := Bounds.from_env().line_bytes):
            raise RefusedError(422, "offset", offset, f"a line is longer than {longest} bytes: this is no trace")
        if end:
            file.seek(offset)
            return file.read(at - offset), offset
    return b"", at
