"""``GET /api/export``: a trace as a page to mail, or for Perfetto, by the exporters of ``tokenyard export``."""

from __future__ import annotations

import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, cast
from urllib.parse import quote

import anyio
from anyio import from_thread, to_thread
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.explain.why.drawing import draw
from tokenyard.server.web.files import OpenFileResponse
from tokenyard.server.web.problems import RefusedError
from tokenyard.server.web.roots import Roots
from tokenyard.trace.export.page import embed
from tokenyard.trace.export.perfetto import PerfettoWriter, messages
from tokenyard.trace.read.files import TraceFiles
from tokenyard.trace.read.ranks import RankTrace

__all__ = ["ExportServer"]

_ENDINGS = {"html": ".html", "perfetto": ".pftrace"}
_TYPES = {"html": "text/html", "perfetto": "application/octet-stream"}
_LONGEST_STATE = 8_000
"""Characters; a browser's address has about as many."""
_LOOK_S = 0.5
"""Between two looks at whether the client is still there."""


class ExportServer:
    """Makes one export at a time, in a file without a name that is gone when it is sent."""

    def __init__(self, roots: Roots, page: Path) -> None:
        self._roots = roots
        self._page = page
        self._alone = threading.Lock()

    async def serve(self, request: Request) -> Response:
        """The export, once it is complete."""
        form = request.query_params.get("format", "")
        if form not in _ENDINGS:
            raise RefusedError(400, "format", form, "must be html or perfetto")
        state = request.query_params.get("state", "")
        if len(state) > _LONGEST_STATE:
            raise RefusedError(400, "state", state, f"must be at most {_LONGEST_STATE:,} characters")
        with_requests = request.query_params.get("requests", "1") != "0"
        files = self._roots.trace(request.query_params.get("path"), with_requests=with_requests)
        if form == "perfetto":
            messages()  # what is missing is said before anything is read
        if not self._alone.acquire(blocking=False):
            raise RefusedError(503, "format", form, "another export is being made: ask again in a moment")
        try:
            file = await self._made(request, form, files, state)
        finally:
            self._alone.release()
        name = quote(files.name + _ENDINGS[form], safe="")
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}", "Accept-Ranges": "none"}
        return OpenFileResponse(file, Path(file.name), headers=headers, media_type=_TYPES[form])

    async def _made(self, request: Request, form: str, files: TraceFiles, state: str) -> BinaryIO:
        """A file from its beginning. Nothing more is made for a client that has gone."""
        file = tempfile.NamedTemporaryFile(prefix="tokenyard-export-")  # noqa: SIM115 - the response closes it
        complete = False
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_until_gone, request, group)
                await to_thread.run_sync(partial(self._write, form, files, cast("BinaryIO", file), state))
                complete = True
                group.cancel_scope.cancel()
            if not complete:
                raise RefusedError(503, "format", form, "the client closed the connection")
        except BaseExceptionGroup as errors:
            file.close()
            raise errors.exceptions[0] from None
        except BaseException:
            file.close()
            raise
        return cast("BinaryIO", file)

    def _write(self, form: str, files: TraceFiles, file: BinaryIO, state: str) -> None:
        out = cast("IO[bytes]", _WatchedFile(file))
        if form == "html":
            embed(self._page.read_text(encoding="utf-8"), files, out, state=state)
        else:
            draw([RankTrace(None, files)], lambda name: PerfettoWriter(out, name))
        file.flush()
        file.seek(0)


class _WatchedFile:
    """A file to write; in a worker thread of a request that was given up, writing ends with that."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, content: bytes) -> int:
        """Write all of it."""
        from_thread.check_cancelled()
        return self._file.write(content)


async def _until_gone(request: Request, group: anyio.abc.TaskGroup) -> None:
    while not await request.is_disconnected():
        await anyio.sleep(_LOOK_S)
    group.cancel_scope.cancel()
