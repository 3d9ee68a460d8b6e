"""What an emulated server costs: processor time per request and per streamed token, memory per open stream; and that
nothing is lost or held when clients leave.

    .venv/bin/python lab/emulate_load.py [--requests 2000] [--streams 2000] [--leaving 2000] [--answer 100]

Clients are a process of their own, with no more HTTP than they need; what is printed is the processor time of the
server alone, so that a busy machine does not distort it, and that of the clients, which says whether they were the
limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from emulate_servers import served
from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.emulate.host import Emulation
from tokenyard.web.serve import raise_limit

LINE = "vllm serve Qwen/Qwen3-0.6B --max-num-seqs 1024 --max-model-len 2048"
_AT_ONCE = 1000
"""Requests under way: the more, the larger are steps, and the less does each of their tokens cost."""
_PROMPT = 50
"""Tokens of a prompt."""


class Wanted(NamedTuple):
    """What clients ask."""

    number: int
    fields: dict[str, Any]
    at_once: int = _AT_ONCE
    leaving: float = 0.0
    """Share of them that leaves before the end."""


# ---------------------------------------------------------------------------------------------------------------------
# Clients: connections that ask one request after the other.


class Clients:
    """Asks what is wanted; how it went stands in ``counts``."""

    def __init__(self, port: int, wanted: Wanted) -> None:
        self.wanted, self.port, self.counts = wanted, port, Counter[str]()
        self.done = asyncio.Event()
        self._chance, self._begun, self._ended = random.Random(5), 0, 0

    async def run(self) -> dict[str, int]:
        """Until all have been answered, or have left."""
        for _ in range(min(self.wanted.at_once, self.wanted.number)):
            await self.connect()
        await self.done.wait()
        return dict(self.counts)

    async def connect(self) -> None:
        """One more connection."""
        await asyncio.get_running_loop().create_connection(lambda: _Connection(self), "127.0.0.1", self.port)

    def next_request(self) -> tuple[bytes, int | None] | None:
        """A request, and after how many pieces of its answer its client leaves (-1: at once); None: no more."""
        if self._begun == self.wanted.number:
            return None
        self._begun += 1
        body = {"prompt": [1000 + self._begun % 7, *range(2000, 1999 + _PROMPT)], "ignore_eos": True}
        content = json.dumps(body | self.wanted.fields).encode()
        head = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        leaves = self._chance.random() < self.wanted.leaving
        request = b"POST /v1/completions HTTP/1.1\r\n" + head.encode() + content
        return request, self._chance.randint(-1, 5) if leaves else None

    def ended(self, how: str) -> None:
        """One has."""
        self.counts[how] += 1
        self._ended += 1
        if self._ended == self.wanted.number:
            self.done.set()


class _Connection(asyncio.Protocol):
    def __init__(self, clients: Clients) -> None:
        self._clients, self._left = clients, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        asked = self._clients.next_request()
        if asked is None:
            self._left = True
            self._transport.close()
            return
        content, self._leaves_after = asked
        self._tail, self._chunks, self._is_bad = b"", 0, False
        self._length: int | None = None
        self._transport.write(content)
        if self._leaves_after == -1:
            self._leave()

    def data_received(self, data: bytes) -> None:
        self._is_bad |= data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 200")
        chunks = (self._tail[-6:] + data).count(b"data: {")
        self._chunks += chunks
        self._clients.counts["chunks"] += chunks
        self._tail += data
        if self._leaves_after is not None and self._chunks > self._leaves_after:
            self._leave()
        elif self._is_over():
            self._clients.ended("refused" if self._is_bad else "answered")
            self._ask()

    def _leave(self) -> None:
        self._left = True
        self._transport.close() if self._leaves_after == -1 else self._transport.abort()
        self._clients.ended("left")
        self._again = asyncio.ensure_future(self._clients.connect())

    def _is_over(self) -> bool:
        head, found, body = self._tail.partition(b"\r\n\r\n")
        if self._length is None and found:
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    self._length = int(line[15:])
            if self._length is None:
                self._length = -1
        if self._length is None:
            return False
        if self._length >= 0:
            return len(body) >= self._length
        self._tail = self._tail[-100:] if len(self._tail) > 2000 else self._tail
        return self._tail.endswith(b"\r\n0\r\n\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._left:
            self._clients.ended("lost")


def ask(port: int, wanted: Wanted, answers: Any) -> None:
    """In a process of its own: tell how many were answered, refused, lost, and left."""

    async def run() -> None:
        counts = await Clients(port, wanted).run()
        answers.put({**counts, "of_clients": time.process_time()})

    raise_limit()
    asyncio.run(run())


def asked(port: int, wanted: Wanted) -> dict[str, Any]:
    """The counts of a client's process with its processor seconds, and those of this one meanwhile."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    before, begun = time.process_time(), time.monotonic()
    process = context.Process(target=ask, args=(port, wanted, answers), daemon=True)
    process.start()
    counts: dict[str, Any] = answers.get(timeout=7200)
    process.join()
    return {
        **Counter(answered=0, left=0, lost=0, refused=0, chunks=0),
        **counts,
        "seconds": time.process_time() - before,
        "passed": time.monotonic() - begun,
    }


