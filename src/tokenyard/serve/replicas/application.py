"""The application of Ray Serve: its front and its replicas."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec
from ray import serve
from ray.exceptions import RayActorError, RayError
from ray.serve.config import RequestRouterConfig
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenyard.core.engine import EngineCore
from tokenyard.policies.named import policy_label, policy_maker
from tokenyard.record.writer import TraceWriter
from tokenyard.serve.openai.app import make_api, no_key, scraped, together, unknown_path
from tokenyard.serve.openai.assembly import build_server, unix_clock, watch
from tokenyard.serve.openai.clients import GoneError, cancel_on_disconnect
from tokenyard.serve.openai.fields import ApiError, on_api_error
from tokenyard.serve.replicas.passing import Head, ProxiedRequest, ReplicaSettings, answered, read_settings
from tokenyard.serve.replicas.ray_router import ReplicaRouter
from tokenyard.serve.replicas.routing import RoutedPrompt, prompt_of
from tokenyard.serve.served_model import DEMO, load_core, make_demo_model
from tokenyard.trace.config import TraceConfig
from tokenyard.web.connections import ApiKeys, RefusedError, json_body

# ---------------------------------------------------------------------------------------------------------------------
# One engine and its application, as Ray Serve runs them.

REPLICA_HEADER = b"tokenyard-replica"
"""Names the replica that answered."""


class Replica:
    """A deployment: everything that `tokenyard serve` is behind its socket."""

    async def __init__(self, settings: ReplicaSettings) -> None:  # type: ignore[misc] # Ray waits for it
        replica = serve.get_replica_context()
        tag = replica.replica_tag
        self._header = (REPLICA_HEADER, tag.encode())
        core = _loaded(settings)
        made = build_server(core, settings.names, settings.front, engine=replica.rank.rank)
        policy = settings.engine.get("policy", core.scheduler.config.policy)
        writer = TraceWriter(
            TraceConfig(
                path=None if settings.trace is None else Path(settings.trace) / tag, policy=policy_label(policy)
            )
        )
        writer.claim()
        watch(core, made.metrics, writer, policy=policy, model=settings.names[0], engine=settings.engine)
        self._metrics = scraped(made.metrics.registry)
        self._llm = made.context.llm
        self._app = make_api(made.context, host="")  # who may send requests was settled at the front
        await self._llm.start()

    async def answer(self, request: ProxiedRequest, prompt: RoutedPrompt | None) -> AsyncGenerator[Head | bytes, None]:
        """The answer of this engine, with its name in the head. ``prompt`` was for the router."""
        async for part in answered(self._app, request):
            yield (
                msgspec.structs.replace(part, headers=[*part.headers, self._header]) if isinstance(part, Head) else part
            )

    async def metrics(self) -> tuple[bytes, str]:
        """Prometheus's text and its content type; the label ``engine`` is the replica's number."""
        return self._metrics()

    def check_health(self) -> None:
        """Ray asks every few seconds, and starts another replica in the place of one that raises."""
        if self._llm.death is not None:
            raise self._llm.death


def _loaded(settings: ReplicaSettings) -> EngineCore:
    given: dict[str, Any] = {"clock": unix_clock(), **settings.engine}
    if "policy" in given:
        given["policy"] = policy_maker(given["policy"], "policy")()
    model = make_demo_model(Path(mkdtemp(prefix="tokenyard-"))) if settings.model == DEMO else settings.model
    return load_core(model, given)


# ---------------------------------------------------------------------------------------------------------------------
# Where requests come in: who may send requests, and to which replica each is carried.

_SECONDS_OF_METRICS = 10.0
_POSTED = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize", "/detokenize")
_READ = ("/v1/models", "/health")
_GENERATES = frozenset(_POSTED[:2])


class IngressDeployment:
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
            middleware=[Middleware(ApiKeys, keys=api_keys, refuse=no_key)] if api_keys else [],
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
        carried = ProxiedRequest(
            request.method, request.url.path, request.scope["query_string"], list(request.headers.raw), body
        )
        return self._replicas.options(stream=True).answer.remote(carried, prompt)

    async def _metrics(self, _: Request) -> Response:
        asked = self._replicas.broadcast("metrics")
        try:
            told = await asked.results_async(timeout_s=_SECONDS_OF_METRICS, return_exceptions=True)
        except TimeoutError:
            raise ApiError(
                503, f"a replica did not return its metrics within {_SECONDS_OF_METRICS:g} seconds"
            ) from None
        known = [each for each in told if not isinstance(each, BaseException)]
        if not known:
            raise ApiError(503, "no replica returns its metrics now")
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
            await cancel_on_disconnect(Request(scope, receive), self._send_all(scope, receive, send))
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
            503, "the replica died while it answered: retry", code="replica_died", headers={"Retry-After": "1"}
        )
    return ApiError(503, "no replica takes the request now", code="no_replica", headers={"Retry-After": "1"})


# ---------------------------------------------------------------------------------------------------------------------
# The application of a deployment file: ``import_path: tokenyard.serve.replicas.application:app``.

_MOST_ONGOING = 100_000
"""Requests that Ray lets a replica have: it says itself when its queue is full."""


def app(args: dict[str, Any]) -> Any:
    """The deployments: replicas of the engine, and a front before them. Raises ConfigError.

    API keys come from the environment, VLLM_API_KEY, with commas between them: files are read by many.
    """
    settings = read_settings(args)
    keys = [key for key in os.environ.get("VLLM_API_KEY", "").split(",") if key]
    replicas = serve.deployment(
        name="Replica",
        num_replicas=settings.num_replicas,
        max_ongoing_requests=_MOST_ONGOING,
        ray_actor_options={"num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus},
        request_router_config=RequestRouterConfig(
            request_router_class=ReplicaRouter,
            request_router_kwargs={
                "router": settings.router,
                "most_ahead": settings.most_ahead,
                "most_remembered": settings.most_remembered,
            },
        ),
        health_check_period_s=settings.health_check_period_s,
    )(Replica)
    front = serve.deployment(name="Front", max_ongoing_requests=_MOST_ONGOING, ray_actor_options={"num_cpus": 0})(
        IngressDeployment
    )
    return front.bind(replicas.bind(settings), settings.front.max_body_bytes, keys)
