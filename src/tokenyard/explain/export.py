"""A trace for other tools: Perfetto, Chrome, OpenTelemetry, or a page that can be mailed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.resources import files as resources
from pathlib import Path
from typing import BinaryIO

import msgspec

from tokenyard.errors import ConfigError, TraceError
from tokenyard.explain.answer.answer import Answer
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.why.timeline import draw, send_traces
from tokenyard.files import written_whole
from tokenyard.trace.export.page import embed, fitting
from tokenyard.trace.export.perfetto import PerfettoWriter, messages
from tokenyard.trace.export.timeline import ChromeWriter
from tokenyard.trace.reader import RankTrace, TraceFiles, find_ranks

KINDS = ("perfetto", "chrome", "html")
"""Files that a trace is exported to, in the order in which they are written."""


class Exported(msgspec.Struct, frozen=True):
    """What came of an export, besides its files."""

    left_out: str | None = None
    """What a page has no room for, as a sentence; None: nothing."""
    num_lost_lines: int = 0
    """Lines that could not be read and are left out of the page."""
    num_spans: int | None = None
    """Spans that were sent; None: no address was given."""


def export(
    trace: Path | str,
    *,
    perfetto: Path | None = None,
    chrome: Path | None = None,
    html: Path | None = None,
    otlp: str | None = None,
    with_prompts: bool = False,
    on_written: Callable[[str, Path], object] = lambda kind, path: None,
) -> Exported:
    """Write a trace of one engine or of several to the files that are named, and send it to the address ``otlp``.

    ``with_prompts`` keeps the text of prompts and answers in the page. ``on_written`` is called with the kind and the
    path of each file that is complete. Raises ConfigError where nothing is named, or a file cannot be written;
    TraceError where the trace cannot be read; MissingExtraError without the library that a kind needs.
    """
    given = {kind: path for kind, path in zip(KINDS, (perfetto, chrome, html), strict=True) if path is not None}
    if not given and otlp is None:
        raise ConfigError("export", "nothing", "name --perfetto FILE, --chrome FILE, --otlp URL or --html FILE")
    traces = find_ranks(trace)
    if html is not None and len(traces) > 1:
        example = f"for example {traces[0].files.source}"
        raise ConfigError("html", str(html), f"a page holds one engine, here are {len(traces)}: name one, {example}")
    if perfetto is not None:
        messages()  # a missing extra raises before a file is made
    found = Exported()
    for kind, path in given.items():
        if not path.parent.is_dir():
            raise ConfigError(kind, str(path), f"there is no folder {path.parent}: make it first")
        with written_whole(path, partial(ConfigError, kind, str(path))) as file:
            found = _write(kind, traces, file, with_prompts=with_prompts)
        on_written(kind, path)
    sent = None if otlp is None else send_traces(traces, otlp, traces[0].files.name)
    return msgspec.structs.replace(found, num_spans=sent)


def _write(kind: str, traces: list[RankTrace], file: BinaryIO, *, with_prompts: bool) -> Exported:
    if kind == "html":
        files, left_out = fitting(traces[0].files)
        answer = answer_within(traces[0].files)
        return Exported(left_out, embed(_page(), files, file, with_prompts=with_prompts, answer=answer))
    if kind == "perfetto":
        draw(traces, lambda name: PerfettoWriter(file, name))
    else:
        draw(traces, lambda name: ChromeWriter(file, name)).finish()
    return Exported()


def answer_within(files: TraceFiles) -> Answer | None:
    """The answer that a page holds; None where the trace has no step: the page says itself what it lacks."""
    try:
        return None if files.steps is None else summarize(files.source).answer
    except TraceError:
        return None


def _page() -> str:
    page = resources("tokenyard") / "web" / "static" / "viewer.html"
    try:
        return page.read_text(encoding="utf-8")
    except OSError:
        raise TraceError("this package holds no viewer.html: in a checkout, build it with `make viewer`") from None
