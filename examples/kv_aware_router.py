"""A router that knows what each server has cached: four emulated vLLM servers, their KV events, and a choice by prefix.

    python examples/kv_aware_router.py [REQUESTS]

The servers are those of ``tokenyard emulate --servers 4``; here they run in this process. The router subscribes to the
events that vLLM publishes over ZeroMQ, and needs nothing of Tokenyard to read them. Needs the extras server and zmq.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import AsyncExitStack, closing
from typing import Any

import httpx
import msgspec
import zmq

from tokenyard import Deployment
from tokenyard.serve.emulate.host import emulate
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.emulate.surface import make_app

LINE = (
    "vllm serve Qwen/Qwen3-0.6B --max-model-len 4096 --block-size 16 --kv-events-config "
    """'{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://127.0.0.1:*"}'"""
)
NUM_SERVERS, BLOCK = 4, 16


class Index:
    """Which blocks of tokens each server has cached."""

    def __init__(self, endpoints: list[str]) -> None:
        self._context = zmq.Context()
        self._sockets = [self._context.socket(zmq.SUB) for _ in endpoints]
        for socket, endpoint in zip(self._sockets, endpoints, strict=True):
            socket.connect(endpoint)
            socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._cached: list[dict[Any, tuple[int, ...]]] = [{} for _ in endpoints]
        self.num_events = 0

    def listen(self) -> None:
        """Take in what has been published."""
        for socket, cached in zip(self._sockets, self._cached, strict=True):
            while socket.poll(0):
                _, _, batch = socket.recv_multipart()
                for kind, *fields in msgspec.msgpack.decode(batch)[1]:
                    self.num_events += 1
                    if kind == "BlockStored":
                        hashes, _, tokens, size = fields[:4]
                        cached.update({each: tuple(tokens[i * size : (i + 1) * size]) for i, each in enumerate(hashes)})
                    elif kind == "BlockRemoved":
                        for each in fields[0]:
                            cached.pop(each, None)
                    else:
                        cached.clear()

    def num_cached(self, server: int, prompt: list[int]) -> int:
        """Blocks of the prompt, from its beginning, that the server has seen."""
        known, count = set(self._cached[server].values()), 0
        while tuple(prompt[count * BLOCK : (count + 1) * BLOCK]) in known:
            count += 1
        return count

    def close(self) -> None:
        for socket in self._sockets:
            socket.close(0)
        self._context.term()


async def run(num_requests: int, *, aware: bool) -> tuple[float, int]:
    """Share of prompt tokens that were cached, and events that were read."""
    chance = random.Random(1)
    agents = [chance.choices(range(1000, 9000), k=320) for _ in range(8)]
    async with AsyncExitStack() as stack:
        deployment = Deployment(LINE, gpu="h100")
        settings = EmulateSettings(speed=100, servers=NUM_SERVERS)
        emulation = stack.enter_context(closing(emulate(deployment, settings)))
        index = stack.enter_context(closing(Index([each.endpoint for each in emulation.publishers])))
        clients = []
        for front in emulation.fronts:
            await stack.enter_async_context(front.llm)
            app = make_app(emulation, front, deployment, emulation.faults)
            transport = httpx.ASGITransport(app=app)
            client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60)
            clients.append(await stack.enter_async_context(client))
        await asyncio.sleep(0.2)  # subscriptions take a moment
        total = 0
        for i in range(num_requests):
            prompt = chance.choice(agents) + chance.choices(range(1000, 9000), k=40)
            index.listen()
            hits = [index.num_cached(server, prompt) for server in range(NUM_SERVERS)]
            chosen = max(range(NUM_SERVERS), key=lambda server: (hits[server], (server - i) % NUM_SERVERS))
            body = {"prompt": prompt, "max_tokens": 4, "ignore_eos": True}
            answer = await clients[chosen if aware else i % NUM_SERVERS].post("/v1/completions", json=body)
            answer.raise_for_status()
            await asyncio.sleep(0.01)
            total += len(prompt)
        told = [(await client.get("/metrics")).text for client in clients]
        lines = [line for text in told for line in text.splitlines() if line.startswith("vllm:prefix_cache_hits_total")]
        return sum(float(line.rpartition(" ")[2]) for line in lines) / total, index.num_events


def main() -> None:
    """Both ways, side by side."""
    num_requests = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for name, aware in (("in turn", False), ("by what is cached", True)):
        share, events = asyncio.run(run(num_requests, aware=aware))
        print(f"{name:18} {share:6.1%} of the prompt tokens were cached ({events} KV events read)")


if __name__ == "__main__":
    main()
