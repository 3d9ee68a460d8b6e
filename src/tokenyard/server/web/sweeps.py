"""``GET /sweep`` and ``GET /api/sweeps``: sweeps that lie among the traces, each as a page of its own.

A page is made of a sweep's rows here; no page that lies in a folder is given out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.server.web.listing.walk import folders_below
from tokenyard.server.web.page import page_headers
from tokenyard.server.web.problems import RefusedError, json_response
from tokenyard.server.web.roots import Roots
from tokenyard.sim.sweep.journal import FINISHED, SWEEP, read_finished
from tokenyard.sim.sweep.page import page
from tokenyard.sim.sweep.row import Row

__all__ = ["SweepServer"]

_ENTRIES = 20_000
"""Directory entries looked at for a list."""
_MOST = 200
"""In a list."""
_MOST_BYTES = 256 << 20
"""Of a sweep's rows."""


class SweepServer:
    """Looks again at every question."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    async def listed(self, request: Request) -> Response:
        """Sweeps below the folders that were named: ``name``, ``path``, ``workload``."""
        return json_response(await run_in_threadpool(self._found))

    async def serve(self, request: Request) -> Response:
        """The page of one. Raises RefusedError."""
        text = await run_in_threadpool(self._page, request.query_params.get("path"))
        return Response(text, headers=page_headers(text), media_type="text/html")

    def _found(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for root in self._roots.directories:
            for folder in folders_below(root, entries=_ENTRIES):
                if len(found) < _MOST and _is_file(folder / SWEEP) and _is_file(folder / FINISHED):
                    name = folder.name if folder == root else folder.relative_to(root).as_posix()
                    found.append({"name": name, "path": str(folder)})
        return found

    def _page(self, text: str | None) -> str:
        folder = self._folder(text)
        rows = self._rows(folder, text)
        told = self._json(folder / SWEEP, text)
        workload = told.get("workload") if isinstance(told, dict) else None
        return page(str(workload or folder.name), rows, folder)

    def _folder(self, text: str | None) -> Path:
        """The folder that a request names. Raises RefusedError if it is not to be read, be it there or not."""
        path = Path(text or "")
        if not text or "\0" in text or not path.is_absolute() or ".." in path.parts:
            raise RefusedError(403, "path", text or "", "must be an absolute path, as /api/sweeps gives it")
        real = Path(os.path.realpath(path))
        if not any(real.is_relative_to(root) for root in self._roots.directories):
            raise RefusedError(403, "path", text, "is not a folder among those that this server was started with")
        return real

    def _rows(self, folder: Path, text: str | None) -> list[Row]:
        data = self._bytes(folder / FINISHED, text)
        try:
            return list(read_finished(data[: data.rfind(b"\n") + 1]).values())
        except msgspec.DecodeError as error:
            raise RefusedError(422, "path", text, f"{FINISHED} holds a line that is no row: {error}") from None

    def _json(self, path: Path, text: str | None) -> Any:
        try:
            return msgspec.json.decode(self._bytes(path, text))
        except (msgspec.DecodeError, RecursionError) as error:
            raise RefusedError(422, "path", text, f"{path.name} is no JSON: {error}") from None

    def _bytes(self, path: Path, text: str | None) -> bytes:
        """A file of a sweep."""
        try:
            if not _is_file(path):
                raise RefusedError(404, "path", text, f"is no sweep: there is no {path.name}")
            with path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise RefusedError(404, "path", text, f"cannot be read: {error.strerror or error}") from None
        if len(data) > _MOST_BYTES:
            raise RefusedError(422, "path", text, f"{path.name} is too large to be shown")
        return data


def _is_file(path: Path) -> bool:
    """A file, and no link, which may lead elsewhere."""
    return not path.is_symlink() and path.is_file()
