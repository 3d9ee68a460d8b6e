"""``GET /api/steps``: the lines of some steps, out of a trace of any size and packing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from tokenyard.server.web.catalog import Catalog
from tokenyard.server.web.problems import RefusedError, json_response, whole_number
from tokenyard.server.web.roots import Roots
from tokenyard.server.web.step_index import StepIndex, step_of
from tokenyard.server.web.twin_cache import Converting, TwinCache
from tokenyard.trace.columnar.reading import columnar_reader

__all__ = ["StepServer"]

_LINES, _MOST_LINES = 20_000, 200_000
_BYTES = 64 << 20
_INDEXES = 32
_PATIENCE = 5.0
"""Seconds until a client hears that a conversion is under way."""
_LAST = 2**53


class StepServer:
    """Answers for all traces; indexes are remembered."""

    def __init__(self, roots: Roots, catalog: Catalog, twins: TwinCache) -> None:
        self._roots = roots
        self._catalog = catalog
        self._twins = twins
        self._indexes: OrderedDict[Path, StepIndex] = OrderedDict()
        self._lock = threading.Lock()

    def serve(self, request: Request) -> Response:
        """Answer one request: 202 while a compressed file is being converted."""
        path = self._file(request)
        first = whole_number(request, "start", 0) or 0
        last = whole_number(request, "end", _LAST)
        assert last is not None
        if last < first:
            raise RefusedError(400, "end", last, f"must not be less than start = {first}")
        limit = whole_number(request, "limit", _LINES, least=1, most=_MOST_LINES)
        assert limit is not None
        if path.suffix in (".gz", ".zst", ".parquet"):
            kind = "requests" if ".requests." in path.name else "steps"
            twin = self._twins.twin(path, kind, _PATIENCE)
            if isinstance(twin, Converting):
                return json_response({"converting": twin}, 202, {"Retry-After": "1"})
            with columnar_reader(twin) as reader:
                return _answer(reader.step_lines(first, last), reader.step_bounds(), limit)
        index = self._index(path)
        return _answer(index.lines(first, last), index.bounds(), limit)

    def _file(self, request: Request) -> Path:
        path = self._roots.existing(request.query_params.get("path"))
        records = request.query_params.get("records", "steps")
        if records not in ("steps", "requests"):
            raise RefusedError(400, "records", records, "must be steps or requests")
        if records == "requests":
            requests = self._catalog.pair_of(path).requests
            if requests is None:
                raise RefusedError(404, "records", records, "this trace has no requests file")
            return requests
        return path

    def _index(self, path: Path) -> StepIndex:
        with self._lock:
            index = self._indexes.pop(path, None) or StepIndex(path)
            self._indexes[path] = index
            if len(self._indexes) > _INDEXES:
                self._indexes.popitem(last=False)
            return index


def _answer(lines: Iterable[bytes], bounds: tuple[int, int] | None, limit: int) -> Response:
    """Whole steps, as many as fit."""
    taken: list[bytes] = []
    size, more = 0, False
    for line in lines:
        if len(taken) >= limit or size + len(line) > _BYTES:
            more = True
            break
        taken.append(line)
        size += len(line) + 1
    following = None
    if more:
        following = step_of(taken[-1]) if taken else None
        whole = [line for line in taken if step_of(line) != following]
        if whole:
            taken = whole
        elif following is not None:
            following += 1  # one step alone is too much: a part of it must do
    low, high = bounds or ("", "")
    headers = {
        "Tokenyard-Truncated": str(int(more)),
        "Tokenyard-Next-Start": "" if following is None else str(following),
        "Tokenyard-First-Step": str(low),
        "Tokenyard-Last-Step": str(high),
    }
    return Response(b"".join(line + b"\n" for line in taken), headers=headers, media_type="application/x-ndjson")
