"""``GET /api/file``: a file as it is, whole or in parts, or unpacked on its way."""

from __future__ import annotations

import gzip
import os
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import anyio
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from tokenyard.server.web.roots import Roots
from tokenyard.trace.columnar.arrow import arrow
from tokenyard.trace.read.files import raw_lines

__all__ = ["OpenFileResponse", "serve_file"]

_CHUNK = 256 * 1024
_LINES = 500
"""Lines of a Parquet trace that are sent at once."""
_TOLD = 200
"""Characters of what a library says of damage."""
_TYPES = {".jsonl": "application/x-ndjson", ".json": "application/json", ".gz": "application/gzip"}


class OpenFileResponse(FileResponse):
    """A file that is open already, whole or in the parts that are asked for.

    It is the file that was allowed, whatever its path leads to by now; where the system has no names for open files
    (Windows), its path is opened again. No more is sent than the length that was told first: a trace may be written
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
    """A stream made from an open file, which is closed in the end, whatever becomes of the client."""

    def __init__(self, file: BinaryIO, chunks: Iterator[bytes], **options: Any) -> None:
        super().__init__(chunks, **options)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            if scope["method"] == "HEAD":
                self.body_iterator = _nothing()
            await super().__call__(scope, receive, send)


def serve_file(roots: Roots, request: Request) -> Response:
    """Answer a request for a file."""
    path = roots.resolve(request.query_params.get("path"))
    unpacked = request.query_params.get("decode") in ("1", "true")
    if unpacked and path.suffix in (".zst", ".parquet"):
        arrow()  # what is missing is said before the answer begins
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


def _with_damage(chunks: Iterator[bytes]) -> Iterator[bytes]:
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
    """The lines of a Parquet trace, many at once."""
    lines = raw_lines(path)
    while chunk := b"".join(islice(lines, _LINES)):
        yield chunk


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
