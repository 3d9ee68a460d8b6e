"""What a connection tells beside ASGI changes no byte, and no client that leaves or does not read goes unnoticed."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra: server)")
pytest.importorskip("httptools", reason="httptools is not installed: uvicorn speaks HTTP with h11 then")

from emulate_load import held, served
from tokenyard.serve.emulate.host import Emulation
from tokenyard.serve.openai import connection

Served = tuple[Emulation, int]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(1.0) as (emulation, port):
        yield emulation, port


@pytest.fixture(scope="module")
def slow_server() -> Iterator[Served]:
    """A token is a chunk, also on a busy machine."""
    with served(0.03) as (emulation, port):
        yield emulation, port


def _request(path: str = "/v1/completions", **fields: object) -> bytes:
    body = {
        "ignore_eos": True,
        "stream": True,
        "seed": 5,
        **({"prompt": "hello"} if "messages" not in fields else {}),
        **fields,
    }
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def _ask(port: int, request: bytes, pieces: int = 1) -> bytes:
    """The bytes of the answers to so many requests, without what differs from one asking to the next."""
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(request)
        got = b""
        while got.count(b"\r\n0\r\n\r\n") < pieces:
            more = client.recv(65536)
            assert more, got
            got += more
    return re.sub(rb'"id":"[^"]+"|"created":\d+|(date|x-emulated-time): [^\r]+', b"", got)


def _settled(emulation: Emulation) -> bool:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if not held(emulation) and not emulation.fronts[0].llm.num_unfinished:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    "request_",
    [
        _request(max_tokens=12, request_id="one"),
        _request(max_tokens=6, n=2, request_id="two", stream_options={"include_usage": True}),
        _request(
            "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], max_tokens=9, request_id="three"
        ),
    ],
)
def test_pieces_that_are_written_have_the_bytes_that_are_sent(
    slow_server: Served, request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[bytes]()
    write = connection.CycleConnection.write

    def counted(self: connection.CycleConnection, piece: bytes) -> bool:
        written.append(piece)
        return write(self, piece)

    monkeypatch.setattr(connection.CycleConnection, "write", counted)
    quick = _ask(slow_server[1], request_)
    assert len(written) >= 3
    monkeypatch.setattr(connection.CycleConnection, "write", lambda *_: False)
    assert _ask(slow_server[1], request_) == quick


def test_requests_behind_each_other_on_one_connection_are_all_answered(server: Served) -> None:
    requests = b"".join(_request(max_tokens=4, request_id=f"behind-{i}") for i in range(3))
    assert _ask(server[1], requests, 3).count(b"data: [DONE]") == 3
    assert _settled(server[0])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("prompt", ["hello", "word " * 30_000])
def test_a_client_that_leaves_is_seen(server: Served, prompt: str, *, stream: bool) -> None:
    emulation, port = server
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(_request(prompt=prompt[:1200], max_tokens=1500, stream=stream, user=prompt))
        until = time.monotonic() + 30
        while not held(emulation):
            assert time.monotonic() < until
            time.sleep(0.005)
    assert _settled(emulation)


def test_a_client_that_does_not_read_gets_all_in_the_end(server: Served) -> None:
    emulation, port = server
    request = _request(max_tokens=1500, n=8, return_token_ids=True)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.settimeout(60)
        client.connect(("127.0.0.1", port))
        client.sendall(request)
        time.sleep(1.0)
        got = b""
        while not got.endswith(b"\r\n0\r\n\r\n"):
            more = client.recv(65536)
            assert more
            got += more
    chunks = [json.loads(line[6:]) for line in got.split(b"\n") if line.startswith(b"data: {")]
    counts = dict.fromkeys(range(8), 0)
    for choice in (each for chunk in chunks for each in chunk["choices"]):
        counts[choice["index"]] += len(choice["token_ids"] or ())
    assert set(counts.values()) == {1500}
    assert _settled(emulation)
