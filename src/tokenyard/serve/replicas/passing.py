"""What a deployment file says under args, and an HTTP request carried to another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import fields
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Scope

from tokenyard.errors import ConfigError, shown
from tokenyard.serve.front import FrontSettings
from tokenyard.sim.named_routers import ROUTERS

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
