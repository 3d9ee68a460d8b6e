"""Listening for an emulation: a socket, as many connections as there are files, and a clean end."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn

from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.emulate.faults import Fault
from tokenyard.serve.emulate.host import Emulation
from tokenyard.serve.emulate.surface import make_app
from tokenyard.web.serve import bound, url_of

__all__ = ["Listening", "bound_to"]

_BACKLOG = 4096


def bound_to(host: str, port: int) -> socket.socket:
    """A socket on a port, to which no client can connect until it is served. Raises ConfigError."""
    return bound(host, port)


class Listening:
    """Serves an emulation."""

    def __init__(self, emulation: Emulation, deployment: Deployment, faults: Sequence[Fault] = ()) -> None:
        self._emulation, self._deployment, self._faults = emulation, deployment, faults

    def serve(self, listener: socket.socket, host: str, on_ready: Callable[[str], None]) -> None:
        """Answer until told to end; ``on_ready`` is given the address."""
        emulation = self._emulation
        _raise_limit()
        app = make_app(emulation, emulation.fronts[0], self._deployment, emulation.faults)
        for fault in self._faults:
            if fault.kind == "slow_start":
                time.sleep(fault.seconds or 0.0)
            else:
                emulation.faults.begin(fault)

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                on_ready(url_of(listener, host))

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                self.force_exit = self.should_exit
                self.should_exit = True

        config = uvicorn.Config(
            app, log_level="warning", access_log=False, backlog=_BACKLOG, timeout_graceful_shutdown=5
        )
        try:
            Server(config).run([listener])
        except KeyboardInterrupt:
            return


def _raise_limit() -> None:
    """As many open files as this process may have: a stream is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
