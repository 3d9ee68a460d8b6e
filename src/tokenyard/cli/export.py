"""``tokenyard export``: a trace for other tools, or as a page that can be mailed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files as resources
from pathlib import Path
from typing import IO

from rich.markup import escape

from tokenyard.cli.support.console import errors, warn
from tokenyard.cli.support.flags import ExportCommand
from tokenyard.errors import ConfigError, TraceError
from tokenyard.explain.why.spans import send_traces
from tokenyard.explain.why.why import draw
from tokenyard.trace.export.chrome import ChromeWriter
from tokenyard.trace.export.page import embed, fitting
from tokenyard.trace.export.perfetto import PerfettoWriter, messages
from tokenyard.trace.reader import find_ranks


def execute(flags: ExportCommand) -> int:
    """Write what is asked for; always 0 if the trace can be read."""
    if not (flags.perfetto or flags.chrome or flags.otlp or flags.html):
        raise ConfigError("export", "nothing", "name --perfetto FILE, --chrome FILE, --otlp URL or --html FILE")
    traces = find_ranks(flags.trace)
    name = traces[0].files.name
    if flags.html is not None and len(traces) > 1:
        example = f"for example {traces[0].files.source}"
        raise ConfigError(
            "html", str(flags.html), f"a page holds one engine, here are {len(traces)}: name one, {example}"
        )
    if flags.perfetto is not None:
        messages()  # before a file is made
        with _writing("perfetto", flags.perfetto) as file:
            draw(traces, lambda name: PerfettoWriter(file, name))
        _say_written(flags.perfetto, "open it at ui.perfetto.dev")
    if flags.chrome is not None:
        with _writing("chrome", flags.chrome) as file:
            draw(traces, lambda name: ChromeWriter(file, name)).finish()
        _say_written(flags.chrome, "open it in chrome://tracing, ui.perfetto.dev or speedscope.app")
    if flags.html is not None:
        files, left_out = fitting(traces[0].files)
        with _writing("html", flags.html) as file:
            lost = embed(_page(), files, file, with_prompts=flags.with_prompts)
        _say_written(flags.html, "open it in a browser, or mail it")
        if left_out:
            warn(left_out)
        if lost:
            warn(f"{lost:,} lines could not be read and are left out of the page")
    if flags.otlp is not None:
        sent = send_traces(traces, flags.otlp, name)
        errors().print(f"{sent:,} spans sent")
    return 0


def _say_written(path: Path, how: str) -> None:
    """A file is complete: its size, and what opens it."""
    errors().print(f"{escape(str(path))}: {path.stat().st_size / 1e6:,.1f} MB; {how}", soft_wrap=True)


def _page() -> str:
    page = resources("tokenyard") / "web" / "static" / "viewer.html"
    try:
        return page.read_text(encoding="utf-8")
    except OSError:
        raise TraceError("this package holds no viewer.html: in a checkout, build it with `make viewer`") from None


@contextmanager
def _writing(flag: str, path: Path) -> Iterator[IO[bytes]]:
    """A file to write; what could not be finished is removed."""
    part = path.with_name(path.name + ".part")
    if not path.parent.is_dir():
        raise ConfigError(flag, str(path), f"there is no folder {path.parent}: make it first")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise ConfigError(flag, str(path), f"cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
