"""What an emulation can hold: the tokens a second that this machine carries, and how many streams that is.

A server that emulates a GPU has to send each token at its moment. How many it can is measured before it listens: a
server of the same kind answers streams over sockets whose other ends are not read, on a clock that comes to each step
when the one before has been sent. What counts is the processor's time, so that a busy machine gives the same number.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

import msgspec
import numpy as np
import uvicorn
from uvicorn.server import ServerState

from tokenyard.serve.async_llm import AsyncLLM
from tokenyard.serve.emulate.live import WallClock
from tokenyard.steptime.model import LatencyModel, StepShape, step_seconds
from tokenyard.web.serve import run_in_loop

_STREAMS, _TOKENS = 32, 32
_WARM_UP = 4
"""Tokens of the streams that come first."""
_CONTEXT = 512
"""Tokens before those whose rate is asked for."""
_SECONDS_BETWEEN = 0.002
_SHARE = 0.8
"""Share of what the machine carries that a server should be given: requests have to be read, too."""


class Capacity(msgspec.Struct, frozen=True):
    """How much an emulation carries."""

    tokens_per_s: float
    """Tokens that can be streamed in a second of the wall, one by one."""
    streams: int
    """Streams whose tokens come at their moments, of those that the emulated server runs at a time."""
    most_streams: int
    """Streams that it runs at a time."""
    is_measured: bool

    @property
    def sentence(self) -> str:
        """For the start log."""
        how = "measured" if self.is_measured else "given"
        carried = f"This machine carries about {self.tokens_per_s:,.0f} tokens a second ({how})"
        if self.streams >= self.most_streams:
            return f"{carried}: all {self.most_streams:,} streams come at their moments"
        return f"{carried}: {self.streams:,} of {self.most_streams:,} streams come at their moments, more come late"


def capacity(tokens_per_s: float, latency: LatencyModel, most: int, speed: float, *, is_measured: bool) -> Capacity:
    """How many streams of a server that steps ``most`` sequences at a time, in so short a time, such a rate is."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if _rate(latency, middle) * speed <= _SHARE * tokens_per_s:
            low = middle
        else:
            high = middle - 1
    return Capacity(tokens_per_s, low, most, is_measured)


def _rate(latency: LatencyModel, streams: int) -> float:
    """Tokens a second that so many streams get."""
    shape = StepShape(np.ones(streams, np.int64), np.full(streams, _CONTEXT, np.int64), streams, streams)
    return streams / max(1e-9, step_seconds(latency, shape))


class Unhurried(WallClock):
    """A wall that comes to the next moment as soon as it is asked how long that is."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def emulated(self, monotonic: float) -> float:
        return self._now

    def seconds_until(self, moment: float) -> float:
        self._now = max(self._now, moment)
        return 0.0


def tokens_per_second(llm: AsyncLLM, config: uvicorn.Config, clock: Callable[[], float] = time.process_time) -> float:
    """Tokens that an application streams in a second of a processor; its engines keep to :class:`Unhurried`."""

    async def measured() -> float:
        async with llm:
            config.load()
            await _streamed(config, _WARM_UP)
            before = clock()
            await _streamed(config, _TOKENS)
            return _STREAMS * _TOKENS / max(1e-6, clock() - before)

    return run_in_loop(config, measured())


async def _streamed(config: uvicorn.Config, tokens: int) -> None:
    """Have streams of so many tokens answered."""
    loop, state = asyncio.get_running_loop(), ServerState()
    shared: dict[str, object] = {}
    body = json.dumps({"prompt": "measured", "max_tokens": tokens, "ignore_eos": True, "stream": True}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close"
    request = f"{head}\r\nAuthorization: Bearer any\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    with ExitStack() as stack:
        for _ in range(_STREAMS):
            ours, theirs = socket.socketpair()
            stack.enter_context(theirs).sendall(request)
            await loop.connect_accepted_socket(
                lambda: config.http_protocol_class(config=config, server_state=state, app_state=shared, _loop=loop),  # type: ignore[call-arg]
                ours,
            )
        await asyncio.sleep(_SECONDS_BETWEEN)
        while state.connections:
            await asyncio.sleep(_SECONDS_BETWEEN)
