"""The application of Ray Serve: its front and its replicas."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from dataclasses import fields
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
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenyard.core.engine import EngineCore
from tokenyard.errors import ConfigError, shown
from tokenyard.policies.named import policy_label, policy_maker
from tokenyard.record.writer import TraceWriter
from tokenyard.serve.front import FrontSettings
from tokenyard.serve.openai.app import make_api, no_key, scraped, together, unknown_path
from tokenyard.serve.openai.assembly import build_server, unix_clock, watch
from tokenyard.serve.openai.clients import GoneError, cancel_on_disconnect
from tokenyard.serve.openai.fields import ApiError, on_api_error
from tokenyard.serve.replicas.routing import ReplicaRouter, RoutedPrompt, prompt_of
from tokenyard.serve.served_model import DEMO, load_core, make_demo_model
from tokenyard.sim.named_routers import ROUTERS
from tokenyard.trace.config import TraceConfig
from tokenyard.web.connections import ApiKeys, RefusedError, json_body

# ---------------------------------------------------------------------------------------------------------------------
# What a deployment file says under args, and an HTTP request carried to another process.

# ---------------------------------------------------------------------------------------------------------------------
# What a deployment file says under ``args``.

_NEEDS_REPORTS = "vllm"
"""Balances by what engines report every few milliseconds, which replicas do not."""


class ReplicaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one application: a model, how often it runs, and which replica gets a request."""

    model: str
    """Folder of a Hugging Face checkpoint, on every machine; ``demo`` makes a tiny one."""
    num_replicas: int = 2
    """Engines, each with its own memory."""
    num_cpus: float = 1.0
    """Processors that Ray reserves for each."""
    num_gpus: float = 0.0
    """GPUs that Ray reserves for each."""
    engine: dict[str, Any] = {}
    """Settings of each engine, by the names of ``load_engine``, which are vLLM's flags."""
    front: FrontSettings = msgspec.field(default_factory=FrontSettings)
    """Settings of what stands before each engine, by the names of the flags of ``tokenyard serve``."""
    served_model_name: list[str] = []
    """Names by which clients call the model; answers say the first."""
    router: str = "prefix-affinity"
    """``prefix-affinity``, ``least-loaded``, ``round-robin``, or FILE.py:CLASS, as for ``tokenyard run --router``."""
    most_ahead: int = 8
    """``prefix-affinity`` passes a replica over that has so many requests more than the one with the fewest."""
    most_remembered: int = 200_000
    """Blocks of 64 bytes of prompts that the router remembers, the newest ones."""
    health_check_period_s: float = 10.0
    """Seconds between two questions of Ray's whether a replica is well."""
    trace: str | None = None
    """Folder for a trace of each replica."""

    def __post_init__(self) -> None:
        for name in ("num_replicas", "most_ahead", "most_remembered"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "give a whole number from 1 on")
        for name in ("num_cpus", "num_gpus"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(name, getattr(self, name), "give a number from 0 on")
        names = [name for name in ROUTERS if name != _NEEDS_REPORTS]
        if ":" not in self.router and self.router not in names:
            raise ConfigError("router", self.router, f"use one of: {', '.join(names)}; or FILE.py:CLASS")

    @property
    def names(self) -> list[str]:
        """Names by which clients call the model."""
        return self.served_model_name or [self.model]


def read_settings(args: Mapping[str, Any]) -> ReplicaSettings:
    """From the ``args`` of a deployment file. Raises ConfigError."""
    given, front = dict(args), args.get("front")
    if isinstance(front, Mapping):
        given["front"] = _front(front)
    try:
        return msgspec.convert(given, ReplicaSettings)
    except msgspec.ValidationError as error:
        raise ConfigError("args", shown(dict(args)), str(error)) from None


def _front(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with an object as its JSON; ConfigError for a name that there is not."""
    known = {each.name for each in fields(FrontSettings)}
    for name in given:
        if name not in known:
            raise ConfigError("args", name, f"front has no such setting: use {', '.join(sorted(known))}")
    override = given.get("override_generation_config")
    if isinstance(override, Mapping):
        return {**given, "override_generation_config": msgspec.json.encode(override).decode()}
    return dict(given)


# ---------------------------------------------------------------------------------------------------------------------
# An HTTP request, carried to an application in another process, and its answer, piece by piece.


class ProxiedRequest(msgspec.Struct, frozen=True):
    """A request whose body was read."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Head(msgspec.Struct, frozen=True):
    """The beginning of an answer."""

    status: int
    headers: list[tuple[bytes, bytes]]


class _Exchange:
    """One request at one application."""

    def __init__(self, request: ProxiedRequest) -> None:
        self._request = request
        self._is_read = False
        self._gone = asyncio.Event()
        self.head: Head | None = None
        self.told = asyncio.Event()
        """There is something new."""
        self.pieces: list[bytes] = []

    def leave(self) -> None:
        """The client is gone."""
        self._gone.set()

    @property
    def scope(self) -> Scope:
        request = self._request
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.path.encode(),
            "root_path": "",
            "query_string": request.query,
            "headers": request.headers,
            "client": None,
            "server": None,
            "state": {},
        }

    async def receive(self) -> Message:
        """The body once, then the client's leaving."""
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take in a part of the answer."""
        if message["type"] == "http.response.start":
            self.head = Head(message["status"], [(bytes(name), bytes(value)) for name, value in message["headers"]])
        elif message.get("body"):
            self.pieces.append(message["body"])
        self.told.set()


async def answered(app: ASGIApp, request: ProxiedRequest) -> AsyncGenerator[Head | bytes, None]:
    """The head of the application's answer, then its body as it comes; what came together is one piece.

    A caller that closes it early has left: the application gets the disconnect, and ends. Raises what it raises.
    """
    exchange = _Exchange(request)
    task = asyncio.ensure_future(app(exchange.scope, exchange.receive, exchange.send))
    task.add_done_callback(lambda _: exchange.told.set())
    try:
        is_head_told = False
        while True:
            await exchange.told.wait()
            exchange.told.clear()
            is_over = task.done()
            if exchange.head is not None and not is_head_told:
                is_head_told = True
                yield exchange.head
            if exchange.pieces:
                pieces, exchange.pieces = exchange.pieces, []
                yield b"".join(pieces)
            if is_over and not exchange.pieces:
                task.result()
                return
    finally:
        exchange.leave()
        await asyncio.gather(task, return_exceptions=True)


# ---------------------------------------------------------------------------------------------------------------------

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
