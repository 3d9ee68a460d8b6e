"""A server with a socket, for what a client in the same process cannot do: send half, read nothing, stay."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp
from tests.unit.server.web_client import client_of

from tokenyard.web.connections import BoundedConnection, Bounds
from tokenyard.web.serve import edge_config

__all__ = ["connected", "serving", "serving_app"]


def protocol(name: str) -> type[Bounds]:
    """What uvicorn speaks HTTP with: ``h11`` or ``httptools``, within the bounds of all servers."""
    if name == "h11":
        return BoundedConnection
    pytest.importorskip("httptools", reason="httptools is not installed: uvicorn speaks HTTP with h11 then")
    from tokenyard.serve.openai.told_connection import ToldConnection  # noqa: PLC0415 - needs it

    return ToldConnection


@contextmanager
def serving(folder: Path, parser: str = "h11", **bounds: Any) -> Iterator[int]:
    """The port of a viewer whose connections have other bounds."""
    with serving_app(client_of([folder]).app, parser, **bounds) as port:
        yield port


@contextmanager
def serving_app(app: ASGIApp, parser: str = "h11", **bounds: Any) -> Iterator[int]:
    """The same of any application."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        server = uvicorn.Server(edge_config(app, protocol(parser), **{"backlog": 512, **bounds}))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.005)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def connected(stack: ExitStack, port: int, sent: bytes = b"") -> socket.socket:
    each = stack.enter_context(socket.socket())
    # Some systems let a socket that is not read from take tens of megabytes.
    each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
    each.settimeout(20)
    each.connect(("127.0.0.1", port))
    each.sendall(sent)
    return each
