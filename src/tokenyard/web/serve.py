"""Listening: the socket, the limits of all servers, the browser, and a clean end."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from tokenyard.errors import ConfigError, MissingExtraError, TokenyardError, TraceError
from tokenyard.redaction import plain
from tokenyard.trace.reader import find_trace
from tokenyard.web.connections import is_loopback
from tokenyard.web.framing import MOST_HEAD_BYTES
from tokenyard.web.page import PAGE
from tokenyard.web.queries import make_app

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from tokenyard.web.connections import Bounds


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


# ---------------------------------------------------------------------------------------------------------------------
# The limits of all servers: view, serve and emulate.


_Result = TypeVar("_Result")


class Seldom(logging.Filter):
    """Lets a message pass a few times in a while, and then says how often it was left out.

    What clients do wrong is logged by uvicorn, and what the system refuses by the event loop, thousands of times a
    second if it comes to that: a log must not fill a disk.
    """

    def __init__(
        self, most: int = 5, seconds: float = 60.0, *, clock: Callable[[], float] = time.monotonic, kinds: int = 200
    ) -> None:
        """``kinds``: messages that are told apart."""
        super().__init__()
        self._most, self._seconds, self._clock, self._kinds = most, seconds, clock, kinds
        self._seen = OrderedDict[object, tuple[float, int]]()
        """What a message begins with -> since when it is counted, and how often it came."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes."""
        kind, now = (record.name, str(record.msg).partition("\n")[0][:80]), self._clock()
        since, number = self._seen.pop(kind, (now, 0))
        if now - since >= self._seconds:
            if number > self._most:
                record.msg = f"{record.msg} (and {number - self._most} times more before)"
            since, number = now, 0
        self._seen[kind] = since, number + 1
        if len(self._seen) > self._kinds:
            self._seen.popitem(last=False)
        return number < self._most


def edge_config(
    app: ASGIApp,
    connection: type[Bounds] | None = None,
    *,
    backlog: int = 128,
    seconds_to_end: int | None = None,
    server_header: bool = False,
    **bounds: Any,
) -> uvicorn.Config:
    """How each of the servers is served: uvicorn's own limits, and those of ``connection`` with other ``bounds``.

    Answers that are under way have ``seconds_to_end`` when the server goes down; None: less than one.
    """
    import uvicorn  # noqa: PLC0415 - an extra

    from tokenyard.web.connections import BoundedConnection  # noqa: PLC0415 - needs it

    kind = connection or BoundedConnection
    if seconds_to_end is not None:
        bounds["seconds_to_end"] = seconds_to_end + 1.0
    bounded = type("EdgeConnection", (kind,), bounds)
    config = uvicorn.Config(
        app,
        http=bounded,
        ws="none",
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # what a client says of its address is believed of nobody
        server_header=server_header,
        backlog=backlog,
        limit_concurrency=bounds.get("most", kind.most) + 1,
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        timeout_graceful_shutdown=1 if seconds_to_end is None else seconds_to_end,
    )
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        if not any(isinstance(each, Seldom) for each in logger.filters):
            logger.addFilter(Seldom())
    return config


def run_in_loop(config: uvicorn.Config, work: Coroutine[Any, Any, _Result]) -> _Result:
    """What ``work`` gives back, in an event loop of the kind with which uvicorn serves: uvloop, where there is one."""
    make_loop = getattr(config, "get_loop_factory", None)
    if make_loop is None:  # uvicorn before 0.36
        config.setup_event_loop()
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=make_loop()) as runner:
        return runner.run(work)


def client_bounds(seconds_to_end: int) -> dict[str, Any]:
    """For :func:`edge_config` of a server whose clients may come through one proxy, and whose answers read no files.

    One address may then have as many idle connections as all together. The process may open as many files from now on
    as it is allowed to: a stream is one.
    """
    from tokenyard.web.connections import MOST_CLIENTS, share_of_files  # noqa: PLC0415 - needs uvicorn

    raise_limit()
    share = share_of_files(MOST_CLIENTS)
    return {
        "most": share.connections,
        "idle_per_client": share.connections,
        "backlog": share.backlog,
        "seconds_to_end": seconds_to_end,
    }


