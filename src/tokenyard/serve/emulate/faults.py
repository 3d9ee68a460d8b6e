"""Faults on demand: what goes wrong with servers, switched on at start or over HTTP, for a time or until ended."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Literal

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenyard.connectors.tiers import TransferPlan
from tokenyard.core.sched.outputs import ConnectorOutput
from tokenyard.errors import ConfigError, EngineDeadError
from tokenyard.serve.emulate.forms import vllm_error
from tokenyard.serve.emulate.live import LiveEngines
from tokenyard.serve.openai.connection import without_connection
from tokenyard.serve.openai.fields import ApiError
from tokenyard.sim.executor import WorkerTransfers

_KINDS = Literal["slow_start", "crash", "cut", "hang", "status", "network", "throttle", "lag", "kv_corruption"]
_FIELDS: Mapping[str, Sequence[str]] = {
    "slow_start": (),
    "crash": (),
    "cut": ("after", "share"),
    "hang": (),
    "status": ("status", "share"),
    "network": ("delay_ms", "share"),
    "throttle": ("factor",),
    "lag": ("rank", "factor"),
    "kv_corruption": ("share",),
}
"""Kind -> fields that count, beside ``seconds``."""


class Fault(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One fault. Which fields count depends on its kind."""

    kind: _KINDS
    seconds: float | None = None
    """How long it lasts (``slow_start``, ``hang``: how long nothing happens); None: until it is ended."""
    share: float = 1.0
    """Share of requests that it hits, from 0 to 1 (``status``, ``network``, ``cut``); of loads (``kv_corruption``).
    They are spread evenly: at 0.2 the first, and every fifth after it.
    """
    status: int = 503
    """The answer of ``status``."""
    factor: float = 2.0
    """Factor by which steps take longer (``throttle``, ``lag``)."""
    rank: int = 0
    """Rank of the engine of each server whose steps do (``lag``)."""
    delay_ms: float = 0.0
    """Milliseconds before every piece of an answer (``network``)."""
    after: int = 5
    """Pieces of an answer after which ``cut`` ends its connection."""

    def record(self) -> dict[str, object]:
        """The fields that count."""
        return {name: getattr(self, name) for name in ("kind", "seconds", *_FIELDS[self.kind])}


