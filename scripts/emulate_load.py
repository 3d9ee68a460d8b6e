"""What an emulated server costs: processor time per request and per streamed token, memory per open stream; and that
nothing is lost or held when clients leave.

    .venv/bin/python scripts/emulate_load.py [--requests 2000] [--streams 2000] [--leaving 2000]

Clients are processes of their own; what is printed is the processor time of the server alone, so that a busy machine
does not distort it.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import uvicorn

from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.emulate.host import EmulateSettings, Emulation, emulate
from tokenyard.serve.emulate.surface import make_app
from tokenyard.web.serve import bound

LINE = "vllm serve Qwen/Qwen3-0.6B --max-num-seqs 1024 --max-model-len 2048"
_AT_ONCE = 1000
"""Requests under way: the more, the larger are steps, and the less does each of their tokens cost."""


@contextmanager
def served(speed: float) -> Iterator[tuple[Emulation, str]]:
    """A server in a thread of this process."""
    deployment = Deployment(LINE, gpu="h100")
    with closing(emulate(deployment, EmulateSettings(speed=speed))) as emulation:
        app = make_app(emulation, emulation.fronts[0], deployment, emulation.faults)
        listener = bound("127.0.0.1", 0)
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", access_log=False, backlog=4096, timeout_keep_alive=900)
        )
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        yield emulation, f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def ask(url: str, number: int, fields: dict[str, Any], at_once: int, leaving: float, answers: Any) -> None:
    """Send so many requests; tell answers, tokens, and clients that left."""
    chance = random.Random(5)

    async def run() -> None:
        limits, turns = httpx.Limits(max_connections=at_once), asyncio.Semaphore(at_once)
        counts = {"answered": 0, "chunks": 0, "left": 0}
        async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as http:

            async def one(i: int) -> None:
                body = {"prompt": [1000 + i % 7, *range(2000, 2050)], "ignore_eos": True, **fields}
                last = chance.randint(0, 40) if chance.random() < leaving else None
                async with turns:
                    if not fields.get("stream"):
                        (await http.post("/v1/completions", json=body)).raise_for_status()
                        counts["answered"] += 1
                        return
                    chunks = 0
                    async with http.stream("POST", "/v1/completions", json=body) as answer:
                        async for line in answer.aiter_lines():
                            chunks += line.startswith("data: {")
                            if last is not None and chunks > last:
                                break
                    counts["chunks"] += chunks
                    counts["left" if last is not None else "answered"] += 1

            await asyncio.gather(*(one(i) for i in range(number)))
        answers.put(counts)

    asyncio.run(run())


def asked(
    url: str, number: int, fields: dict[str, Any], *, at_once: int = _AT_ONCE, leaving: float = 0.0
) -> dict[str, Any]:
    """The counts of a client's process, and the processor seconds of this one meanwhile."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    before = time.process_time()
    process = context.Process(target=ask, args=(url, number, fields, at_once, leaving, answers))
    process.start()
    counts: dict[str, Any] = answers.get(timeout=900)
    process.join()
    return {**counts, "seconds": time.process_time() - before}


def held(emulation: Emulation) -> int:
    """Blocks that are held by somebody."""
    schedulers = [rank.scheduler for group in emulation.engines.groups for rank in group.ranks]
    return sum(each.num_total_blocks - 1 - each.num_free_blocks for each in schedulers)


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--leaving", type=int, default=2000)
    parser.add_argument("--speed", type=float, default=1.0)
    flags = parser.parse_args()
    with served(flags.speed) as (emulation, url):
        asked(url, 50, {"max_tokens": 100})
        told = asked(url, flags.requests, {"max_tokens": 100})
        each = told["seconds"] / flags.requests
        cost = f"{each * 1e3:.2f} ms of a processor each, {1 / each:,.0f} a second of a core"
        print(f"{flags.requests:,} requests of 100 tokens: {cost}", flush=True)
        told = asked(url, flags.requests, {"max_tokens": 100, "stream": True})
        tokens, chunks = 100 * flags.requests, told["chunks"]
        print(
            f"{tokens:,} tokens streamed in {chunks:,} chunks: {tokens / told['seconds']:,.0f} tokens and "
            f"{chunks / told['seconds']:,.0f} chunks a second of a core"
        )
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        told = asked(url, flags.streams, {"max_tokens": 50, "stream": True}, at_once=flags.streams)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"{flags.streams:,} streams at once: {told['answered']:,} answered, {grown:.0f} MiB more memory")
        told = asked(url, flags.leaving, {"max_tokens": 50, "stream": True}, leaving=0.3)
        time.sleep(1.0)
        left, gone = held(emulation), f"{told['left']:,} clients left"
        print(f"{flags.leaving:,} requests: {told['answered']:,} answered, {gone}, {left} blocks held")
        lost = flags.leaving - told["answered"] - told["left"]
        return 0 if not left and not lost else 1


if __name__ == "__main__":
    sys.exit(main())