def raise_limit() -> None:
    """Raise the number of open files to what this process may have."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - not everywhere

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    on_ready: Callable[[], None],
    on_stop: Callable[[], None],
    seconds_to_end: int | None = None,
) -> None:
    """Answer until interrupted or asked to end; ``on_stop`` is called at once then.

    What is being answered has a second to end, or ``seconds_to_end`` on a server for clients of all kinds
    (:func:`client_bounds`); a second signal ends it at once. Raises MissingExtraError without uvicorn.
    """
    try:
        from tokenyard.web.connections import EdgeServer  # noqa: PLC0415 - needs uvicorn
    except ImportError:
        raise MissingExtraError("uvicorn", "server") from None

    class Server(EdgeServer):
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

    config = edge_config(app) if seconds_to_end is None else edge_config(app, **client_bounds(seconds_to_end))
    now_listens(listener)
    try:
        Server(config).run([listener])
    except KeyboardInterrupt:
        return
    finally:
        listener.close()


# ---------------------------------------------------------------------------------------------------------------------
# The viewer on traces of this machine: in this process, or beside a server in a process of its own.

_PAGE_VARIABLE = "TOKENYARD_VIEWER_HTML"
"""Names another build of the page: for developers of it."""

_SECONDS_TO_END = 0.8
"""Seconds after Ctrl-C in which connections may end."""


def view(
    paths: tuple[Path, ...],
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    key: str | None = None,
    state: str = "",
    on_ready: Callable[[str], None],
    warn: Callable[[str], None],
) -> None:
    """Serve the viewer on traces and folders until interrupted. Raises ConfigError.

    With a ``key``, which is part of the address, the viewer is served only to clients that give it. ``state`` is what
    the page shows at first, as its address has it behind the ``#``. ``on_ready`` is called with the address.
    """
    paths = paths or (Path(),)
    opened = _trace_to_open(paths)
    if port is not None:
        require_port(port)
    listener = listen(host, port)
    page = Path(os.environ.get(_PAGE_VARIABLE) or PAGE)
    url = url_of(listener, host)
    if key is not None:
        url += f"?key={key}"
    if state:
        url += f"#{state}"
    elif opened is not None:
        url += f"#trace={quote(str(opened), safe='')}"
    app = make_app(paths, host=host, page=page, key=key)
    if not is_loopback(host):
        warn(f"anyone who reaches {host} can read the traces, which may hold prompts")
    interrupted = _ended_in_any_case()

    def stop() -> None:
        interrupted.put(None)
        app.state.stop()

    serve(app, listener, on_ready=lambda: on_ready(url), on_stop=stop)


def _ended_in_any_case() -> SimpleQueue[None]:
    """End the process soon after something is put into the queue, whatever its threads are doing.

    A thread that reads a large file cannot be interrupted, and the interpreter would wait for it. Nothing is lost:
    notes are saved whole or not at all. A queue may be put into where a signal interrupts anything.
    """
    interrupted: SimpleQueue[None] = SimpleQueue()

    def end() -> None:
        interrupted.get()
        time.sleep(_SECONDS_TO_END)
        os._exit(0)

    threading.Thread(target=end, name="tokenyard-end", daemon=True).start()
    return interrupted


def _trace_to_open(paths: tuple[Path, ...]) -> Path | None:
    """The trace that is meant, if one is: a file, or a directory that holds one."""
    for path in paths:
        if not path.exists():
            raise ConfigError("path", str(path), "no such file or directory: name a trace, or a directory with traces")
    if len(paths) != 1:
        return None
    (path,) = paths
    try:
        return find_trace(path).source.resolve()
    except TraceError:
        if path.is_dir():
            return None  # no trace in it, or several: the page lists what lies below
        raise


# ---------------------------------------------------------------------------------------------------------------------
# The viewer beside a server, in a process of its own: its key comes by a pipe, and it ends when the pipe is closed.


@contextmanager
def viewing(trace: Path, *, has_key: bool) -> Iterator[None]:
    """The viewer on ``trace``, in a process of its own, which prints its address.

    It ends when the pipe to it is closed, so that it does not outlive this process, however that ends. ``has_key``:
    its address holds a key, and nothing is shown without.
    """
    process = subprocess.Popen([sys.executable, "-m", "tokenyard.web.serve", str(trace)], stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):
            process.stdin.write((secrets.token_urlsafe(24) if has_key else "").encode() + b"\n")
            process.stdin.flush()
        yield
    finally:
        process.terminate()
        process.wait()
        with suppress(BrokenPipeError):
            process.stdin.close()


def _end_with_the_server() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> int:
    """Show the trace that is named, until the server ends."""
    key = sys.stdin.buffer.readline().decode().strip()
    threading.Thread(target=_end_with_the_server, name="tokenyard-server-ended", daemon=True).start()

    def ready(url: str) -> None:
        print(f"The viewer is at {plain(url)}", flush=True)

    def warn(message: str) -> None:
        print(f"tokenyard: warning: {plain(message)}", file=sys.stderr)

    try:
        view((Path(sys.argv[1]),), key=key or None, on_ready=ready, warn=warn)
    except TokenyardError as error:
        print(f"tokenyard: {plain(str(error))}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
