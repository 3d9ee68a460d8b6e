"""``/api/file``: whole, in part, unpacked; and nothing but what the server was started with."""

from __future__ import annotations

import asyncio
import gzip
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.types import Message
from tests.unit.server.conftest import steps_text
from tests.unit.server.real_server import connected, serving
from tests.unit.server.web_client import Client, client_of, refused

from tokenyard.trace.convert import convert
from tokenyard.web.files import OpenFileResponse


@pytest.fixture
def client(folder: Path) -> Client:
    return client_of([folder])


def test_the_whole_file(client: Client, steps: Path) -> None:
    response = client.file(steps)
    assert response.status_code == 200
    assert response.content == steps.read_bytes()
    assert response.headers["accept-ranges"] == "bytes"
    assert int(response.headers["content-length"]) == steps.stat().st_size


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=5-", 5, None),
        ("bytes=-7", -7, None),
        ("bytes=3-99999999", 3, None),
        ("bytes=0-0", 0, 1),
    ],
)
def test_a_part(client: Client, steps: Path, asked: str, start: int, end: int | None) -> None:
    whole = steps.read_bytes()
    response = client.file(steps, Range=asked)
    assert response.status_code == 206
    assert response.content == whole[start:end]
    first = range(len(whole))[start]
    assert response.headers["content-range"] == f"bytes {first}-{first + len(response.content) - 1}/{len(whole)}"


@pytest.mark.parametrize("asked", ["bytes=999999999-", "bytes=-0"])
def test_a_part_that_is_not_there(client: Client, steps: Path, asked: str) -> None:
    response = client.file(steps, Range=asked)
    assert response.status_code == 416
    assert response.headers["content-range"] == f"bytes */{steps.stat().st_size}"


@pytest.mark.parametrize("asked", ["bytes=5-3", "lines=1-2", "bytes=-", "bytes=a-b"])
def test_what_is_no_range(client: Client, steps: Path, asked: str) -> None:
    assert client.file(steps, Range=asked).status_code == 400


def test_several_parts_at_once(client: Client, steps: Path) -> None:
    response = client.file(steps, Range="bytes=0-1,4-5")
    assert response.status_code == 206
    assert response.headers["content-type"].startswith("multipart/byteranges")


def test_what_is_added_meanwhile_is_not_sent(steps: Path) -> None:
    """The length was told before: a trace may be written while it is read."""
    size = steps.stat().st_size
    with steps.open("rb") as file, steps.open("ab") as writer:
        response = OpenFileResponse(file, steps)
        writer.write(b"x" * 1000)
        writer.flush()
        sent = asyncio.run(sent_by(response, "GET"))
    assert sent == steps.read_bytes()[:size]


@pytest.mark.parametrize("asked", [{}, {"Range": "bytes=2-4"}, {"Range": "bytes=-0"}, {"Range": "bytes=x"}])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_file_is_closed_in_the_end(steps: Path, method: str, asked: dict[str, str]) -> None:
    file = steps.open("rb")
    asyncio.run(sent_by(OpenFileResponse(file, steps), method, asked))
    assert file.closed


async def sent_by(response: OpenFileResponse, method: str, headers: dict[str, str] | None = None) -> bytes:
    """The body that a response sends."""
    body = b""

    async def send(message: Message) -> None:
        nonlocal body
        body += message.get("body", b"")

    async def receive() -> Message:
        await asyncio.sleep(60)
        raise AssertionError("nobody asks for more")

    raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    await response({"type": "http", "method": method, "headers": raw}, receive, send)
    return body


def test_the_file_that_was_looked_at_is_the_one_that_is_sent(folder: Path, steps: Path) -> None:
    """A link that takes its place afterwards changes nothing."""
    text = steps.read_bytes()
    file = steps.open("rb")
    steps.unlink()
    steps.symlink_to(folder.parent / "secret.steps.jsonl")
    assert asyncio.run(sent_by(OpenFileResponse(file, steps), "GET")) == text


def test_a_part_of_the_file_as_it_was(client: Client, steps: Path) -> None:
    tag = client.file(steps).headers["etag"]
    assert client.file(steps, **{"Range": "bytes=0-3", "If-Range": tag}).status_code == 206
    with steps.open("ab") as file:
        file.write(b"{}\n")
    assert client.file(steps, **{"Range": "bytes=0-3", "If-Range": tag}).status_code == 200


