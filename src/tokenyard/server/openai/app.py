"""The application: which path is answered by whom, and who may ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from tokenyard.errors import TokenyardError
from tokenyard.server.openai.auth import ApiKeys
from tokenyard.server.openai.chat import ChatCompletions
from tokenyard.server.openai.completions import Completions
from tokenyard.server.openai.context import ServerContext
from tokenyard.server.openai.embeddings import Embeddings
from tokenyard.server.openai.errors import ApiError, as_api_error, on_api_error
from tokenyard.server.openai.going_away import Ending, GoneError, on_gone
from tokenyard.server.openai.utilities import Utilities
from tokenyard.server.web.guard import Guard, is_loopback
from tokenyard.server.web.problems import RefusedError

__all__ = ["make_api", "unknown_path"]


def make_api(context: ServerContext, *, host: str = "127.0.0.1", api_keys: Sequence[str] = ()) -> Starlette:
    """An ASGI application that starts the engine when it starts, and shuts it down when it ends.

    ``host`` is the address it will listen on: on a loopback address pages of other sites are refused.
    """
    chat, completions, utilities = ChatCompletions(context), Completions(context), Utilities(context)
    embeddings = Embeddings(context)
    routes = [
        Route("/v1/completions", completions.serve, methods=["POST"]),
        Route("/v1/chat/completions", chat.serve, methods=["POST"]),
        Route("/v1/embeddings", embeddings.serve, methods=["POST"]),
        Route("/v1/models", utilities.models),
        Route("/tokenize", utilities.tokenize, methods=["POST"]),
        Route("/detokenize", utilities.detokenize, methods=["POST"]),
        Route("/health", utilities.health),
        Route("/metrics", utilities.metrics),
    ]
    middleware = [Middleware(ApiKeys, keys=api_keys)] if api_keys else []
    middleware.insert(0, Middleware(Ending))
    if is_loopback(host):
        middleware.insert(0, Middleware(Guard, bound=host, refuse=_refusal))
    handlers: dict[int | type[Exception], Callable[[Request, Exception], Response]] = {
        ApiError: on_api_error,
        RefusedError: on_api_error,
        TokenyardError: on_api_error,
        GoneError: on_gone,
        ClientDisconnect: on_gone,
        404: unknown_path,
        405: unknown_path,
        500: on_api_error,
    }

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        async with context.llm:
            yield

    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=life)


def _refusal(problem: RefusedError) -> Response:
    return as_api_error(problem).response()


def unknown_path(request: Request, error: Exception) -> Response:
    """Answer who asks for a path that there is not, or by another method."""
    status = getattr(error, "status_code", 404)
    if status == 405:
        allowed = dict(getattr(error, "headers", None) or {})
        return ApiError(405, f"{request.url.path} is not asked by {request.method}", headers=allowed).response()
    return ApiError(404, f"{request.url.path}: there is no such path").response()
