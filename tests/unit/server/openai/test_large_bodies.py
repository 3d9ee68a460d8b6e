"""Bodies that end in 400 do so at once, and in a short answer; what is wrong is called as the client calls it."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.unit.server.openai.api_server import ApiServer, serving_api, until

from tokenyard.web.connections import BoundedConnection

MB = 2**20
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with serving_api() as served:
        yield served


def refused(server: ApiServer, path: str, body: Any) -> dict[str, Any]:
    """The error, which comes soon and is short."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    start = time.monotonic()
    answer = httpx.post(
        f"{server.url}{path}", content=content, headers={"Content-Type": "application/json"}, timeout=60
    )
    assert answer.status_code == 400
    assert len(answer.content) < 2000
    assert time.monotonic() - start < 20, "minutes without a bound"
    error: dict[str, Any] = answer.json()["error"]
    return error


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"title": "a" * 2000}}}


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/v1/completions", b'{"prompt": [' + b"[]," * (2 * MB) + b"[]]}", "more than 100000 lists and objects"),
        ("/v1/chat/completions", b'{"messages": [' + b"{}," * (2 * MB) + b"{}]}", "more than 100000 lists and objects"),
        ("/v1/chat/completions", {"messages": HELLO * 10_001}, "at most 10000"),
        ("/v1/chat/completions", {"messages": HELLO, "tools": [{}] * 1025}, "at most 1024"),
        ("/v1/chat/completions", {"messages": HELLO, "tools": [TOOL] * 1000}, "takes 512 tokens"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * 6 * MB}]}, "takes 512 tokens"),
        ("/v1/completions", {"prompt": "a" * 6 * MB}, "takes 512 tokens"),
        ("/v1/completions", {"prompt": list(range(200)) * 5_000}, "takes 512 tokens"),
        ("/v1/embeddings", {"input": ["a", "a" * 6 * MB]}, "takes 512 tokens"),
        ("/tokenize", {"prompt": "a" * 6 * MB}, "takes 512 tokens"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_what_is_too_large_is_refused_at_once(server: ApiServer, path: str, body: Any, says: str) -> None:
    error = refused(server, path, body)
    assert says in error["message"]
    if "tokens" in says:
        assert error["code"] == "context_length_exceeded"


def test_a_text_that_fits_is_tokenized_whatever_its_length(server: ApiServer) -> None:
    with httpx.Client(base_url=server.url) as client:
        assert client.post("/tokenize", json={"prompt": "a" * 30_000}).json()["count"] == 30_000


def test_an_unknown_field_with_a_long_name_is_told_in_short(server: ApiServer) -> None:
    error = refused(server, "/v1/completions", {"prompt": "a", "x" * MB + "end": 1})
    assert error["code"] == "unknown_field"
    assert error["param"].startswith("xxx")
    assert error["param"].endswith("xend")
    assert len(error["param"]) < 110


@pytest.mark.parametrize("text", ["\\ud800", "\\udc00", "a\\uDBFFb", "\\\\\\ud800\\u0041"])
def test_a_lone_surrogate_is_called_one(server: ApiServer, text: str) -> None:
    error = refused(server, "/v1/completions", f'{{"prompt": "a", "stop": "{text}"}}'.encode())
    assert "lone surrogate" in error["message"]


def test_fields_are_called_as_the_client_calls_them(server: ApiServer) -> None:
    error = refused(server, "/v1/chat/completions", {"messages": HELLO, "logprobs": True, "top_logprobs": 21})
    assert (error["param"], error["message"][:17]) == ("top_logprobs", "top_logprobs = 21")
    error = refused(server, "/v1/completions", {"prompt": "a", "logprobs": 21})
    assert error["param"] == "logprobs"
    error = refused(server, "/v1/completions", {"prompt": "a", "logit_bias": {"1": 100, "01": -100}})
    assert (error["param"], "token 1 has a value already" in error["message"]) == ("logit_bias", True)


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """What the HTTP server logs."""
    logger, seen = logging.getLogger("uvicorn.error"), list[str]()
    level, handler = logger.level, logging.Handler(logging.ERROR)
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    yield seen
    logger.setLevel(level)
    logger.removeHandler(handler)


def test_who_leaves_in_the_middle_of_a_body_is_not_worth_a_line(server: ApiServer, complaints: list[str]) -> None:
    lines = ("POST /v1/completions HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json")
    head = "\r\n".join((*lines, "Content-Length: 100", "", '{"prompt"'))
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(head.encode())
            time.sleep(0.2)
    until(lambda: httpx.get(f"{server.url}/health").status_code == 200)
    time.sleep(0.2)
    assert not complaints


def test_a_server_that_ends_says_so_to_who_is_still_served(
    monkeypatch: pytest.MonkeyPatch, complaints: list[str]
) -> None:
    """Also while a grammar is compiled: nothing has been answered then."""
    begun, release = threading.Event(), threading.Event()
    answers: list[httpx.Response] = []

    def ask(url: str) -> None:
        body = {"prompt": "a", "structured_outputs": {"regex": "[a-z]"}}
        answers.append(httpx.post(f"{url}/v1/completions", json=body, timeout=30))

    monkeypatch.setattr(BoundedConnection, "seconds_to_end", 5.0)

    def slow(*_: Any) -> None:
        begun.set()
        release.wait(30)

    with serving_api() as ending:
        compiler = ending.context.grammars
        assert compiler is not None
        monkeypatch.setattr(compiler, "compile_one", slow)
        client = threading.Thread(target=ask, args=(ending.url,))
        client.start()
        assert begun.wait(10)
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    release.set()
    client.join()
    assert [each.status_code for each in answers] == [503]
    assert answers[0].json()["error"]["code"] == "draining"
    assert not [each for each in complaints if "Exception in ASGI" in each]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize"])
def test_a_length_beyond_the_bound_is_refused_before_anything_comes(server: ApiServer, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(f"{head}Content-Length: 99999999999999\r\n\r\n".encode())
        answer = b""
        said = b"body = '99999999999999 bytes': must not be longer than 8388608 bytes"
        while said not in answer and (piece := connection.recv(65536)):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert said in answer