def read_fault(text: str) -> Fault:
    """``kind``, or ``kind:name=value,name=value`` as a flag says it. Raises ConfigError."""
    kind, _, rest = text.partition(":")
    fields: dict[str, object] = {"kind": kind}
    for part in filter(None, rest.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise ConfigError("fault", text, "give KIND:NAME=VALUE,NAME=VALUE, for example status:status=429,share=0.1")
        fields[name.strip()] = value.strip()
    return fault_of(fields, text)


def fault_of(fields: object, shown: object = None) -> Fault:
    """The fault that fields tell. Raises ConfigError."""
    given: Mapping[str, object] = fields if isinstance(fields, Mapping) else {}
    kind = given.get("kind")
    if kind not in _FIELDS:
        raise ConfigError("fault", shown or fields, f"give a kind: {', '.join(_FIELDS)}")
    known = ("seconds", *_FIELDS[str(kind)])
    others = sorted(given.keys() - {"kind", *known})
    if others:
        raise ConfigError("fault", shown or fields, f"{kind} has no {others[0]}: it has {', '.join(known)}")
    try:
        fault = msgspec.convert(fields, Fault, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError("fault", shown or fields, str(error)) from None
    if not 0 <= fault.share <= 1 or fault.factor <= 0 or fault.delay_ms < 0 or (fault.seconds or 0) < 0:
        raise ConfigError("fault", shown or fields, "give a share from 0 to 1, a factor above 0, times not negative")
    if not 400 <= fault.status < 600:
        raise ConfigError("fault", shown or fields, "give a status from 400 to 599")
    return fault


class Faults:
    """The faults that are in force: made before the engines that they hit, and bound to them before one begins."""

    def __init__(self, seed: int = 0) -> None:
        self._chance = random.Random(seed)
        self._bound_to: LiveEngines | None = None
        self._load_kv = False
        """Some engine has a connector, whose loads can fail."""
        self._until: dict[str, tuple[Fault, float]] = {}
        self._seen = Counter[str]()
        """What each could have hit since it began."""

    def bind(self, engines: LiveEngines, *, load_kv: bool) -> None:
        """Once: the engines that are hit; ``load_kv``: some of them have a connector."""
        assert self._bound_to is None, "other engines have faults of their own"
        self._bound_to, self._load_kv = engines, load_kv

    @property
    def _engines(self) -> LiveEngines:
        assert self._bound_to is not None, "bind() comes before a fault begins"
        return self._bound_to

    def begin(self, fault: Fault) -> None:
        """From now on; one of a kind is in force. Raises ConfigError for one that cannot happen here."""
        ranks = max(len(group.ranks) for group in self._engines.groups)
        if fault.kind == "lag" and not 0 <= fault.rank < ranks:
            raise ConfigError("fault", fault.rank, f"there is no such rank: give one from 0 to {ranks - 1}")
        if fault.kind == "kv_corruption" and not self._load_kv:
            fix = "no connector loads KV here: give --kv-transfer-config, --kv-offloading-size or --split"
            raise ConfigError("fault", fault.kind, fix)
        ends = float("inf") if fault.seconds is None else time.monotonic() + fault.seconds
        self._until[fault.kind] = fault, ends
        self._seen[fault.kind] = 0
        if fault.kind == "hang":
            self._engines.hold_until = ends
        elif fault.kind == "crash":
            self._engines.die(EngineDeadError("it crashed, as requested"))

    def end(self, kind: str | None = None) -> None:
        """End one, or all; a crash is for good."""
        for each in [kind] if kind is not None else list(self._until):
            if each == "crash":
                continue
            self._until.pop(each, None)
            if each == "hang":
                self._engines.hold_until = float("-inf")
                self._engines.wake()

    def in_force(self) -> list[Fault]:
        """All of them."""
        return [fault for kind in list(self._until) if (fault := self.of(kind)) is not None]

    def of(self, kind: str) -> Fault | None:
        """The one of a kind, while it is in force."""
        known = self._until.get(kind)
        if known is None:
            return None
        if time.monotonic() >= known[1]:
            del self._until[kind]
            return None
        return known[0]

    def hits(self, kind: str) -> Fault | None:
        """The one of a kind, if it hits what is about to happen."""
        fault = self.of(kind)
        if fault is None:
            return None
        share, before = Fraction(fault.share).limit_denominator(1_000_000), self._seen[kind]
        self._seen[kind] += 1
        return fault if ceil(share * (before + 1)) > ceil(share * before) else None

    def slowness(self, rank: int | None) -> float:
        """Factor by which a step that begins now takes longer: of one rank, or (None) of ranks that step together,
        which wait for the one that lags.
        """
        if not self._until:
            return 1.0
        throttled, lagging = self.of("throttle"), self.of("lag")
        factor = 1.0 if throttled is None else throttled.factor
        if lagging is None or (rank is not None and rank != lagging.rank):
            return factor
        return factor * (lagging.factor if rank is not None else max(1.0, lagging.factor))

    def corrupt(self, blocks: tuple[int, ...]) -> int | None:
        """The block of a load that is not what it should be, if it is hit."""
        return self._chance.choice(blocks) if blocks and self.hits("kv_corruption") is not None else None


class FaultyTransfers:
    """The worker half of a connector that finds KV corrupt, and reports it."""

    def __init__(self, own: WorkerTransfers, faults: Faults) -> None:
        self._own, self._faults = own, faults
        self._corrupt: dict[int, int] = {}
        """Job of a load under way -> its block that will be reported."""

    def begin(self, plan: TransferPlan | None) -> float:
        """Begin a step's transfers."""
        for load in () if plan is None else plan.loads:
            block = self._faults.corrupt(load.blocks)
            if block is not None:
                self._corrupt[load.job_id] = block
        return self._own.begin(plan)

    def report(self) -> ConnectorOutput | None:
        """What has ended by now, with the blocks that are wrong."""
        told = self._own.report()
        if told is None or not self._corrupt:
            return told
        wrong = frozenset(self._corrupt.pop(job) for job in told.completed_jobs & self._corrupt.keys())
        return replace(told, invalid_block_ids=told.invalid_block_ids | wrong)

    @property
    def next_moment(self) -> float | None:
        return self._own.next_moment


class FaultyNetwork:
    """ASGI middleware: statuses, delays, connections that are cut."""

    def __init__(self, app: ASGIApp, faults: Faults) -> None:
        self._app, self._faults = app, faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a status, or pass on with what the network does to it."""
        faults = self._faults
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        fault = faults.hits("status")
        if fault is not None:
            body = msgspec.json.encode(vllm_error(ApiError(fault.status, "a fault that was requested")))
            headers = [(b"content-type", b"application/json"), (b"retry-after", b"1")]
            await send({"type": "http.response.start", "status": fault.status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        cut, lost = faults.hits("cut"), faults.of("network")
        if cut is None and lost is None:
            await self._app(scope, receive, send)
            return
        left = None if cut is None else cut.after
        if lost is not None and faults.hits("network") is not None and not lost.delay_ms:
            left = 0

        async def passed(message: Message) -> None:
            nonlocal left
            if lost is not None and lost.delay_ms:
                await asyncio.sleep(lost.delay_ms / 1e3)
            if left is not None and message["type"] == "http.response.body":
                if left <= 0:
                    raise ConnectionAbortedError("cut, as requested")
                left -= 1
            await send(message)

        await self._app(without_connection(scope), receive, passed)
