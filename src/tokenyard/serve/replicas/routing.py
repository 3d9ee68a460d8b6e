"""Which replica gets a request: the routers of a replay, asked with what a router knows of prompts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from tokenyard.core.kv.hashing import BlockHasher
from tokenyard.core.request import BlockHash, Request
from tokenyard.sim.routers import Router

# ---------------------------------------------------------------------------------------------------------------------
# What a prompt is to a router: bytes, of which equal beginnings count.

_MOST_BYTES = 64 * 1024
"""Bytes of a prompt that are looked at, from its beginning: what follows decides nothing."""


class RoutedPrompt(msgspec.Struct, frozen=True):
    """The beginning of a prompt; requests of different salts share nothing."""

    text: bytes
    cache_salt: str | None = None


class _Body(msgspec.Struct):
    """The fields that matter here; whatever else there is, the replica checks."""

    prompt: Any = None
    messages: Any = None
    tools: Any = None
    cache_salt: Any = None


def prompt_of(body: bytes) -> RoutedPrompt | None:
    """The prompt in the body of a request; None where there is none, or a body that the replica will refuse."""
    try:
        said = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if said.messages is not None:
        # Templates put tools first, then one message after the other.
        parts = [said.tools or [], *(said.messages if isinstance(said.messages, list) else [said.messages])]
        text = b"\n".join(msgspec.json.encode(part) for part in parts)
    else:
        text = _prompt_text(said.prompt)
    salt = said.cache_salt if isinstance(said.cache_salt, str) else None
    return RoutedPrompt(text[:_MOST_BYTES], salt) if text else None


def _prompt_text(prompt: Any) -> bytes:
    """The prompt as bytes; the first of several, since they stay together."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt.encode(errors="replace")
    return msgspec.json.encode(prompt)[1:-1] if isinstance(prompt, list) else b""


def as_request(name: str, prompt: RoutedPrompt | None) -> Request:
    """The same as routers take it: each byte is a token. Without a prompt it shares nothing with others."""
    if prompt is None:
        return Request(name, [0])
    return Request(name, np.frombuffer(prompt.text, np.uint8), cache_salt=prompt.cache_salt)


# ---------------------------------------------------------------------------------------------------------------------
# Who gets a request: the routers of the replay, asked with what a front end knows of its replicas.
#
# It knows what it has sent and what has ended. A replica is taken to hold what was sent to it, the newest blocks
# first.

_BLOCK_BYTES = 64


class _KnownReplica:
    """One replica, as far as is known here (an ``EngineState`` of the replay's routers)."""

    num_waiting = 0
    """Whether a request runs or waits is not known here: all count as running."""

    def __init__(self, name: str, rank: int, balance: Balance) -> None:
        self.name, self.rank = name, rank
        self.num_running = 0
        self.num_blocks = 0
        self._balance = balance

    @property
    def kv_usage(self) -> float:
        """Its share of all that is remembered: of two idle replicas, who was sent less comes first."""
        return self.num_blocks / max(self._balance.num_blocks, 1)

    def num_cached_tokens(self, request: Request) -> int:
        """Leading bytes that it was sent before."""
        return self._balance.matched(self.name, request)


class Balance:
    """Chooses, and keeps count. Belongs to one thread."""

    def __init__(self, router: Router, most_blocks: int, clock: Callable[[], float]) -> None:
        self._router = router
        self._most_blocks = most_blocks
        self._clock = clock
        self._hasher = BlockHasher(_BLOCK_BYTES)
        self._replicas: dict[str, _KnownReplica] = {}
        self._holders: OrderedDict[tuple[str, BlockHash], None] = OrderedDict()
        """Replica and hash of a block that it was sent, the newest last."""
        self._running: dict[str, str] = {}
        """Request -> replica."""
        self._num_replicas_seen = 0

    @property
    def num_blocks(self) -> int:
        """Blocks remembered, of all replicas."""
        return len(self._holders)

    @property
    def loads(self) -> dict[str, int]:
        """Replica -> requests under way."""
        return {name: each.num_running for name, each in self._replicas.items()}

    def keep(self, names: Iterable[str]) -> None:
        """These are the replicas from now on; of others all is forgotten."""
        wanted = list(names)
        gone = self._replicas.keys() - set(wanted)
        for name in gone:
            del self._replicas[name]
        if gone:
            self._holders = OrderedDict((held, None) for held in self._holders if held[0] not in gone)
            self._running = {request: name for request, name in self._running.items() if name not in gone}
        for name in wanted:
            self._seen(name)

    def choose(self, request: Request, names: Sequence[str]) -> str:
        """Which of these replicas gets it. Counts nothing yet: see :meth:`sent`."""
        seen = [self._seen(name) for name in names]
        return names[self._router.choose(self._clock(), request, seen)]

    def sent(self, request: Request, name: str) -> None:
        """It goes to that replica; an earlier call for it counts no more."""
        seen = self._seen(name)
        before = self._running.get(request.request_id)
        if before != name:
            if before is not None:
                self._seen(before).num_running -= 1
            self._running[request.request_id] = name
            seen.num_running += 1
        for block in self._hasher.extend(request):
            held = (name, block)
            if held in self._holders:
                self._holders.move_to_end(held)
            else:
                self._holders[held] = None
                seen.num_blocks += 1
        while len(self._holders) > self._most_blocks:
            (old, _), _ = self._holders.popitem(last=False)
            self._seen(old).num_blocks -= 1

    def ended(self, request_id: str) -> None:
        """Its answer has ended, or its client has left; an id that is not running is ignored."""
        name = self._running.pop(request_id, None)
        if name is not None:
            self._seen(name).num_running -= 1
            self._router.request_ended(self._clock(), request_id, self._seen(name).rank)

    def matched(self, name: str, request: Request) -> int:
        """Leading bytes of the request in blocks that ``name`` was sent."""
        num = 0
        for block in self._hasher.extend(request):
            if (name, block) not in self._holders:
                break
            num += 1
        return num * _BLOCK_BYTES

    def _seen(self, name: str) -> _KnownReplica:
        if name not in self._replicas:
            self._replicas[name] = _KnownReplica(name, self._num_replicas_seen, self)
            self._num_replicas_seen += 1
        return self._replicas[name]
