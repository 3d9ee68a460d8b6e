"""SQL over a trace, exports, notes and sweeps."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, BinaryIO, cast
from urllib.parse import quote

import anyio
import msgspec
from anyio import from_thread, to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tokenyard.errors import MissingExtraError, TokenyardError, TraceError
from tokenyard.explain.export import answer_within
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.why.timeline import draw
from tokenyard.files import close_locked, try_lock
from tokenyard.questions.sweeping.page import page
from tokenyard.questions.sweeping.rows import FINISHED, SWEEP, Row, read_finished
from tokenyard.trace.convert import twin_of
from tokenyard.trace.export.page import embed, fitting
from tokenyard.trace.export.perfetto import PerfettoWriter, messages
from tokenyard.trace.query import QueryLimits, needed, query_trace
from tokenyard.trace.reader import PACKINGS, RankTrace, TraceFiles, find_ranks, is_columnar
from tokenyard.web.catalog import ANNOTATIONS_ENDING, Catalog, Roots, folders_below
from tokenyard.web.connections import (
    AddressShare,
    Guard,
    Key,
    RefusedError,
    json_body,
    json_response,
    on_error,
    on_problem,
)
from tokenyard.web.files import OpenFileResponse, TailServer, serve_file
from tokenyard.web.page import PAGE, PageServer, page_headers

# ---------------------------------------------------------------------------------------------------------------------
# ``GET /api/query``: SQL over a trace, with the limits of a user who waits in front of a page.

QUERY_LIMITS = QueryLimits(seconds=10.0, memory_mb=512, answer_mb=8, rows=1_000)
_LONGEST = 20_000
"""Characters of a question."""
MOST_CONVERTED = 256 << 20
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
            raise RefusedError(503, "sql", sql, "another question is being answered: retry in a moment")
        try:
            found = query_trace(files, sql, QUERY_LIMITS)
        finally:
            self._alone.release()
        return json_response(found.answer.to_dict() | {"damage": found.damage})


def _check_size(files: TraceFiles) -> None:
    for path in files:
        if path is None or is_columnar(path) or twin_of(path).is_file():
            continue
        size = path.stat().st_size
        if size > MOST_CONVERTED:
            fix = f"has {size / 1e6:,.0f} MB, too many to make Parquet of for a question: run `tokenyard convert` once"
            raise TraceError(f"{path.name} {fix}")


# ---------------------------------------------------------------------------------------------------------------------
# ``GET /api/answer``: what is wrong with a run, or with some of its steps: the same words as in a terminal.

_ANSWERS_KEPT = 32


class AnswerServer:
    """Answers one question at a time, and keeps the answers to files that have not changed."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._alone = threading.Lock()
        self._kept: dict[tuple[object, ...], bytes] = {}

    async def serve(self, request: Request) -> Response:
        """``{answer, engines}``, of the steps ``from`` to ``to`` where these are given."""
        return await run_in_threadpool(self._answer, request)

    def _answer(self, request: Request) -> Response:
        between = _step(request, "from"), _step(request, "to")
        path = self._run(self._roots.trace(request.query_params.get("path"), with_requests=True).source)
        with self._alone:
            traces = find_ranks(path)
            stats = [each.stat() for trace in traces for each in trace.files if each is not None]
            asked = (path, between, *((each.st_mtime_ns, each.st_size) for each in stats))
            if asked not in self._kept:
                found = {"answer": summarize(path, between=between).answer, "engines": len(traces)}
                while len(self._kept) >= _ANSWERS_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[asked] = msgspec.json.encode(found)
        return Response(self._kept[asked], media_type="application/json")

    def _run(self, source: Path) -> Path:
        """The folder of all engines of the run, where the trace is that of one and the others may be read."""
        above = source.parent.parent
        is_rank = source.parent.name.startswith("rank-")
        folder = above if is_rank else source.parent
        if is_rank or (folder / "rank-1").is_dir():
            files = [each for trace in find_ranks(folder) for each in trace.files if each is not None]
            if all(self._roots.allows(Path(os.path.realpath(each))) for each in files):
                return folder
        return source


