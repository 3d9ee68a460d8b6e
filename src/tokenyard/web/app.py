"""The application: which path is answered by whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tokenyard.errors import MissingExtraError, TokenyardError
from tokenyard.web.catalog import Catalog, Roots
from tokenyard.web.connections import AddressShare, RefusedError, json_response, on_error, on_problem
from tokenyard.web.files import TailServer, serve_file
from tokenyard.web.guard import Guard, Key
from tokenyard.web.page import PAGE, PageServer
from tokenyard.web.queries import AnnotationServer, AnswerServer, ExportServer, QueryServer, SweepServer


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
