"""Listening: the socket, the browser, and a clean end."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, cast

from tokenyard.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

DEFAULT_PORT = 8642
_TRIED = 20
"""Ports tried, one after the other, if none was requested."""


def listen(host: str, port: int | None) -> socket.socket:
    """A listening socket: on ``port``, on any free port for 0, on the first free one from 8642 on for None.

    Raises ConfigError if the port is taken or the address is not this machine's.
    """
    listener = bound(host, port)
    now_listens(listener)
    listener.listen(128)
    return listener


def require_port(port: int) -> None:
    """Raises ConfigError if ``port`` is no number of a port."""
    if not 0 <= port <= 65_535:
        raise ConfigError("port", port, "must be from 0 to 65535; 0 takes any that is free")


def bound(host: str, port: int | None) -> socket.socket:
    """A socket on a port, as :func:`listen` finds it, to which no client can connect until it is served."""
    ports = range(DEFAULT_PORT, DEFAULT_PORT + _TRIED) if port is None else (port,)
    for each in ports:
        try:
            return _bound(host, each)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise ConfigError("host", host, f"cannot listen there: {error.strerror or error}") from None
    if port is None:
        raise ConfigError("port", f"{ports[0]} to {ports[-1]}", "all in use: name a free one with --port")
    raise ConfigError("port", port, "is in use: name another one, or 0 for any that is free")


def _bound(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    # By name: of a protocol 0 asyncio does not know that it is TCP, and lets the kernel wait for more to send with it.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        _share(listener, shares=True)
        listener.bind(address)
        _share(listener, shares=False)
    except BaseException:
        listener.close()
        raise
    return listener


def _share(listener: socket.socket, *, shares: bool) -> None:
    """Whether the port may have been used a moment ago. A socket that is bound and says so can be bound over, by
    another server that is being loaded: so it says so only while it is bound, and from when it listens.
    """
    if os.name != "nt":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(shares))


def now_listens(listener: socket.socket) -> None:
    """From now on its port may be bound again as soon as its server has ended, whatever connections there were."""
    _share(listener, shares=True)


def url_of(listener: socket.socket, host: str) -> str:
    """The address to open; a server that listens everywhere is reached at the loopback address."""
    port = listener.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}/"


def open_browser(url: str) -> None:
    """Open a page, from a thread, if there is a screen to show it on."""
    has_screen = sys.platform != "linux" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if has_screen:
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    on_ready: Callable[[], None],
    on_stop: Callable[[], None],
    seconds_to_end: int | None = None,
) -> None:
    """Answer until interrupted or asked to end; ``on_stop`` is called at once then.

    What is being answered has a second to end, or ``seconds_to_end``; a second signal ends it at once. One address may
    then have as many idle connections as all together: a proxy is one. Raises MissingExtraError without uvicorn.
    """
    try:
        import uvicorn  # noqa: PLC0415 - an extra

        from tokenyard.web.connections import BoundedConnection  # noqa: PLC0415 - needs it
    except ImportError:
        raise MissingExtraError("uvicorn", "server") from None

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_ready()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            on_stop()
            if self.should_exit or seconds_to_end is None:
                logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # all that is cancelled now has no news
            if seconds_to_end is None:
                super().handle_exit(sig, frame)
                return
            # Not uvicorn's way, which raises the signal again: what is open in this process has to be closed first.
            self.force_exit = self.should_exit
            self.should_exit = True

    connection: type[BoundedConnection] = BoundedConnection
    if seconds_to_end is not None:
        bounds = {"seconds_to_end": seconds_to_end + 1.0, "idle_per_client": BoundedConnection.most}
        connection = cast(type[BoundedConnection], type("PatientConnection", (BoundedConnection,), bounds))
    config = uvicorn.Config(
        app,
        http=connection,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1 if seconds_to_end is None else seconds_to_end,
    )
    now_listens(listener)
    try:
        Server(config).run([listener])
    except KeyboardInterrupt:
        return
    finally:
        listener.close()
