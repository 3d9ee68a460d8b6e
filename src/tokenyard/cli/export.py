"""``tokenyard export``: a trace for other tools, or as a page that can be mailed."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from tokenyard.cli.support.console import errors, warn
from tokenyard.cli.support.flags.traces import ExportCommand
from tokenyard.explain.export import export

_OPENED = {
    "perfetto": "open it at ui.perfetto.dev",
    "chrome": "open it in chrome://tracing, ui.perfetto.dev or speedscope.app",
    "html": "open it in a browser, or mail it",
}
"""Kind of file -> what opens it."""


def execute(flags: ExportCommand) -> int:
    """Write what is requested; always 0 if the trace can be read."""
    done = export(
        flags.trace,
        perfetto=flags.perfetto,
        chrome=flags.chrome,
        html=flags.html,
        otlp=flags.otlp,
        with_prompts=flags.with_prompts,
        on_written=_say_written,
    )
    if done.left_out:
        warn(done.left_out)
    if done.num_lost_lines:
        warn(f"{done.num_lost_lines:,} lines could not be read and are left out of the page")
    if done.num_spans is not None:
        errors().print(f"{done.num_spans:,} spans sent")
    return 0


def _say_written(kind: str, path: Path) -> None:
    """A file is complete: its size, and what opens it."""
    errors().print(f"{escape(str(path))}: {path.stat().st_size / 1e6:,.1f} MB; {_OPENED[kind]}", soft_wrap=True)
