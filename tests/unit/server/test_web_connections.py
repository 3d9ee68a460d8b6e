"""A client that sends nothing, reads nothing, or comes too often, keeps no other out."""

from __future__ import annotations

import asyncio
import http.client
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.unit.server.real_server import connected, serving

from tokenyard.web.connections import AddressShare, most_connections, share_of_files
from tokenyard.web.serve import bound

HALF = b"GET /api/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Ha"


@pytest.fixture(params=["h11", "httptools"])
def parser(request: pytest.FixtureRequest) -> str:
    """What reads the bytes."""
    return str(request.param)


def read_all(each: socket.socket) -> bytes:
    received = b""
    while piece := each.recv(1 << 20):
        received += piece
    return received


def is_closed(each: socket.socket) -> bool:
    """The server has closed it, or does within the client's time-out."""
    try:
        return each.recv(1) == b""
    except ConnectionResetError:
        return True


def status(port: int) -> int:
    return httpx.get(f"http://127.0.0.1:{port}/api/traces", timeout=20).status_code


@pytest.mark.slow
def test_idle_and_half_sent_connections_keep_nobody_out(folder: Path, parser: str) -> None:
    with serving(folder, parser) as port, ExitStack() as stack:
        for number in range(300):
            connected(stack, port, HALF if number % 2 else b"")
        assert status(port) == 200


@pytest.mark.parametrize("sent", [b"", HALF])
def test_a_request_that_does_not_come_is_not_waited_for(folder: Path, parser: str, sent: bytes) -> None:
    with serving(folder, parser, seconds_to_ask=0.2) as port, ExitStack() as stack:
        assert is_closed(connected(stack, port, sent))


def test_a_connection_that_asks_again_and_again_is_not_idle(folder: Path, parser: str) -> None:
    """However short its requests are: between them it looks the same every time."""
    with serving(folder, parser, seconds_to_ask=2.0) as port:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        client.connect()
        first = client.sock
        for _ in range(10):
            client.request("GET", "/nothing")
            assert client.getresponse().read()
            time.sleep(0.25)
        assert client.sock is first
        client.close()


def test_nor_one_that_comes_byte_by_byte(folder: Path, parser: str) -> None:
    with serving(folder, parser, seconds_to_ask=0.3) as port, ExitStack() as stack:
        drip = connected(stack, port)
        began = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() < began + 20:
                drip.sendall(b"x")
                time.sleep(0.02)
        assert time.monotonic() < began + 20


def test_nor_the_second_one_of_a_connection(folder: Path, parser: str) -> None:
    with serving(folder, parser, seconds_to_ask=0.3) as port, ExitStack() as stack:
        each = connected(stack, port, b"HEAD / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert each.recv(1000).startswith(b"HTTP/1.1")
        each.sendall(HALF)
        assert is_closed(each)


def test_beyond_its_share_a_clients_oldest_idle_connections_are_closed(folder: Path, parser: str) -> None:
    with serving(folder, parser, idle_per_client=3, seconds_new=0.0) as port, ExitStack() as stack:
        crowd = [connected(stack, port, HALF) for _ in range(8)]
        assert all(is_closed(each) for each in crowd[:4])
        assert status(port) == 200
        crowd[-1].settimeout(0.1)
        with pytest.raises(TimeoutError):
            is_closed(crowd[-1])


def test_new_connections_have_a_moment_to_ask(folder: Path, parser: str) -> None:
    with serving(folder, parser, idle_per_client=3, seconds_new=60.0) as port, ExitStack() as stack:
        crowd = [connected(stack, port) for _ in range(20)]
        for each in crowd:
            each.sendall(b"HEAD / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert each.recv(12).startswith(b"HTTP/1.1")


def test_there_is_a_bound_for_all_clients_together(folder: Path, parser: str) -> None:
    with serving(folder, parser, idle_per_client=3, most=10, seconds_new=60.0) as port, ExitStack() as stack:
        crowd = [connected(stack, port) for _ in range(30)]
        assert all(is_closed(each) for each in crowd[:20])
        assert status(port) == 200


def large_file(folder: Path) -> Path:
    large = folder / "large.steps.jsonl"
    large.write_bytes(b'{"event":"step_snapshot","step":1,"ts":1.0}\n' * 400_000)
    return large


def test_an_answer_that_nobody_reads_is_not_held_for_ever(folder: Path, parser: str) -> None:
    path = large_file(folder)
    with serving(folder, parser, seconds_to_read=0.3) as port, ExitStack() as stack:
        reader = connected(stack, port, f"GET /api/file?path={path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        time.sleep(1)
        assert len(read_all(reader)) < path.stat().st_size


def test_a_slow_answer_is_waited_for(folder: Path, parser: str) -> None:
    """An answer that is being made is neither idle nor unread."""
    path = folder / "run1" / "sched_trace.fcfs.steps.jsonl"
    with serving(folder, parser, seconds_to_read=0.2, seconds_to_ask=0.2) as port:
        query: dict[str, Any] = {"path": str(path), "offset": path.stat().st_size, "wait": 1}
        assert httpx.get(f"http://127.0.0.1:{port}/api/tail", params=query, timeout=20).status_code == 200


def test_of_what_is_answered_one_client_gets_a_share() -> None:
    """The third request of an address is refused while two of it are answered, and not one of another address."""

    async def ask() -> list[int]:
        released = anyio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == "/wait":
                await released.wait()
            await Response()(scope, receive, send)

        async def get(address: str, path: str) -> int:
            transport = httpx.ASGITransport(app=shared, client=(address, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return (await client.get(path)).status_code

        shared = AddressShare(app, most=2)
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(get, "192.0.2.1", "/wait")
            await anyio.wait_all_tasks_blocked()
            statuses = [await get("192.0.2.1", "/"), await get("192.0.2.2", "/")]
            released.set()
        return [*statuses, await get("192.0.2.1", "/")]

    assert anyio.run(ask) == [503, 200, 200]


def test_an_answer_does_not_wait_for_the_receipt_of_its_head() -> None:
    """Head and body are two pieces: what is sent goes at once, and not when the one before has arrived (Nagle)."""

    async def is_sent_at_once() -> bool:
        accepted = asyncio.get_running_loop().create_future()
        with bound("127.0.0.1", 0) as listener:
            address = listener.getsockname()
            server = await asyncio.start_server(lambda _, writer: accepted.set_result(writer), sock=listener)
            async with server:
                _, client = await asyncio.open_connection(*address)
                writer = await accepted
                connection = writer.get_extra_info("socket")
                found = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                for each in (client, writer):
                    each.close()
                    await each.wait_closed()
        return bool(found)

    assert asyncio.run(is_sent_at_once())


def test_file_handles_are_left_for_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (90, 90))
    assert most_connections() == 24, "20 for those that the server has not counted yet, 22 for all else"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert share_of_files(16_384) == (704, 64)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert most_connections() == 512