def test_the_head_alone(client: Client, steps: Path) -> None:
    response = client.request("HEAD", "/api/file", params={"path": str(steps)})
    assert response.content == b""
    assert int(response.headers["content-length"]) == steps.stat().st_size


def unpacked(client: Client, path: Path) -> bytes:
    response = client.get("/api/file", params={"path": str(path), "decode": "1"})
    assert response.status_code == 200
    return response.content


def test_gzip_is_unpacked_on_request(client: Client, steps: Path) -> None:
    packed = steps.with_name("b.steps.jsonl.gz")
    packed.write_bytes(gzip.compress(steps.read_bytes()))
    assert client.file(packed).content == packed.read_bytes()
    assert unpacked(client, packed) == steps.read_bytes()


def test_zstd_and_parquet_are_unpacked_on_request(client: Client, steps: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra: analysis)")
    packed = steps.with_name("b.steps.jsonl.zst")
    packed.write_bytes(pa.Codec("zstd").compress(steps.read_bytes(), asbytes=True))
    twin = steps.with_name("c.steps.parquet")
    convert(steps, twin, "steps")
    assert unpacked(client, packed) == steps.read_bytes()
    assert unpacked(client, twin) == steps.read_bytes()


def test_a_cut_in_packed_data_is_said_in_a_line_of_its_own(client: Client, steps: Path) -> None:
    packed = steps.with_name("b.steps.jsonl.gz")
    packed.write_bytes(gzip.compress(os.urandom(1000).hex().encode() + b"\n" + steps_text(1))[:-30])
    lines = unpacked(client, packed).splitlines()
    assert lines[-1].startswith(b"compressed data is cut off or damaged here")


# ---- what must not be read


OUTSIDE = [
    "/etc/passwd",
    "{root}/../secret.steps.jsonl",
    "{root}/run1/../../secret.steps.jsonl",
    "{top}/secret.steps.jsonl",
    "{root}/run1/notes.txt",
    "{root}/run1/missing.txt",
    "{root}/run1/a\0b.steps.jsonl",
    "run1/sched_trace.fcfs.steps.jsonl",
    "{root}",
    "file://{root}/run1/sched_trace.fcfs.steps.jsonl",
    "..",
    "%2e%2e%2fsecret.steps.jsonl",
    "{root}\\..\\secret.steps.jsonl",
]


@pytest.mark.parametrize("text", OUTSIDE)
@pytest.mark.parametrize("route", ["file", "tail", "annotations"])
def test_nothing_outside_is_read(client: Client, folder: Path, text: str, route: str) -> None:
    path = text.format(root=folder, top=folder.parent)
    response = client.get(f"/api/{route}", params={"path": path})
    refused(response, 403, "path")
    assert "hunter2" not in response.text


@pytest.mark.parametrize("query", ["path={top}%2Fsecret.steps.jsonl", "path={root}%2F..%2Fsecret.steps.jsonl"])
def test_encoded_paths_are_no_way_round(client: Client, folder: Path, query: str) -> None:
    refused(client.get("/api/file?" + query.format(root=folder, top=folder.parent)), 403, "path")


def test_encoding_is_undone_once(client: Client, folder: Path) -> None:
    refused(client.file(f"{folder}/%2e%2e/secret.steps.jsonl"), 404, "path")


def test_a_link_that_leads_out_is_not_followed(client: Client, folder: Path) -> None:
    (folder / "run1" / "out.steps.jsonl").symlink_to(folder.parent / "secret.steps.jsonl")
    (folder / "door").symlink_to(folder.parent)
    for path in (folder / "run1" / "out.steps.jsonl", folder / "door" / "secret.steps.jsonl"):
        refused(client.file(path), 403, "path")
    assert [each["name"] for each in client.get("/api/traces").json()] == ["run1"]


def test_a_link_within_is_followed(client: Client, folder: Path, steps: Path) -> None:
    (folder / "again.steps.jsonl").symlink_to(steps)
    assert client.file(folder / "again.steps.jsonl").content == steps.read_bytes()