def shares(told: dict[str, Any]) -> str:
    """How busy the server and its clients were."""
    server, clients = told["seconds"] / told["passed"], told["of_clients"] / told["passed"]
    return f"in {told['passed']:.1f} s: the server was busy for {server:.0%} of them, its clients for {clients:.0%}"


def held(emulation: Emulation) -> int:
    """Blocks that requests hold."""
    schedulers = [rank.scheduler for group in emulation.engines.groups for rank in group.ranks]
    return sum(each.num_total_blocks - 1 - each.num_free_blocks for each in schedulers)


def peak_mib(*, anew: bool = False) -> float:
    """The most memory that this process has had, since it was last counted ``anew``."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    return next(int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))


def open_files() -> int:
    """Return the number of open files of this process, connections among them; -1 where the system does not tell."""
    files = Path("/proc/self/fd")
    return len(list(files.iterdir())) if files.exists() else -1


def main() -> int:
    """Measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--leaving", type=int, default=2000)
    parser.add_argument("--answer", type=int, default=100, help="output tokens of a request")
    parser.add_argument("--speed", type=float, default=0.05, help="so slow that steps are full on a busy machine, too")
    flags = parser.parse_args()
    raise_limit()
    fields = {"max_tokens": flags.answer}
    with served(Deployment(LINE, gpu="h100"), flags.speed) as (emulation, port):
        asked(port, Wanted(50, fields))
        if flags.requests:
            told = asked(port, Wanted(flags.requests, fields))
            each = told["seconds"] / flags.requests
            cost = f"{each * 1e3:.2f} ms of a processor each, {1 / each:,.0f} a second of a core"
            print(
                f"{flags.requests:,} requests of {_PROMPT} + {flags.answer} tokens: {cost}; {shares(told)}", flush=True
            )
            told = asked(port, Wanted(flags.requests, {**fields, "stream": True}))
            tokens, chunks = flags.answer * flags.requests, told["chunks"]
            print(
                f"{tokens:,} tokens streamed in {chunks:,} chunks: {tokens / told['seconds']:,.0f} tokens and "
                f"{chunks / told['seconds']:,.0f} chunks a second of a core; {shares(told)}",
                flush=True,
            )
        streaming = {"max_tokens": 50, "stream": True}
        if flags.streams:
            before = peak_mib(anew=True)
            told = asked(port, Wanted(flags.streams, streaming, at_once=flags.streams))
            grown = peak_mib() - before
            print(
                f"{flags.streams:,} streams at once: {told['answered']:,} answered, {grown:.0f} MiB more memory",
                flush=True,
            )
        parts = 3
        return sum(
            _leave(emulation, port, Wanted(flags.leaving // parts, streaming, leaving=1 / 3)) for _ in range(parts)
        )


def _leave(emulation: Emulation, port: int, wanted: Wanted) -> bool:
    """Whether anything is left of requests some of whose clients leave, or one of them was lost."""
    told = asked(port, wanted)
    time.sleep(1.0)
    left, gone = held(emulation), f"{told['left']:,} clients left"
    now = f"{peak_mib(anew=True):.0f} MiB, {open_files()} files"
    print(f"{wanted.number:,} requests: {told['answered']:,} answered, {gone}, {left} blocks held, {now}", flush=True)
    return bool(left or wanted.number - told["answered"] - told["left"])


if __name__ == "__main__":
    sys.exit(main())
