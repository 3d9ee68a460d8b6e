"""The three servers, each on a socket behind the edge that they share: what is true of one is asked of all."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.routing import Route
from tests.support.toy_model import toy_core, toy_tokenizer
from tests.unit.server.real_server import serving_app

from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.async_llm import AsyncLLM
from tokenyard.serve.emulate.application import EmulatedApplication
from tokenyard.serve.emulate.host import emulate
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.emulate.surface import make_app as emulated_app
from tokenyard.serve.openai.app import make_api
from tokenyard.serve.openai.asking import ServerContext
from tokenyard.web.queries import make_app

__all__ = ["KEY", "KINDS", "EdgeServer", "edge_server"]

KINDS = ("view", "serve", "emulate", "emulate by h11")
KEY = "a-key-of-some-length"
_LINE = "vllm serve Qwen/Qwen3-0.6B --max-num-seqs 16 --max-model-len 2048 --served-model-name toy"


class EdgeServer(NamedTuple):
    """One that listens."""

    kind: str
    port: int
    routes: tuple[tuple[str, str], ...]
    """Method and path of all that it answers."""
    read: str
    """Path of a GET that is answered with 200."""
    written: tuple[str, str, bytes]
    """A request with a body that is answered with 200: method, path with headers behind it, body."""
    long: bytes
    """A request whose answer takes long."""
    key: str | None

    def raw(self, sent: bytes, *, seconds: float = 20) -> bytes:
        """All that comes until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), seconds) as client:
            return read_to_end(client, sent)

    def ask(self, method: str, path: str, *headers: str, body: bytes = b"") -> int:
        """The status of an answer; a body is JSON."""
        of_body = (f"Content-Length: {len(body)}", "Content-Type: application/json") if body else ()
        lines = [f"{method} {path} HTTP/1.1", *headers, *of_body, "Connection: close"]
        if not any(each.lower().startswith("host:") for each in headers):
            lines.insert(1, f"Host: 127.0.0.1:{self.port}")
        return status(self.raw("\r\n".join((*lines, "", "")).encode("latin-1") + body))


def read_to_end(client: socket.socket, sent: bytes = b"") -> bytes:
    """All that comes until the other side closes; it may before all is sent."""
    got = b""
    try:
        client.sendall(sent)
        while piece := client.recv(65536):
            got += piece
    except (ConnectionResetError, BrokenPipeError):
        pass
    return got


def status(answer: bytes) -> int:
    """The status of the first answer; 0: there is none."""
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.") else 0


@contextmanager
def edge_server(
    kind: str, folder: Path, *, has_key: bool = False, speed: float = 200.0, seconds: float = 0.0, **bounds: Any
) -> Iterator[EdgeServer]:
    """A server of a kind; ``speed`` is that of an emulation, ``seconds`` how long a step of a model takes at least."""
    parser = "httptools" if kind == "emulate" else "h11"
    if kind == "view":
        app = make_app([folder], key=KEY if has_key else None)
        with serving_app(app, parser, **bounds) as port:
            yield _viewer(port, app, folder, has_key=has_key)
    elif kind == "serve":
        llm = AsyncLLM(toy_core(seconds=seconds), tokenizer=toy_tokenizer())
        api = make_api(ServerContext(llm=llm, names=("toy",)), api_keys=(KEY,) if has_key else ())
        with serving_app(api, parser, **bounds) as port:
            yield _answering(kind, port, _routes(api), has_key=has_key)
    else:
        deployment = Deployment(_LINE + (" --api-key any" if has_key else ""), gpu="h100")
        with closing(emulate(deployment, EmulateSettings(speed=speed))) as emulation:
            emulating = emulated_app(emulation, emulation.fronts[0], deployment, emulation.faults)
            with serving_app(emulating, parser, **bounds) as port:
                yield _answering(kind, port, _paths(emulating), has_key=has_key)


def _viewer(port: int, app: Starlette, folder: Path, *, has_key: bool) -> EdgeServer:
    path = next(folder.rglob("*.steps.jsonl"))
    noted = (f"/api/annotations?path={path} HTTP/1.1\r\nTokenyard-Annotations: 1", b'{"notes": []}')
    waiting = f"GET /api/tail?path={path}&offset={path.stat().st_size}&wait=20 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    return EdgeServer(
        "view",
        port,
        _routes(app),
        "/api/traces",
        ("PUT", *noted),
        waiting.encode(),
        KEY if has_key else None,
    )


def _answering(kind: str, port: int, routes: tuple[tuple[str, str], ...], *, has_key: bool) -> EdgeServer:
    body = json.dumps({"prompt": "hi", "max_tokens": 2}).encode()
    long = json.dumps({"prompt": "hi", "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json"
    sent = f"{head}\r\nContent-Length: {len(long)}\r\n\r\n".encode() + long
    written = ("POST", "/v1/completions HTTP/1.1", body)
    return EdgeServer(kind, port, routes, "/v1/models", written, sent, KEY if has_key else None)


def _routes(app: Starlette) -> tuple[tuple[str, str], ...]:
    routes = [each for each in app.routes if isinstance(each, Route)]
    return tuple((method, each.path) for each in routes for method in sorted(each.methods or ()))


def _paths(app: EmulatedApplication) -> tuple[tuple[str, str], ...]:
    return tuple((method, each.path.replace("//", "/name/")) for each in app.paths for method in each.methods)
