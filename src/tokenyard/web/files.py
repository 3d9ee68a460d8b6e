"""Files as they are, whole or in parts, and what is added to a trace that is still written."""

from __future__ import annotations

import asyncio
import gzip
import os
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from tokenyard.files import Bounds, arrow
from tokenyard.trace.reader import raw_lines
from tokenyard.web.catalog import Roots, file_identity, is_other
from tokenyard.web.connections import RefusedError, whole_number

# ---------------------------------------------------------------------------------------------------------------------
# ``GET /api/file``: a file as it is, whole or in parts, or unpacked on its way.

_CHUNK = 256 * 1024
_LINES = 500
"""Lines of a Parquet trace that are sent at once."""
_TOLD = 200
"""Characters of what a library says of damage."""
_TYPES = {".jsonl": "application/x-ndjson", ".json": "application/json", ".gz": "application/gzip"}


class OpenFileResponse(FileResponse):
    """A file that is open already, whole or in the parts that are requested.

    It is the file that was allowed, whatever its path leads to by now; where the system has no names for open files
    (Windows), its path is opened again. No more is sent than the length in the header: a trace may be written
    meanwhile. Reading ends when the client has gone, and the file is closed in the end.
    """

    def __init__(self, file: BinaryIO, path: Path, **options: Any) -> None:
        opened = Path(f"/dev/fd/{file.fileno()}")
        super().__init__(opened if opened.exists() else path, stat_result=os.fstat(file.fileno()), **options)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = 0

        async def send_at_most(message: Message) -> None:
            nonlocal left
            if message["type"] == "http.response.start":
                left = int(Headers(raw=message["headers"]).get("content-length", 0))
            elif message["type"] == "http.response.body":
                message = {**message, "body": message.get("body", b"")[:left]}
                left -= len(message["body"])
            await send(message)

        async def until_disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        with self._file:
            async with anyio.create_task_group() as group:
                group.start_soon(until_disconnected)
                await super().__call__(scope, receive, send_at_most)
                group.cancel_scope.cancel()


class _UnpackedResponse(StreamingResponse):
    """A stream made from an open file; both are closed in the end, whatever becomes of the client."""

    def __init__(self, file: BinaryIO, chunks: Generator[bytes, None, None], **options: Any) -> None:
        super().__init__(chunks, **options)
        self._file, self._chunks = file, chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file, closing(self._chunks):
            if scope["method"] == "HEAD":
                self.body_iterator = _nothing()
            await super().__call__(scope, receive, send)


def serve_file(roots: Roots, request: Request) -> Response:
    """Answer a request for a file."""
    path = roots.resolve(request.query_params.get("path"))
    unpacked = request.query_params.get("decode") in ("1", "true")
    if unpacked and path.suffix in (".zst", ".parquet"):
        arrow()  # a missing extra raises before the answer begins
    file = roots.open(request.query_params.get("path"))
    headers = {"ETag": _tag_of(file), "Cache-Control": "no-cache"}
    if unpacked and path.suffix in (".gz", ".zst", ".parquet"):
        chunks = _columns(path) if path.suffix == ".parquet" else _unpacked(file, path.suffix)
        headers["Accept-Ranges"] = "none"
        return _UnpackedResponse(file, _with_damage(chunks), headers=headers, media_type="application/x-ndjson")
    kind = _TYPES.get(path.suffix, "application/octet-stream")
    return OpenFileResponse(file, path, headers=headers, media_type=kind)


def _tag_of(file: BinaryIO) -> str:
    """The ETag: changes with every write."""
    status = os.fstat(file.fileno())
    return f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'


def _with_damage(chunks: Iterator[bytes]) -> Generator[bytes, None, None]:
    """What a packed file holds. Where it is damaged, a line that is no JSON says so: readers count and show it."""
    try:
        yield from chunks
    except Exception as error:  # noqa: BLE001 - of whatever library unpacks: the answer is under way already
        told = " ".join(str(error).split())[:_TOLD] or type(error).__name__
        yield f"\ncompressed data is cut off or damaged here: {told}\n".encode(errors="replace")


def _unpacked(file: BinaryIO, suffix: str) -> Iterator[bytes]:
    source: Any = gzip.GzipFile(fileobj=file) if suffix == ".gz" else _unpacked_zstd(file)
    while chunk := source.read(_CHUNK):
        yield chunk


def _unpacked_zstd(file: BinaryIO) -> Any:
    pa = arrow()
    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")


def _columns(path: Path) -> Iterator[bytes]:
    """The lines of a Parquet trace, many at once; ValueError for a file that says it has none."""
    lines, found = raw_lines(path), False
    while chunk := b"".join(islice(lines, _LINES)):
        found = True
        yield chunk
    if not found:
        raise ValueError("it says that it holds no line")


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


# ---------------------------------------------------------------------------------------------------------------------
# ``GET /api/tail``: what has been added to a trace that is still being written.

TAIL_BYTES = 4 << 20
POLL_SECONDS = 0.2
"""Seconds between two looks at a file that a client waits for."""
_WAIT = 30
"""Longest wait in seconds."""
_WAITING = 32
"""Clients that may wait at the same time."""


class _FileChunk(msgspec.Struct, frozen=True):
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
        """Let no client wait any longer: the server goes down."""
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

    async def _patiently(
        self, request: Request, path: str | None, identity: str, wait: int, piece: _FileChunk
    ) -> _FileChunk:
        """Look again until there is something, the time is up, or the client has gone."""
        if self._waiting >= _WAITING:
            raise RefusedError(429, "wait", wait, "too many clients wait already: retry later, or without wait")
        self._waiting += 1
        try:
            end = time.monotonic() + wait
            while time.monotonic() < end and not self._stopping and not await request.is_disconnected():
                await asyncio.sleep(POLL_SECONDS)
                piece = await run_in_threadpool(self._piece, path, piece.offset, identity, piece)
                if piece.body or piece.reset:
                    break
        finally:
            self._waiting -= 1
        return piece

    def _piece(self, path: str | None, offset: int, identity: str, before: _FileChunk | None = None) -> _FileChunk:
        """The whole lines from ``offset`` on; of a file that was looked at ``before``, only what is new is read."""
        real = self._roots.resolve(path)
        if real.suffix != ".jsonl":
            raise RefusedError(400, "path", path, "only a plain .jsonl file grows: load this one whole")
        with self._roots.open(path) as file:
            status = os.fstat(file.fileno())
            state = (status.st_ino, status.st_size, status.st_mtime_ns)
            if before is not None and before.state == state:
                return before
            now = file_identity(file)
            reset = offset > 0 and (is_other(identity, now) or not _begins_a_line(file, offset, status.st_size))
            is_longer = before is not None and before.state[0] == state[0] and before.state[1] <= state[1]
            offset, searched = (0, 0) if reset else (offset, before.searched if before and is_longer else offset)
            body, searched = _whole_lines(file, offset, searched)
            return _FileChunk(body, offset + len(body), status.st_size, now, reset, searched, state)


def _begins_a_line(file: BinaryIO, offset: int, size: int) -> bool:
    if offset > size:
        return False
    file.seek(offset - 1)
    return file.read(1) == b"\n"


def _whole_lines(file: BinaryIO, offset: int, searched: int) -> tuple[bytes, int]:
    """Whole lines from ``offset`` on, in which none ends before ``searched``; and how far that is true now."""
    at = max(offset, searched)
    file.seek(at)
    while piece := file.read(TAIL_BYTES):
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