def test_what_is_no_file_is_not_opened(client: Client, folder: Path) -> None:
    os.mkfifo(folder / "pipe.steps.jsonl")
    (folder / "folder.steps.jsonl").mkdir()
    for name in ("pipe.steps.jsonl", "folder.steps.jsonl"):
        refused(client.file(folder / name), 403, "path")
    refused(client.file(folder / "missing.steps.jsonl"), 404, "path")


def test_a_named_file_opens_its_pair_and_no_neighbour(folder: Path, steps: Path) -> None:
    neighbour = steps.with_name("other.steps.jsonl")
    neighbour.write_bytes(steps_text(1))
    client = client_of([steps])
    assert client.file(steps).status_code == 200
    assert client.file(steps.with_name("sched_trace.fcfs.requests.jsonl")).status_code == 200
    refused(client.file(neighbour), 403, "path")
    assert len(client.get("/api/traces").json()) == 1


def test_a_file_of_any_name_may_be_named(folder: Path, steps: Path) -> None:
    odd = steps.with_name("odd name.txt")
    odd.write_bytes(steps.read_bytes())
    client = client_of([odd])
    assert client.file(odd).content == steps.read_bytes()
    assert client.get("/api/traces").json()[0]["steps"] == [str(odd)]


@pytest.mark.slow
@pytest.mark.parametrize("packing", [".jsonl.gz", ".jsonl.zst", ".parquet"])
def test_whatever_is_damaged_a_line_says_so(client: Client, steps: Path, packing: str) -> None:
    """And the answer ends as an answer does, whichever byte is wrong."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra: analysis)")
    packed = steps.with_name(f"b.steps{packing}")
    if packing == ".parquet":
        convert(steps, packed, "steps")
    else:
        with pa.CompressedOutputStream(str(packed), {".gz": "gzip", ".zst": "zstd"}[packed.suffix]) as file:
            file.write(steps.read_bytes())
    good, text = packed.read_bytes(), steps.read_bytes()
    damages, places = 0, 12 if packing == ".parquet" else 40  # a process decodes each of those
    for place in range(0, len(good), len(good) // places):
        changed = good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :]
        for bad in (good[:place], changed if packing != ".jsonl.zst" else b""):  # zstd has no checksum here
            packed.write_bytes(bad)
            answer = unpacked(client, packed)
            damages += b"\ncompressed data is cut off or damaged here: " in answer
            assert not bad or answer == text or answer.splitlines()[-1].startswith(b"compressed data is cut off")
    assert damages > places * 5 / 8


def test_who_goes_away_has_nothing_more_read(folder: Path, steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.write_bytes(b"{}\n" * 10_000_000)
    read = 0
    real = anyio.AsyncFile.read

    async def counted(file: Any, size: int = -1) -> Any:
        nonlocal read
        piece = await real(file, size)
        read += len(piece)
        return piece

    monkeypatch.setattr(anyio.AsyncFile, "read", counted)
    with serving(folder) as port, ExitStack() as stack:
        question = f"GET /api/file?path={steps} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        reader = connected(stack, port, question.encode())
        for _ in range(20):
            assert reader.recv(64 * 1024)
        reader.close()
        time.sleep(1)  # more than the rest of the file would take
    assert 0 < read < steps.stat().st_size / 2


def decoders() -> set[int]:
    """Processes of this one that decode a Parquet trace."""
    lines = (task.read_text() for task in Path("/proc/self/task").glob("*/children"))
    children = {int(pid) for line in lines for pid in line.split()}
    return {pid for pid in children if b"columnar.child" in Path(f"/proc/{pid}/cmdline").read_bytes()}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system does not tell of processes")
def test_who_goes_away_ends_the_process_that_decodes(folder: Path, steps: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra: analysis)")
    line = b'{"event":"step_snapshot","step":%d,"policy":"%b"}\n'
    steps.write_bytes(b"".join(line % (step, os.urandom(20_000).hex().encode()) for step in range(500)))
    twin = steps.with_name("b.steps.parquet")
    convert(steps, twin, "steps")
    with serving(folder) as port, ExitStack() as stack:
        question = f"GET /api/file?path={twin}&decode=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        reader = connected(stack, port, question.encode())
        assert reader.recv(64)
        end = time.monotonic() + 30
        while not (there := decoders()) and time.monotonic() < end:
            time.sleep(0.05)
        assert len(there) == 1
        reader.close()
        while decoders() and time.monotonic() < end:
            time.sleep(0.05)
        assert not decoders()