def _step(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 15:
        raise RefusedError(400, name, text, "must be the number of a step")
    return int(text)


# ---------------------------------------------------------------------------------------------------------------------
# ``GET /api/export``: a trace as a page to mail, or for Perfetto, by the exporters of ``tokenyard export``.

_ENDINGS = {"html": ".html", "perfetto": ".pftrace"}
_TYPES = {"html": "text/html", "perfetto": "application/octet-stream"}
_LONGEST_STATE = 8_000
"""Characters; a browser's address has about as many."""
_LOOK_S = 0.5
"""Seconds between two looks at whether the client is still there."""


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
            messages()  # a missing extra raises before anything is read
        if not self._alone.acquire(blocking=False):
            raise RefusedError(503, "format", form, "another export is being made: retry in a moment")
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
            page, answer = self._page.read_text(encoding="utf-8"), answer_within(files)
            embed(page, fitting(files)[0], out, state=state, answer=answer)
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


# ---------------------------------------------------------------------------------------------------------------------
# ``GET`` and ``PUT /api/annotations``: notes on a trace, in a file beside it.

MARK = "Tokenyard-Annotations"
"""A header that only a page of this server can send: other origins would have to ask first, and are not answered."""
_BODY = 4 << 20
_SAVING = threading.Lock()
SAVING_SECONDS, _SAVING_TRIES = 5.0, 100
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
                replace_file(target, body)
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
    """No other thread of this server, and no other server, saves notes in a directory meanwhile."""
    with _SAVING, ExitStack() as stack:
        if os.name == "posix":  # elsewhere a folder cannot be opened
            lock = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(close_locked, lock)
            _take(lock)
        yield


def _take(lock: int) -> None:
    """Take a lock that is released when its file is closed. Raises OSError if another process keeps it."""
    for _ in range(_SAVING_TRIES):
        if try_lock(lock):
            return
        time.sleep(SAVING_SECONDS / _SAVING_TRIES)
    raise OSError(errno.EBUSY, f"another server has been saving for {SAVING_SECONDS:g} seconds")


def _tag(content: bytes) -> str:
    return f'"{hashlib.blake2s(content, digest_size=12).hexdigest()}"'


def replace_file(target: Path, content: bytes) -> None:
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


# ---------------------------------------------------------------------------------------------------------------------
# ``GET /sweep`` and ``GET /api/sweeps``: sweeps that lie among the traces, each as a page of its own.
#
# A page is made of a sweep's rows here; no page that lies in a folder is given out.

_ENTRIES = 20_000
"""Directory entries looked at for a list."""
_MOST = 200
"""Entries of a list at most."""
_MOST_BYTES = 256 << 20
"""Bytes of a sweep's rows."""


class SweepServer:
    """Answers about sweeps; the folders are read anew for every request."""

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


# ---------------------------------------------------------------------------------------------------------------------
# The application: which path is answered by whom.


def make_app(paths: Iterable[Path], *, host: str = "127.0.0.1", page: Path = PAGE, key: str | None = None) -> Starlette:
    """An ASGI application that shows the traces in ``paths``, directories and files that exist.

    ``host`` is the address it will listen on; with ``key`` only those see anything who have opened ``/?key=KEY``.
    ``app.state.stop()`` ends all waiting.
    """
    roots = Roots(paths)
    catalog, annotations, tails = Catalog(roots), AnnotationServer(roots), TailServer(roots)
    sweeps = SweepServer(roots)

    def file(request: Request) -> Response:
        return serve_file(roots, request)

    async def notes(request: Request) -> Response:
        if request.method == "PUT":
            return await annotations.write(request)
        return await run_in_threadpool(annotations.read, request)

    routes = [
        Route("/", PageServer(page).serve),
        Route("/sweep", sweeps.serve),
        Route("/api/sweeps", sweeps.listed),
        Route("/api/traces", catalog.serve),
        Route("/api/file", file),
        Route("/api/tail", tails.serve),
        Route("/api/export", ExportServer(roots, page).serve),
        Route("/api/answer", AnswerServer(roots).serve),
        Route("/api/query", QueryServer(roots).serve),
        Route("/api/lacks", _lacks),
        Route("/api/annotations", notes, methods=["GET", "PUT"]),
    ]
    handlers: dict[int | type[Exception], Callable[[Request, Exception], Response]] = {
        RefusedError: on_problem,
        TokenyardError: on_error,
        OSError: _gone,
        404: _unknown,
        405: _unknown,
    }
    locked = [] if key is None else [Middleware(Key, key=key)]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, bound=host), *locked, Middleware(AddressShare)],
        exception_handlers=handlers,
    )
    app.state.stop = tails.stop
    return app


_NEEDS = {"query": ("duckdb", "analysis"), "perfetto": ("perfetto", "perfetto")}
"""What needs a package of an extra: the package and the extra."""


def _lacks(_: Request) -> Response:
    """What this server cannot do, and why."""
    missing = {what: needed for what, needed in _NEEDS.items() if find_spec(needed[0]) is None}
    return json_response({what: str(MissingExtraError(*needed)) for what, needed in missing.items()})


def _gone(request: Request, error: Exception) -> Response:
    """A file that was there a moment ago."""
    assert isinstance(error, OSError)
    fix = f"cannot be read: {error.strerror or error}"
    return RefusedError(404, "path", request.query_params.get("path", ""), fix).response()


def _unknown(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    if status == 405:
        return RefusedError(405, "method", request.method, "is not answered at this path").response()
    return RefusedError(404, "path", request.url.path, "is not answered: see docs/server.md").response()
