"""``GET /api/file``: a file as it is, whole or in part, or unpacked on its way."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tokenyard.server.web.problems import RefusedError
from tokenyard.server.web.roots import Roots
from tokenyard.trace.columnar.arrow import arrow
from tokenyard.trace.read.files import raw_lines

__all__ = ["serve_file", "tag_of"]

_CHUNK = 256 * 1024
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_TYPES = {".jsonl": "application/x-ndjson", ".json": "application/json", ".gz": "application/gzip"}


class _Opened(StreamingResponse):
    """A response that closes its file, whatever becomes of the client."""

    def __init__(self, file: IO[bytes], chunks: Iterator[bytes], **options: Any) -> None:
        super().__init__(chunks, **options)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] == "HEAD":
                self.body_iterator = _nothing()
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


def tag_of(file: BinaryIO) -> str:
    """The ETag: changes with every write."""
    status = os.fstat(file.fileno())
    return f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'


def serve_file(roots: Roots, request: Request) -> Response:
    """Answer a request for a file."""
    path = roots.resolve(request.query_params.get("path"))
    file = roots.open(request.query_params.get("path"))
    unpacked = request.query_params.get("decode") in ("1", "true")
    if unpacked and path.suffix in (".gz", ".zst", ".parquet"):
        headers = {"ETag": tag_of(file), "Accept-Ranges": "none", "Cache-Control": "no-cache"}
        chunks = _columns(path) if path.suffix == ".parquet" else _unpacked(file, path.suffix)
        return _Opened(file, chunks, headers=headers, media_type="application/x-ndjson")
    size = os.fstat(file.fileno()).st_size
    headers = {"ETag": tag_of(file), "Accept-Ranges": "bytes", "Cache-Control": "no-cache"}
    try:
        part = _part(request, size, headers["ETag"])
    except RefusedError as problem:
        file.close()
        response = problem.response()
        response.headers["Content-Range"] = f"bytes */{size}"
        return response
    start, end = part or (0, size)
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - start)
    kind = _TYPES.get(path.suffix, "application/octet-stream")
    return _Opened(file, _slice(file, start, end), status_code=206 if part else 200, headers=headers, media_type=kind)


def _part(request: Request, size: int, tag: str) -> tuple[int, int] | None:
    """(first, end) of the part that is asked for; None for the whole. Raises RefusedError for one that is not there.

    More than one part at once, and what is no range of bytes, gets the whole, as RFC 9110 allows.
    """
    text = request.headers.get("range")
    if text is None or request.headers.get("if-range", tag) != tag:
        return None
    match = _RANGE.fullmatch(text.replace(" ", ""))
    if match is None or not (match[1] or match[2]):
        return None
    if match[1]:
        start, end = int(match[1]), min(int(match[2]) + 1 if match[2] else size, size)
        if match[2] and int(match[2]) < int(match[1]):
            return None
    else:
        start, end = max(size - int(match[2]), 0), size
    if start >= end:
        raise RefusedError(416, "Range", text, f"the file has {size} bytes")
    return start, end


def _slice(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    file.seek(start)
    while start < end:
        chunk = file.read(min(_CHUNK, end - start))
        if not chunk:
            return  # cut off meanwhile: the client sees that the length is not met
        start += len(chunk)
        yield chunk


def _unpacked(file: BinaryIO, suffix: str) -> Iterator[bytes]:
    """What a compressed file holds. Where it is damaged, a line that is no JSON says so: readers count and show it."""
    source: Any = gzip.GzipFile(fileobj=file) if suffix == ".gz" else _unpacked_zstd(file)
    try:
        while chunk := source.read(_CHUNK):
            yield chunk
    except (EOFError, zlib.error, OSError) as error:
        yield f"\ncompressed data is cut off or damaged here: {error}\n".encode()


def _unpacked_zstd(file: BinaryIO) -> Any:
    pa = arrow()
    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")


def _columns(path: Path) -> Iterator[bytes]:
    """The lines of a Parquet trace."""
    lines: list[bytes] = []
    held = 0
    for line in raw_lines(path):
        lines.append(line)
        held += len(line)
        if held >= _CHUNK:
            yield b"\n".join([*lines, b""])
            lines, held = [], 0
    yield b"\n".join([*lines, b""])


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
