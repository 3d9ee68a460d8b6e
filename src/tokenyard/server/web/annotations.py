"""``GET`` and ``PUT /api/annotations``: notes on a trace, in a file beside it."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.files.locks import try_lock
from tokenyard.server.web.body import json_body
from tokenyard.server.web.problems import RefusedError, json_response
from tokenyard.server.web.roots import ANNOTATIONS_ENDING, Roots
from tokenyard.trace.read.files import PACKINGS

__all__ = ["MARK", "AnnotationServer"]

MARK = "Tokenyard-Annotations"
"""A header that only a page of this server can send: other origins would have to ask first, and are not answered."""
_BODY = 4 << 20
_SAVING = threading.Lock()
_SECONDS, _TRIES = 5.0, 100
"""Longest wait for another server that saves, and looks at it meanwhile."""


class AnnotationServer:
    """Reads and writes ``<trace>.annotations.json`` and nothing else."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    def read(self, request: Request) -> Response:
        """The notes as they were saved; ``null`` if there are none."""
        saved = self._saved(self._target(request)[1])
        if saved is None:
            return json_response(None)
        return Response(saved, headers={"ETag": _tag(saved)}, media_type="application/json")

    async def write(self, request: Request) -> Response:
        """Save the notes."""
        if request.headers.get(MARK) != "1":
            raise RefusedError(
                403, MARK, request.headers.get(MARK, ""), "must be 1: only a page of this server may save"
            )
        body = await json_body(request, _BODY)
        try:
            msgspec.json.decode(body)
        except (ValueError, RecursionError) as error:
            raise RefusedError(400, "body", "", f"must be JSON: {error}") from None
        return await run_in_threadpool(self._save, request, body)

    def _save(self, request: Request, body: bytes) -> Response:
        given, target = self._target(request)
        expected = request.headers.get("if-match")
        try:
            with _alone_in(target.parent):
                if target.is_symlink():
                    raise RefusedError(403, "path", given, f"{target.name} is no plain file: remove it")
                there = _tag(self._saved(target) or b"")
                if expected is not None and expected != there:
                    raise RefusedError(412, "If-Match", expected, "the notes were changed meanwhile: load them again")
                _replace(target, body)
        except OSError as error:
            raise RefusedError(
                409, "path", given, f"{target.name} cannot be written: {error.strerror or error}"
            ) from None
        return json_response({"saved": str(target)}, headers={"ETag": _tag(body)})

    def _saved(self, target: Path) -> bytes | None:
        """What is there; None if nothing is. Raises RefusedError for what is no file, or was not saved here."""
        if not os.path.lexists(target):
            return None
        with self._roots.open(str(target)) as file:
            size = os.fstat(file.fileno()).st_size
            saved = file.read(_BODY + 1) if size <= _BODY else b""
        if max(size, len(saved)) > _BODY:
            fix = f"it has {size:,} bytes, and notes at most {_BODY:,}: move it away"
            raise RefusedError(422, "path", str(target), fix)
        return saved

    def _target(self, request: Request) -> tuple[str, Path]:
        """The trace that is named, and the file of its notes."""
        given = request.query_params.get("path", "")
        trace = self._roots.existing(given)
        if not trace.name.endswith(PACKINGS) and trace not in self._roots.files:
            raise RefusedError(403, "path", given, "must be a trace file")
        if trace.name.endswith(ANNOTATIONS_ENDING):
            raise RefusedError(403, "path", given, "must be a trace file, not its notes")
        return given, trace.with_name(trace.name + ANNOTATIONS_ENDING)


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Nobody else saves notes in a directory meanwhile: no thread of this server, and no other server."""
    with _SAVING, ExitStack() as stack:
        if os.name == "posix":  # elsewhere a folder cannot be opened
            lock = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, lock)
            _take(lock)
        yield


def _take(lock: int) -> None:
    """Take a lock that is released when its file is closed. Raises OSError if somebody keeps it."""
    for _ in range(_TRIES):
        if try_lock(lock):
            return
        time.sleep(_SECONDS / _TRIES)
    raise OSError(errno.EBUSY, f"another server has been saving for {_SECONDS:g} seconds")


def _tag(content: bytes) -> str:
    return f'"{hashlib.blake2s(content, digest_size=12).hexdigest()}"'


def _replace(target: Path, content: bytes) -> None:
    """Whole or not at all."""
    fd, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    unfinished = Path(name)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        unfinished.chmod(0o644)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
