"""Crowd `tokenyard view` with idle connections, slow readers and questions; and how long a list takes meanwhile.

    python scripts/crowd.py                       # 500 idle, 100 slow readers, 60 questions, 20 lists
    python scripts/crowd.py --idle 20 --slow 5 --questions 6 --lists 3

Starts the server on a folder of traces of its own. The crowd stays for as long as lists are asked for: connections that
the server closes are opened again, answers that end are asked for again. Exits with 1 if a list is refused or takes a
second or more.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Crowd", "Measured", "Traces", "crowded_lists", "main", "server", "traces"]

HOST = "127.0.0.1"
MOST_SECONDS = 1.0
SECONDS_TO_COME = 3.0
TRACES = 40
LINE = b'{"event":"step_snapshot","step":%d,"ts":%d.0,"policy":"fcfs","total_blocks":99,"running_req_ids":["a","b"]}\n'


class Crowd(NamedTuple):
    """How many of each at once."""

    idle: int = 500
    """Every other one has sent half a request, the rest nothing."""
    slow: int = 100
    """Readers of a large file that take 4 KiB a second."""
    questions: int = 60
    """Four kinds in turn: a trace unpacked on its way, a wait for new lines, a list, the notes of a trace."""


class Measured(NamedTuple):
    """What came out."""

    seconds: list[float]
    """Per list."""
    statuses: list[int]
    traces: int
    """In the last list."""
    answered: Counter[int]
    """Status -> questions of the crowd that were answered so."""
    opened: int
    """Connections that the idle ones and the slow readers opened, those in the place of closed ones included."""


class Traces(NamedTuple):
    """Traces that the crowd reads."""

    large: Path
    packed: Path
    followed: Path


def traces(folder: Path, megabytes: int = 32) -> Traces:
    """Make traces."""
    for number in range(TRACES):
        path = folder / f"run{number:03}" / "sched_trace.fcfs.steps.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join(LINE % (step, step) for step in range(100)))
    large, packed = folder / "large.steps.jsonl", folder / "packed.steps.jsonl.gz"
    text = b"".join(LINE % (step, step) for step in range(megabytes * 9_000))
    large.write_bytes(text)
    packed.write_bytes(gzip.compress(text[: len(text) // 4], 1))
    return Traces(large, packed, folder / "run000" / "sched_trace.fcfs.steps.jsonl")


@contextmanager
def server(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A viewer on ``folder``, and its port."""
    command = [sys.executable, "-m", "tokenyard.cli.main", "view", str(folder), "--port", "0", "--no-browser"]
    process = subprocess.Popen(
        command, env=os.environ | {"PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        match = re.search(r"http://[^:]+:(\d+)/", said)
        if match is None:
            sys.exit(f"the server did not start: {said}")
        yield process, int(match[1])
    finally:
        process.kill()
        process.communicate()


class _Members:
    """The clients that crowd one server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answered: Counter[int] = Counter()
        self.opened = 0

    async def idle(self, number: int) -> None:
        """Be connected, having sent half a request or nothing."""
        reader, writer = await self._connected()
        if number % 2:
            writer.write(b"GET /api/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half")
        await reader.read()  # until the server closes
        writer.close()

    async def slow(self, path: Path) -> None:
        """Read a large file slowly."""
        reader, writer = await self._connected(receive_buffer=4096)
        writer.write(_get(f"/api/file?path={path}"))
        while await reader.read(4096):
            await asyncio.sleep(1)
        writer.close()

    async def ask(self, target: str) -> None:
        """Ask, and read the answer as fast as it comes."""
        status, _ = await asked(self.port, target)
        self.answered[status] += 1

    async def _connected(self, receive_buffer: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        each = socket.socket()
        each.setblocking(False)
        if receive_buffer:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(each, (HOST, self.port))
        self.opened += 1
        return await asyncio.open_connection(sock=each, limit=8192)


def _get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()


async def asked(port: int, target: str) -> tuple[int, bytes]:
    """Status, 0 for none, and body of an answer."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(_get(target))
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), await reader.read()
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0, b""
    finally:
        writer.close()


async def _again(member: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Be part of the crowd, for ever."""
    while True:
        with suppress(OSError):
            await member()
        await asyncio.sleep(0.5)


async def _come(port: int, crowd: Crowd, paths: Traces, until: Callable[[], object]) -> _Members:
    members = _Members(port)
    questions = (
        f"/api/file?path={paths.packed}&decode=1",
        f"/api/tail?path={paths.followed}&offset={paths.followed.stat().st_size}&wait=30",
        "/api/traces",
        f"/api/annotations?path={paths.large}",
    )
    everybody: list[Callable[[], Coroutine[Any, Any, None]]] = [
        *(partial(members.idle, number) for number in range(crowd.idle)),
        *(partial(members.slow, paths.large) for _ in range(crowd.slow)),
        *(partial(members.ask, questions[number % len(questions)]) for number in range(crowd.questions)),
    ]
    tasks = [asyncio.create_task(_again(member)) for member in everybody]
    await asyncio.to_thread(until)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return members


def _crowd_process(port: int, crowd: Crowd, paths: Traces, pipe: Connection) -> None:
    members = asyncio.run(_come(port, crowd, paths, pipe.recv))
    pipe.send((members.answered, members.opened))


def crowded_lists(port: int, crowd: Crowd, paths: Traces, lists: int) -> Measured:
    """Ask for ``lists`` lists, one after the other, while a crowd is there, in a process of its own."""
    context = get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=_crowd_process, args=(port, crowd, paths, theirs), daemon=True)
    process.start()
    time.sleep(SECONDS_TO_COME)
    seconds, statuses, body = [], [], b""
    for _ in range(lists):
        began = time.perf_counter()
        status, body = asyncio.run(asked(port, "/api/traces"))
        seconds.append(time.perf_counter() - began)
        statuses.append(status)
        time.sleep(0.2)
    pipe.send(None)
    answered, opened = pipe.recv()
    process.join()
    return Measured(seconds, statuses, body.count(b'"mtime"'), answered, opened)


def main() -> int:
    """Crowd a server as asked for; 1 if a list was refused or slow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in Crowd()._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lists", type=int, default=20)
    given = vars(parser.parse_args())
    lists = given.pop("lists")
    with tempfile.TemporaryDirectory() as folder:
        paths = traces(Path(folder))
        with server(Path(folder)) as (process, port):
            crowd = Crowd(**given)
            measured = crowded_lists(port, crowd, paths, lists)
            began = time.perf_counter()
            process.send_signal(signal.SIGINT)
            process.wait(60)
            ended = time.perf_counter() - began
    slowest = max(measured.seconds)
    print(f"crowd: {crowd.idle} idle, {crowd.slow} slow readers, {crowd.questions} questions")
    print(f"connections of the idle and the slow: {measured.opened:,} opened")
    print(f"answers to the crowd: {dict(sorted(measured.answered.items()))}")
    print(f"{lists} lists of {measured.traces} traces: {dict(sorted(Counter(measured.statuses).items()))}")
    print(f"slowest list {slowest:.3f} s, median {sorted(measured.seconds)[lists // 2]:.3f} s")
    print(f"Ctrl-C ended the server in {ended:.2f} s, exit code {process.returncode}")
    return int(slowest >= MOST_SECONDS or set(measured.statuses) != {200})


if __name__ == "__main__":
    sys.exit(main())
