"""One edge for all three servers: framing, heads, bodies, connections, Host and Origin, keys."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra: server)")
pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.edge_servers import KEY, KINDS, EdgeServer, edge_server, read_to_end, status
from tests.unit.server.real_server import connected

from tokenyard.web.framing import MOST_HEAD_BYTES, Framing, FramingError
from tokenyard.web.serve import Seldom

HALF = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Ha"


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    (folder / "a.steps.jsonl").write_text('{"event":"step_snapshot","step":0,"ts":0.0}\n' * 9)
    return folder


@pytest.fixture(scope="module")
def server(kind: str, traces: Path) -> Iterator[EdgeServer]:
    with edge_server(kind, traces) as made:
        yield made


@pytest.fixture(scope="module")
def locked(kind: str, traces: Path) -> Iterator[EdgeServer]:
    with edge_server(kind, traces, has_key=True) as made:
        yield made


# ---------------------------------------------------------------------------------------------------------------------
# Framing.


def _sent(server: EdgeServer, *headers: bytes, body: bytes = b"") -> bytes:
    """The request with a body that the server answers, with these headers of its framing."""
    method, path, _ = server.written
    lines = [f"{method} {path}", "Host: 127.0.0.1", "Content-Type: application/json"]
    return b"\r\n".join((*(each.encode() for each in lines), *headers, b"", body))


def _chunks(body: bytes, size: int = 500) -> bytes:
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"


CHUNKED = b"Transfer-Encoding: chunked"
BEHIND = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "body", "code"),
    [
        pytest.param([b"Content-Length: 4", CHUNKED], None, 400, id="length beside chunks"),
        pytest.param([CHUNKED, b"Content-Length: 4"], None, 400, id="chunks beside length"),
        pytest.param([b"Content-Length: 20", b"Content-Length: 20"], b"{}", 400, id="two lengths"),
        pytest.param([CHUNKED, CHUNKED], None, 400, id="two codings"),
        pytest.param([b"Transfer-Encoding: xchunked"], None, 501, id="unknown coding"),
        pytest.param([b"Transfer-Encoding: gzip, chunked"], None, 501, id="two codings in one"),
        pytest.param([b"Content-Length : 2"], b"{}", 400, id="space before the colon"),
        pytest.param([b"Content-Length: -5"], b"{}", 400, id="negative length"),
        pytest.param([b"Content-Length: +2"], b"{}", 400, id="signed length"),
        pytest.param([b"Content-Length: 99999999999999999999999"], b"{}", 413, id="endless length"),
        pytest.param([b"X: a\r\n b", b"Content-Length: 2"], b"{}", 400, id="folded header"),
        pytest.param([b"X: a\nContent-Length: 2"], b"{}", 400, id="line feed alone"),
        pytest.param([b"X: a\rContent-Length: 2"], b"{}", 400, id="carriage return alone"),
        pytest.param([CHUNKED], b"ffffffffffffffff\r\nabc", 413, id="chunk of 2^64 - 1"),
        pytest.param([CHUNKED], b"10000000000000000\r\nabc", 413, id="chunk of 2^64"),
        pytest.param([CHUNKED], b"100000000000000000005\r\nhello", 400, id="chunk of 2^80"),
        pytest.param([CHUNKED], b"-1\r\nabc", 400, id="negative chunk"),
        pytest.param([CHUNKED], b"ZZ\r\nabc", 400, id="chunk without a size"),
        pytest.param([CHUNKED], b"0x5\r\nhello", 400, id="chunk with a prefix"),
        pytest.param([CHUNKED], b"5\nhello\r\n0\r\n\r\n", 400, id="chunk's line with line feed alone"),
        pytest.param([CHUNKED], b"5\r\nhelloworld\r\n", 400, id="chunk longer than it says"),
        pytest.param([CHUNKED], b"5;" + b"a" * 1_000_000, 400, id="endless extension of a chunk"),
        pytest.param([CHUNKED], b"2\r\n{}\r\n0\r\nX: " + b"a" * 1_000_000, 431, id="endless trailer"),
        pytest.param([b"X: " + b"a" * 1_000_000], b"", 431, id="endless header"),
        pytest.param([b"X: a"] * 10_000, b"", 431, id="ten thousand headers"),
        pytest.param([b"X%d: a" % i for i in range(300)], b"", 431, id="three hundred short headers"),
    ],
)
def test_what_can_be_read_in_two_ways_or_has_no_end_is_refused(
    server: EdgeServer, headers: list[bytes], body: bytes | None, code: int
) -> None:
    sent = _sent(server, *headers, body=_chunks(server.written[2]) if body is None else body)
    got = server.raw(sent + BEHIND)
    assert status(got) == code or (not got and len(sent) > MOST_HEAD_BYTES), "an answer may be lost where much is sent"
    assert got.count(b"HTTP/1.1 ") <= 1, "nothing behind it is answered"


def test_the_same_byte_by_byte(server: EdgeServer) -> None:
    framed = _sent(server, b"Content-Length: 4", CHUNKED, body=b"2\r\n{}\r\n0\r\n\r\n")
    for sent, code in ((framed, 400), (_sent(server, b"X: a\n b"), 400)):
        with socket.create_connection(("127.0.0.1", server.port), 20) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for i in range(len(sent)):
                    client.sendall(sent[i : i + 1])
            except OSError:
                pass  # it is refused before its end
            assert status(read_to_end(client)) in (code, 0)


@pytest.mark.parametrize("size", [1, 5, 500])
def test_sound_chunks_are_taken(server: EdgeServer, size: int) -> None:
    sent = _sent(server, CHUNKED, b"Connection: close", body=_chunks(server.written[2], size))
    assert status(server.raw(sent)) == 200
    extended = _chunks(server.written[2]).replace(b"\r\n", b";name=value\r\n", 1)[:-2] + b"X-Trailer: a\r\n\r\n"
    assert status(server.raw(_sent(server, CHUNKED, b"Connection: close", body=extended))) == 200


def test_what_comes_before_is_answered(server: EdgeServer) -> None:
    """A sound request, and in the same piece one that is refused."""
    sound = f"GET {server.read} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    got = server.raw(sound + _sent(server, b"Content-Length: 4", CHUNKED, body=_chunks(b"{}")) + sound)
    assert [each[:3] for each in got.split(b"HTTP/1.1 ")[1:]] == [b"200", b"400"]


def test_many_requests_behind_each_other_are_all_answered(server: EdgeServer) -> None:
    body = server.written[2]
    one = f"GET {server.read} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    two = _sent(server, CHUNKED, body=_chunks(body)) + _sent(server, b"Content-Length: %d" % len(body), body=body)
    got = server.raw((one + two) * 5 + _sent(server, b"Content-Length: 0", b"Connection: close"))
    assert got.count(b"HTTP/1.1 200") == 15


@given(cuts=st.lists(st.integers(0, 400)), size=st.integers(1, 9))
def test_cuts_change_nothing(cuts: list[int], size: int) -> None:
    """However the bytes of sound requests come, they are sound; and an unsound one is refused where it begins."""
    sound = (
        b"\r\nPOST / HTTP/1.1\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n"
        + _chunks(b"some text" * 3, size)
        + b"PUT / HTTP/1.1\r\ncontent-length: 4\r\n\r\n\n\n\r\nGET / HTTP/1.1\r\n\r\n"
    )
    unsound = b"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n"
    framing, data, at = Framing(), sound + unsound, 0
    places = [*sorted({each for each in cuts if each < len(data)}), len(data)]
    refused = None
    for place in places:
        try:
            framing.feed(data[at:place])
        except FramingError as error:
            refused = error
            break
        at = place
    assert refused is not None
    assert refused.status == 400
    assert at + refused.taken == max(at, len(sound))


# ---------------------------------------------------------------------------------------------------------------------
# Bodies, idle and slow clients, many clients, few descriptors, the log.


def test_a_body_that_is_too_large_is_refused_before_it_comes(server: EdgeServer) -> None:
    assert status(server.raw(_sent(server, b"Content-Length: 900000000", b"Connection: close"))) == 413


def test_bodies_of_all_clients_together_are_bounded(kind: str, traces: Path) -> None:
    """Where there is no room for one more, the one that began first gives way; who sends at once is answered."""
    rest = b'"]}'
    begun = b'{"notes": ["' + b"a" * (4 * 2**20 - 1000)
    with edge_server(kind, traces, most_of_bodies=1) as server, ExitStack() as stack:
        sent = _sent(server, b"Content-Length: %d" % len(begun + rest), b"Connection: close", body=begun)
        crowd = [connected(stack, server.port, sent) for _ in range(6)]
        assert status(read_to_end(crowd[0])) == 503
        body = server.written[2]
        assert (
            status(server.raw(_sent(server, b"Content-Length: %d" % len(body), b"Connection: close", body=body))) == 200
        )
        assert status(read_to_end(crowd[-1], rest)) not in (0, 408, 503)


def test_who_does_not_ask_is_closed(kind: str, traces: Path) -> None:
    with edge_server(kind, traces, seconds_to_ask=0.3) as server, ExitStack() as stack:
        for sent in (b"", HALF):
            assert read_to_end(connected(stack, server.port, sent)) == b""


def test_many_idle_clients_keep_nobody_out(kind: str, traces: Path) -> None:
    with edge_server(kind, traces, most=20, idle_per_client=20) as server, ExitStack() as stack:
        crowd = [connected(stack, server.port, HALF if i % 2 else b"") for i in range(200)]
        assert server.ask("GET", server.read) == 200
        assert all(read_to_end(each) == b"" for each in crowd[:100]), "those that have been idle longest are closed"


def test_beyond_the_bound_a_client_is_refused_where_all_others_are_served(kind: str, traces: Path) -> None:
    slow: dict[str, Any] = {"speed": 0.02, "seconds": 0.05}
    with edge_server(kind, traces, most=3, idle_per_client=3, **slow) as server, ExitStack() as stack:
        busy = [connected(stack, server.port, server.long) for _ in range(3)]
        if kind != "view":
            assert all(each.recv(12) == b"HTTP/1.1 200" for each in busy)
        assert server.ask("GET", server.read) == 503
        busy[0].close()
        while server.ask("GET", server.read) == 503:
            pass
        assert server.ask("GET", server.read) == 200


_AT_THE_LIMIT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
import asyncio, socket
from starlette.responses import PlainTextResponse
from tests.unit.server.real_server import protocol
from tokenyard.web.connections import EdgeServer
from tokenyard.web.serve import client_bounds, edge_config
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
server = EdgeServer(edge_config(PlainTextResponse("here"), protocol(sys.argv[1]), **client_bounds(1)))
asyncio.run(server.serve([listener]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit on Windows")
@pytest.mark.parametrize("parser", ["h11", "httptools"])
def test_few_open_files_keep_nobody_out(parser: str) -> None:
    """Five hundred and twelve files, and nine hundred idle clients: others are answered, and little is logged."""
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", _AT_THE_LIMIT, parser]
    with (
        ExitStack() as stack,
        subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        port = int(process.stdout.readline())
        for _ in range(900):
            connected(stack, port, HALF)
        got = [read_to_end(connected(stack, port, BEHIND.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")))]
        process.terminate()
        _, logged = process.communicate()
        assert status(got[0]) == 200
        assert len(logged) < 20_000


def test_a_log_does_not_grow_with_what_clients_do_wrong() -> None:
    now = 0.0
    seldom = Seldom(most=2, seconds=60, clock=lambda: now, kinds=3)

    def passes(text: str) -> str | None:
        record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, text, (), None)
        return str(record.msg) if seldom.filter(record) else None

    assert [passes("Invalid") for _ in range(1000)] == ["Invalid", "Invalid", *[None] * 998]
    assert passes("another") == "another"
    now = 61.0
    assert passes("Invalid") == "Invalid (and 998 times more before)"
    for number in range(1000):
        passes(f"{number} is new")
    assert passes("another") == "another", "it is forgotten: what is kept is bounded"


# ---------------------------------------------------------------------------------------------------------------------
# Host and Origin.


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "192.168.0.9", "evil.example:80"]
)
def test_a_name_that_was_made_to_point_here_is_refused(server: EdgeServer, host: str) -> None:
    assert server.ask("GET", server.read, f"Host: {host}") == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "[::1]", "LOCALHOST"])
def test_names_of_this_machine_are_answered(server: EdgeServer, host: str) -> None:
    assert server.ask("GET", server.read, f"Host: {host}") == 200


def test_a_request_without_a_host_or_with_two_is_refused(server: EdgeServer) -> None:
    for head in (b"", b"Host: 127.0.0.1\r\nHost: evil.example\r\n"):
        got = server.raw(f"GET {server.read} HTTP/1.1\r\n".encode() + head + b"Connection: close\r\n\r\n")
        assert status(got) in (400, 403)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "file://"])
def test_pages_of_other_sites_are_refused_whatever_they_ask(server: EdgeServer, origin: str) -> None:
    for method, path in server.routes:
        assert server.ask(method, path, f"Origin: {origin}") == 403, (method, path)


def test_nor_may_they_post_what_a_form_can(server: EdgeServer) -> None:
    """A browser that sends no Origin says where the page is from."""
    for method, path in server.routes:
        if method not in ("GET", "HEAD"):
            assert server.ask(method, path, "Sec-Fetch-Site: cross-site", "Content-Type: text/plain") == 403


def test_origins_that_vllms_flag_names_may_ask_an_emulation(traces: Path) -> None:
    from tests.unit.server.emulate.emulated import LINE, emulated  # noqa: PLC0415 - made where it is needed

    named = {"Origin": "http://app.example", "Sec-Fetch-Site": "cross-site"}
    with emulated(f"{LINE} --allowed-origins '[\"http://app.example\"]'") as server:
        answer = server.client.post("/v1/completions", json={"prompt": "hi", "max_tokens": 1}, headers=named)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "http://app.example")
        assert server.client.get("/v1/models", headers={"Origin": "http://evil.example"}).status_code == 403


# ---------------------------------------------------------------------------------------------------------------------
# Keys.


def test_without_a_key_there_is_health_and_nothing_else(locked: EdgeServer) -> None:
    assert len(locked.routes) >= 8
    for method, path in locked.routes:
        code = locked.ask(method, path, body=b"{}" if method == "POST" else b"")
        assert code == (200 if path in ("/health", "/ping") else 401), (method, path)
    for path in ("/nothing", "//v1/models", "/health/", "/health/../v1/models", "/health;x", "/HEALTH"):
        assert locked.ask("GET", path) == 401, path


def test_what_is_no_key_is_none(locked: EdgeServer) -> None:
    if locked.kind == "view":
        pytest.skip("its key is in a cookie: test_web_key.py")
    wrong: tuple[str, ...] = ("", "Bearer", "Bearer ", KEY, f"Basic {KEY}")
    wrong += () if locked.kind.startswith("emulate") else (f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer None")
    for each in wrong:
        assert locked.ask("GET", locked.read, f"Authorization: {each}") == 401, each
    assert locked.ask("GET", f"{locked.read}?api_key={KEY}", f"X-API-Key: {KEY}") == 401
    assert locked.ask("GET", locked.read, f"Authorization: Bearer {KEY}") == 200


def test_paths_of_operators_ask_for_it_as_well(locked: EdgeServer) -> None:
    if not locked.kind.startswith("emulate"):
        pytest.skip("only an emulation has them")
    known = {path for _, path in locked.routes}
    for path in ("/emulate/fault", "/pause", "/sleep", "/abort_requests", "/reset_prefix_cache"):
        assert path in known
        assert locked.ask("POST", path, body=json.dumps({"kind": "crash"}).encode()) == 401
