"""A server with a socket, for what a client in the same process cannot do: send half, read nothing, stay."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from tests.unit.server.web_client import client_of

from tokenyard.web.connections import BoundedConnection

__all__ = ["connected", "serving"]


@contextmanager
def serving(folder: Path, **bounds: Any) -> Iterator[int]:
    """The port of a server whose connections have other bounds."""
    kind = type("Bounded", (BoundedConnection,), bounds)
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        config = uvicorn.Config(client_of([folder]).app, http=kind, log_level="critical", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
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
