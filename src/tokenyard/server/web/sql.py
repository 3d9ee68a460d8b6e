"""``POST /api/query``: SQL over a trace, each question in a process of its own that can be ended.

DuckDB's own limits come first (see ``trace/columnar/query.py``); the process is the second wall: it is killed when its
time is over, and the system gives it no more memory than its limit, whatever a function of SQL may try.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tokenyard.server.web.body import json_body
from tokenyard.server.web.catalog import Catalog
from tokenyard.server.web.problems import RefusedError, json_response
from tokenyard.server.web.roots import Roots
from tokenyard.server.web.sql_worker import Question
from tokenyard.server.web.twin_cache import Converting, TwinCache
from tokenyard.trace.columnar.query import Limits
from tokenyard.trace.columnar.twins import needed
from tokenyard.trace.read.files import TraceFiles

__all__ = ["QueryServer"]

_BODY = 64 * 1024
_ANSWER = 32 << 20
_AT_ONCE = 2
_PATIENCE = 5.0
_GRACE = 3.0
"""Seconds for a process to start and to say why it stopped."""
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "LC_ALL", "SYSTEMROOT", "LD_LIBRARY_PATH")


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    sql: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 10_000


class QueryServer:
    """Answers a few questions at a time."""

    def __init__(self, roots: Roots, catalog: Catalog, twins: TwinCache, limits: Limits | None = None) -> None:
        self._roots = roots
        self._catalog = catalog
        self._twins = twins
        self._limits = limits or Limits()
        self._running = 0

    async def serve(self, request: Request) -> Response:
        """Answer one question: 202 while the trace is being converted, 429 while others are being answered."""
        body = await _body(request)
        if self._running >= _AT_ONCE:
            raise RefusedError(429, "sql", body.sql, f"{_AT_ONCE} queries are running: ask again when one has ended")
        self._running += 1
        try:
            question = await run_in_threadpool(self._question, body)
            if isinstance(question, Converting):
                return json_response({"converting": question}, 202, {"Retry-After": "1"})
            return await self._ask(question)
        finally:
            self._running -= 1

    def _question(self, body: _Body) -> Question | Converting:
        pair = self._catalog.pair_of(self._roots.existing(body.path))
        wanted = needed(TraceFiles(pair.steps, pair.requests), body.sql)
        files: dict[str, str] = {}
        for kind, path in (("steps", wanted.steps), ("requests", wanted.requests)):
            if path is not None:
                twin = self._twins.twin(path, kind, _PATIENCE)
                if isinstance(twin, Converting):
                    return twin
                files[kind] = str(twin)
        limits = msgspec.structs.replace(self._limits, rows=min(body.limit, self._limits.rows))
        return Question(sql=body.sql, steps=files.get("steps"), requests=files.get("requests"), limits=limits)

    async def _ask(self, question: Question) -> Response:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tokenyard.server.web.sql_worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            cwd=Path(sys.prefix),
        )
        try:
            answer = await asyncio.wait_for(_spoken(process, question), question.limits.seconds + _GRACE)
        except TimeoutError:
            fix = f"took longer than {question.limits.seconds:g} s: ask for less, or of fewer steps"
            raise RefusedError(422, "sql", question.sql, fix) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if not answer:
            fix = f"needs more than {question.limits.memory_mb:,} MB: ask for less at once"
            raise RefusedError(422, "sql", question.sql, fix)
        return Response(answer, 422 if answer.startswith(b'{"error"') else 200, media_type="application/json")


async def _spoken(process: asyncio.subprocess.Process, question: Question) -> bytes:
    """Ask, and hear the answer out: nothing if the process died of it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode(question))
    process.stdin.close()
    answer = bytearray()
    while piece := await process.stdout.read(1 << 16):
        answer += piece
        if len(answer) > _ANSWER:
            raise RefusedError(
                422, "sql", question.sql, f"its answer is longer than {_ANSWER >> 20} MiB: ask for fewer rows"
            )
    return bytes(answer) if await process.wait() == 0 else b""


async def _body(request: Request) -> _Body:
    body = await json_body(request, _BODY)
    try:
        return msgspec.json.decode(body, type=_Body)
    except (ValueError, RecursionError) as error:
        fix = f'must be {{"path": ..., "sql": ...}}: {error}'
        raise RefusedError(400, "body", body.decode(errors="replace"), fix) from None
