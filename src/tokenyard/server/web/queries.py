"""``GET /api/query``: SQL over a trace, with the limits of somebody who waits in front of a page."""

from __future__ import annotations

import threading

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.errors import TraceError
from tokenyard.server.web.problems import RefusedError, json_response
from tokenyard.server.web.roots import Roots
from tokenyard.trace.columnar.convert import twin_of
from tokenyard.trace.columnar.query import Limits, ask
from tokenyard.trace.columnar.twins import as_parquet, needed
from tokenyard.trace.read.files import TraceFiles, is_columnar

__all__ = ["QueryServer"]

_LIMITS = Limits(seconds=10.0, memory_mb=512, answer_mb=8, rows=1_000)
_LONGEST = 20_000
"""Characters of a question."""
_CONVERTED = 256 << 20
"""Bytes of JSON lines that are made into Parquet for one question."""


class QueryServer:
    """Answers one question at a time."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._alone = threading.Lock()

    async def serve(self, request: Request) -> Response:
        """``{columns, rows, truncated, seconds, damage}``."""
        return await run_in_threadpool(self._answer, request)

    def _answer(self, request: Request) -> Response:
        sql = request.query_params.get("sql", "")
        if not sql.strip() or len(sql) > _LONGEST:
            raise RefusedError(400, "sql", sql, f"must be one SELECT of at most {_LONGEST:,} characters")
        files = needed(self._roots.trace(request.query_params.get("path"), with_requests=True), sql)
        _check_size(files)
        if not self._alone.acquire(blocking=False):
            raise RefusedError(503, "sql", sql, "another question is being answered: ask again in a moment")
        try:
            damage: list[str] = []
            with as_parquet(files, damage.append) as twins:
                answer = ask(sql, twins.steps, twins.requests, _LIMITS)
        finally:
            self._alone.release()
        return json_response(
            {
                "columns": answer.columns,
                "rows": answer.rows,
                "truncated": answer.truncated,
                "seconds": answer.seconds,
                "damage": damage,
            }
        )


def _check_size(files: TraceFiles) -> None:
    for path in files:
        if path is None or is_columnar(path) or twin_of(path).is_file():
            continue
        size = path.stat().st_size
        if size > _CONVERTED:
            fix = f"has {size / 1e6:,.0f} MB, too many to make Parquet of for a question: run `tokenyard convert` once"
            raise TraceError(f"{path.name} {fix}")
