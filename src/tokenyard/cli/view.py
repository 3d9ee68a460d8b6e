"""``tokenyard view``: the viewer, on traces of this machine."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from urllib.parse import quote

from rich.markup import escape

from tokenyard.cli.support.console import errors, results, warn
from tokenyard.cli.support.flags import ViewCommand
from tokenyard.errors import ConfigError, MissingExtraError, TraceError
from tokenyard.trace.files import find_trace

_PAGE_VARIABLE = "TOKENYARD_VIEWER_HTML"
"""Names another build of the page: for developers of it."""

_SECONDS_TO_END = 0.8
"""After Ctrl-C."""


def execute(flags: ViewCommand) -> int:
    """Serve until interrupted; 0 then."""
    return show(flags)


def show(flags: ViewCommand, *, key: str | None = None, state: str = "") -> int:
    """Serve until interrupted, with ``key`` only to those who know it: it is part of the address. 0 then.

    ``state`` is what the page shows at first, as its address has it behind the ``#``.
    """
    try:
        from tokenyard.web import serve  # noqa: PLC0415 - an extra
        from tokenyard.web.app import make_app  # noqa: PLC0415
        from tokenyard.web.guard import is_loopback  # noqa: PLC0415
        from tokenyard.web.page import PAGE  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(error.name or "starlette", "server") from None
    paths = flags.paths or (Path(),)
    opened = _trace_to_open(paths)
    if flags.port is not None and not 0 <= flags.port <= 65_535:
        raise ConfigError("port", flags.port, "must be from 0 to 65535; 0 takes any that is free")
    listener = serve.listen(flags.host, flags.port)
    page = Path(os.environ.get(_PAGE_VARIABLE) or PAGE)
    url = serve.url_of(listener, flags.host)
    if key is not None:
        url += f"?key={key}"
    if state:
        url += f"#{state}"
    elif opened is not None:
        url += f"#trace={quote(str(opened), safe='')}"
    app = make_app(paths, host=flags.host, page=page, key=key)
    if not is_loopback(flags.host):
        warn(f"anyone who reaches {flags.host} can read the traces, which may hold prompts")

    def ready() -> None:
        results().print(f"The viewer is at [bold]{escape(url)}[/]", soft_wrap=True)
        errors().print("[dim]Ctrl-C ends it.[/]")
        if flags.browser:
            serve.open_browser(url)

    interrupted = _ended_in_any_case()

    def stop() -> None:
        interrupted.put(None)
        app.state.stop()

    serve.serve(app, listener, on_ready=ready, on_stop=stop)
    return 0


def _ended_in_any_case() -> SimpleQueue[None]:
    """End the process soon after something is put into the queue, whatever its threads are doing.

    A thread that reads a large file cannot be told to stop, and the interpreter would wait for it. Nothing is lost:
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
