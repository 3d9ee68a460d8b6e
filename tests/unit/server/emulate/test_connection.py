"""What a connection tells beside ASGI changes no byte, and no client that leaves or does not read goes unnoticed."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra: server)")
pytest.importorskip("httptools", reason="httptools is not installed: uvicorn speaks HTTP with h11 then")

from tests.unit.server.emulate.emulated import InTime

from emulate_load import LINE, held
from emulate_servers import served
from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.emulate.host import Emulation
from tokenyard.serve.openai import connection
from tokenyard.web.serve import bound

DEPLOYMENT = Deployment(LINE, gpu="h100")
Served = tuple[Emulation, int]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    """A token is a chunk, also on a busy machine, and none is waited for. Little is kept for a client on its way."""

    def narrow(host: str, port: int | None) -> socket.socket:
        listener = bound(host, port)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)
        return listener

    with mock.patch("emulate_servers.bound", narrow), served(DEPLOYMENT, wall=InTime()) as (emulation, port):
        yield emulation, port


@pytest.fixture(scope="module")
def slow_server() -> Iterator[Served]:
    """Fifteen hundred tokens take longer than tests wait."""
    with served(DEPLOYMENT, 0.03) as (emulation, port):
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
    of_body = f"Content-Type: application/json\r\nContent-Length: {len(content)}"
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{of_body}\r\n\r\n"
    return head.encode() + content


def _ask(port: int, request: bytes, pieces: int = 1) -> bytes:
    """The bytes of the answers to so many requests."""
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(request)
        got = b""
        while got.count(b"\r\n0\r\n\r\n") < pieces:
            more = client.recv(65536)
            assert more, got
            got += more
    return got


def _said(answer: bytes) -> list[str]:
    """The text of each choice of a stream, however it was cut into pieces."""
    texts: dict[int, str] = {}
    for event in answer.split(b"data: ")[1:]:
        if event.startswith(b"{"):
            for choice in json.loads(event.split(b"\n")[0])["choices"]:
                text = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
                texts[choice["index"]] = texts.get(choice["index"], "") + text
    return [texts[index] for index in sorted(texts)]


def _until(happened: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.005)


def _settled(emulation: Emulation) -> None:
    _until(lambda: not held(emulation) and not emulation.fronts[0].llm.num_unfinished)


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
    server: Served, request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other piece of an answer is written, the others are sent: all stand in it as chunks (RFC 9112, 7.1)."""
    pieces, written = list[bytes](), list[bool]()
    write = connection.CycleConnection.write

    def every_other(self: connection.CycleConnection, piece: bytes) -> bool:
        pieces.append(piece)
        written.append(len(pieces) % 2 == 1 and write(self, piece))
        return written[-1]

    monkeypatch.setattr(connection.CycleConnection, "write", every_other)
    mixed = _ask(server[1], request_)
    assert written.count(True) >= 2
    assert written.count(False) >= 2
    assert b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) in mixed
    monkeypatch.setattr(connection.CycleConnection, "write", lambda *_: False)
    sent = _ask(server[1], request_)
    assert _said(sent) == _said(mixed) != []


def test_requests_behind_each_other_on_one_connection_are_all_answered(server: Served) -> None:
    requests = b"".join(_request(max_tokens=4, request_id=f"behind-{i}") for i in range(3))
    assert _ask(server[1], requests, 3).count(b"data: [DONE]") == 3
    _settled(server[0])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("prompt", ["hello", "word " * 30_000])
def test_a_client_that_leaves_is_seen(slow_server: Served, prompt: str, *, stream: bool) -> None:
    emulation, port = slow_server
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(_request(prompt=prompt[:1200], max_tokens=1500, stream=stream, user=prompt))
        _until(lambda: held(emulation))
    _settled(emulation)


def test_a_client_that_does_not_read_gets_all_in_the_end(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    emulation, port = server
    written = list[bool]()
    write = connection.CycleConnection.write

    def counted(self: connection.CycleConnection, piece: bytes) -> bool:
        written.append(write(self, piece))
        return written[-1]

    monkeypatch.setattr(connection.CycleConnection, "write", counted)
    request = _request(max_tokens=500, n=8, return_token_ids=True)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**15)
        client.settimeout(60)
        client.connect(("127.0.0.1", port))
        client.sendall(request)
        _until(lambda: held(emulation))
        _until(lambda: not held(emulation))
        assert not written[-1], "all is generated, nothing is read, and the connection takes no more"
        got = b""
        while not got.endswith(b"\r\n0\r\n\r\n"):
            more = client.recv(65536)
            assert more
            got += more
    chunks = [json.loads(line[6:]) for line in got.split(b"\n") if line.startswith(b"data: {")]
    counts = dict.fromkeys(range(8), 0)
    for choice in (each for chunk in chunks for each in chunk["choices"]):
        counts[choice["index"]] += len(choice["token_ids"] or ())
    assert set(counts.values()) == {500}
    _settled(emulation)
