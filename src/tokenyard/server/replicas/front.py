"""Where requests come in: who may ask, and to which replica each is carried."""

from __future__ import annotations

from typing import Any

from ray.exceptions import RayActorError, RayError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenyard.server.openai.app import unknown_path
from tokenyard.server.openai.auth import ApiKeys
from tokenyard.server.openai.errors import ApiError, on_api_error
from tokenyard.server.openai.going_away import GoneError, unless_gone
from tokenyard.server.openai.scrape import together
from tokenyard.server.replicas.passing import Carried, Head
from tokenyard.server.replicas.prompts import RoutedPrompt, prompt_of
from tokenyard.server.web.body import json_body
from tokenyard.server.web.problems import RefusedError

__all__ = ["Front"]

_SECONDS_OF_METRICS = 10.0
_POSTED = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize", "/detokenize")
_READ = ("/v1/models", "/health")
_GENERATES = frozenset(_POSTED[:2])


class Front:
    """The deployment that has the address. ``replicas`` is Ray's handle of the other one."""

    def __init__(self, replicas: Any, max_body_bytes: int, api_keys: list[str]) -> None:
        self._replicas = replicas
        self._max_body_bytes = max_body_bytes
        self._app = Starlette(
            routes=[
                *(Route(path, self._posted, methods=["POST"]) for path in _POSTED),
                *(Route(path, self._read) for path in _READ),
                Route("/metrics", self._metrics),
            ],
            middleware=[Middleware(ApiKeys, keys=api_keys)] if api_keys else [],
            exception_handlers={
                ApiError: on_api_error,
                RefusedError: on_api_error,
                404: unknown_path,
                405: unknown_path,
            },
        )

    async def __call__(self, request: Request) -> Response:
        """Ray sends what this returns, and what it returns answers by itself."""
        return _ByItself(self._app)

    async def _posted(self, request: Request) -> Response:
        body = await json_body(request, self._max_body_bytes)
        prompt = prompt_of(body) if request.url.path in _GENERATES else None
        return _Relayed(self._asked(request, body, prompt))

    async def _read(self, request: Request) -> Response:
        return _Relayed(self._asked(request, b"", None))

    def _asked(self, request: Request, body: bytes, prompt: RoutedPrompt | None) -> Any:
        carried = Carried(
            request.method, request.url.path, request.scope["query_string"], list(request.headers.raw), body
        )
        return self._replicas.options(stream=True).answer.remote(carried, prompt)

    async def _metrics(self, _: Request) -> Response:
        asked = self._replicas.broadcast("metrics")
        try:
            told = await asked.results_async(timeout_s=_SECONDS_OF_METRICS, return_exceptions=True)
        except TimeoutError:
            raise ApiError(503, f"a replica did not tell its metrics within {_SECONDS_OF_METRICS:g} seconds") from None
        known = [each for each in told if not isinstance(each, BaseException)]
        if not known:
            raise ApiError(503, "no replica tells its metrics now")
        return Response(together(text for text, _ in known), headers={"Content-Type": known[0][1]})


class _ByItself(Response):
    """A response that is a whole application."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        await self._app(scope, receive, send)


class _Relayed(Response):
    """What a replica answers, sent on as it comes; a client that leaves has the request cancelled there."""

    def __init__(self, parts: Any) -> None:
        super().__init__()
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send on."""
        try:
            await unless_gone(Request(scope, receive), self._send_all(scope, receive, send))
        except GoneError:
            self._parts.cancel()

    async def _send_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_stream: bool | None = None
        try:
            async for part in self._parts:
                if isinstance(part, Head):
                    is_stream = any(value.startswith(b"text/event-stream") for name, value in part.headers)
                    await send({"type": "http.response.start", "status": part.status, "headers": part.headers})
                else:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except RayError as error:
            if is_stream is None:
                await _lost(error).response()(scope, receive, send)
                return
            if not is_stream:
                raise  # the connection is cut: half an object must not look like a whole one
            await send({"type": "http.response.body", "body": _lost(error).event(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _lost(error: RayError) -> ApiError:
    """The replica has died, or there is none that takes the request."""
    if isinstance(error, RayActorError):
        return ApiError(
            503, "the replica died while it answered: ask again", code="replica_died", headers={"Retry-After": "1"}
        )
    return ApiError(503, "no replica takes the request now", code="no_replica", headers={"Retry-After": "1"})
