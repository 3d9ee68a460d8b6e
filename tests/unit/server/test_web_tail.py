"""``/api/tail``: the lines that were added."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.server.conftest import STEPS, lines_of, steps_text
from tests.unit.server.web_client import ORIGIN, Client, client_of, refused

from tokenyard.web import files as tail
from tokenyard.web.catalog import Roots


@pytest.fixture
def client(folder: Path) -> Client:
    return client_of([folder])


class Follower:
    """A client that remembers what the server tells it to send back."""

    def __init__(self, client: Client, path: Path) -> None:
        self.client = client
        self.params: dict[str, Any] = {"path": str(path), "offset": 0}
        self.text = b""

    def look(self, **more: Any) -> bytes:
        response = self.client.get("/api/tail", params=self.params | more)
        assert response.status_code == 200, response.text
        headers = response.headers
        if headers["tokenyard-reset"] == "1":
            self.text = b""
        self.text += response.content
        self.params |= {"offset": headers["tokenyard-offset"], "id": headers["tokenyard-id"]}
        return response.content


def test_following_gives_whole_lines_only(client: Client, steps: Path) -> None:
    text = steps_text(5)
    steps.write_bytes(b"")
    follower = Follower(client, steps)
    for start in range(0, len(text), 37):
        with steps.open("ab") as file:
            file.write(text[start : start + 37])
        assert follower.look()[-1:] in (b"", b"\n")
    assert follower.text == text
    assert follower.look() == b""


def test_a_new_run_in_the_same_file(client: Client, steps: Path) -> None:
    follower = Follower(client, steps)
    follower.look()
    steps.write_bytes(lines_of({"event": "trace_start", "ts": 5.0}) + steps_text(80))
    follower.look()
    assert follower.text == steps.read_bytes()


def test_another_file_under_the_name(client: Client, steps: Path) -> None:
    follower = Follower(client, steps)
    follower.look()
    other = steps.with_name("new")
    other.write_bytes(steps_text(STEPS + 1))
    other.replace(steps)
    follower.look()
    assert follower.text == steps_text(STEPS + 1)


def test_a_file_that_was_cut(client: Client, steps: Path) -> None:
    follower = Follower(client, steps)
    follower.look()
    steps.write_bytes(steps_text(2))
    follower.look()
    assert follower.text == steps_text(2)


def test_a_lot_comes_in_pieces(client: Client, steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "TAIL_BYTES", 300)
    follower = Follower(client, steps)
    pieces = 0
    while follower.look():
        pieces += 1
    assert pieces > 10
    assert follower.text == steps.read_bytes()


def test_waiting_ends_when_a_line_comes(client: Client, steps: Path) -> None:
    async def follow() -> httpx.Response:
        transport = httpx.ASGITransport(app=client.app)
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http:
            params: dict[str, Any] = {"path": str(steps), "offset": steps.stat().st_size, "wait": 30}
            waiting = asyncio.create_task(http.get("/api/tail", params=params))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            with steps.open("ab") as file:
                file.write(b'{"step":99}\n')
            return await waiting

    response = asyncio.run(follow())
    assert response.content == b'{"step":99}\n'
    assert response.headers["tokenyard-reset"] == "0"


def test_waiting_ends_without_a_line(client: Client, steps: Path) -> None:
    response = client.get("/api/tail", params={"path": str(steps), "offset": steps.stat().st_size, "wait": 1})
    assert response.status_code == 200
    assert response.content == b""


def test_what_does_not_grow_is_not_followed(client: Client, steps: Path) -> None:
    packed = steps.with_name("b.steps.jsonl.gz")
    packed.write_bytes(gzip.compress(b"{}\n"))
    refused(client.get("/api/tail", params={"path": str(packed)}), 400, "path")
    refused(client.get("/api/tail", params={"path": str(steps), "wait": "31"}), 400, "wait")
    refused(client.get("/api/tail", params={"path": str(steps), "offset": "-1"}), 400, "offset")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of every read of a followed file."""
    sizes: list[int] = []

    class Counted(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            piece = super().read(size)
            sizes.append(len(piece))
            return piece

    real = Roots.open

    def opened(roots: Roots, path: str | None) -> Counted:
        with real(roots, path) as file:
            return Counted(io.FileIO(os.dup(file.fileno())))

    monkeypatch.setattr(Roots, "open", opened)
    return sizes


def test_who_waits_in_a_file_without_line_feeds_reads_what_is_new(
    client: Client, steps: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "POLL_SECONDS", 0.01)
    steps.write_bytes(b"x" * 10_000_000)
    response = client.get("/api/tail", params={"path": str(steps), "wait": 1})
    assert response.content == b""
    assert sum(reads) < 11_000_000

    async def grow() -> httpx.Response:
        transport = httpx.ASGITransport(app=client.app)
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http:
            waiting = asyncio.create_task(http.get("/api/tail", params={"path": str(steps), "wait": 30}))
            for _ in range(20):
                await asyncio.sleep(0.02)
                with steps.open("ab") as file:
                    file.write(b"y" * 1000)
            with steps.open("ab") as file:
                file.write(b"\nz\n")
            return await waiting

    reads.clear()
    response = asyncio.run(grow())
    assert response.content == steps.read_bytes()[:-2]
    assert sum(reads) < 22_000_000  # once to look for the end of the line, once to send it
    assert reads[-1] == len(response.content)


def test_a_line_that_is_too_long_is_refused_at_once(client: Client, steps: Path, reads: list[int]) -> None:
    """However long the file is: 100 GB here, which take no room on the disk."""
    steps.write_bytes(b"x")
    os.truncate(steps, 100_000_000_000)
    for wait in ("0", "30"):
        assert "no trace" in refused(client.get("/api/tail", params={"path": str(steps), "wait": wait}), 422, "offset")
    assert sum(reads) < 50_000_000


def test_a_long_line_comes_whole(client: Client, steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "TAIL_BYTES", 100)
    steps.write_bytes(b"a\n" + b"x" * 950 + b"\n" + b"b\n" + b"half")
    follower = Follower(client, steps)
    assert [follower.look() for _ in range(4)] == [b"a\n", b"x" * 950 + b"\n", b"b\n", b""]
