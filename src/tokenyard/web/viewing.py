"""The viewer on traces of this machine: in this process, or beside a server in a process of its own."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import quote

from tokenyard.errors import ConfigError, TokenyardError, TraceError
from tokenyard.redaction import plain
from tokenyard.trace.files import find_trace
from tokenyard.web.app import make_app
from tokenyard.web.guard import is_loopback
from tokenyard.web.page import PAGE
from tokenyard.web.serve import listen, require_port, serve, url_of

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
    process = subprocess.Popen([sys.executable, "-m", "tokenyard.web.viewing", str(trace)], stdin=subprocess.PIPE)
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
