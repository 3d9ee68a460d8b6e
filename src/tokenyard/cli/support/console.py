"""Where things are printed: results on stdout, progress and warnings on stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tokenyard.cli.support.streams import say
from tokenyard.errors import ConfigError
from tokenyard.patterns import lazy_pattern
from tokenyard.redaction import with_valid_text
from tokenyard.sim.traffic import Progress as Replayed
from tokenyard.workload.record import Workload

if TYPE_CHECKING:  # rich is loaded where it prints
    from rich.console import Console


# ---------------------------------------------------------------------------------------------------------------------
# Where things are printed: results on stdout, progress and warnings on stderr.

_STEERING = lazy_pattern("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What JSON leaves as it is and a terminal may obey: the other controls, and what turns a line around."""


_BEYOND_ASCII = lazy_pattern("[^\x00-\x7f]")


def results() -> Console:
    """Standard output; ids and paths are printed as they are, without guessing at numbers to colour."""
    from tokenyard.explain.console import PlainConsole  # noqa: PLC0415

    class Results(PlainConsole):
        """One that leaves it to ``main`` what happens when the reader has gone away."""

        def on_broken_pipe(self) -> None:
            self.quiet = True
            raise BrokenPipeError

    return Results(highlight=False)


def errors() -> Console:
    """Standard error."""
    from tokenyard.explain.console import PlainConsole  # noqa: PLC0415

    return PlainConsole(stderr=True, highlight=False)


def _is_for_machines() -> bool:
    """Whether standard error is certainly no terminal, in rich's eyes either."""
    return not sys.stderr.isatty() and not any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Say on a terminal what is being done meanwhile."""
    if _is_for_machines():
        yield
        return
    from rich.markup import escape  # noqa: PLC0415

    with errors().status(escape(what)):
        yield


def warn(message: str) -> None:
    """One line on standard error."""
    say(f"tokenyard: warning: {message}")


def print_json(value: Any) -> None:
    """One object, readable, on standard output; what would steer a terminal is written with escapes."""
    try:
        line = msgspec.json.encode(value)
    except UnicodeEncodeError:
        line = msgspec.json.encode(with_valid_text(msgspec.to_builtins(value)))
    text = msgspec.json.format(line, indent=2).decode()
    text = _STEERING.sub(_escaped, text)
    if not (sys.stdout.encoding or "utf-8").lower().startswith("utf"):
        text = _BEYOND_ASCII.sub(_escaped, text)
    sys.stdout.write(text + "\n")


def write_text(flag: str, path: Path, text: str) -> None:
    """Write the file that ``flag`` names. Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(flag, str(path), f"cannot be written: {error.strerror or error}") from None


def _escaped(found: re.Match[str]) -> str:
    """A character as JSON escapes it, in two halves if it is far out."""
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))


# ---------------------------------------------------------------------------------------------------------------------
# The progress bar of a replay: requests done, virtual time, who runs and who waits.


@contextmanager
def replay_bar(total: int, what: str = "") -> Iterator[Callable[[Replayed], None] | None]:
    """What to call with a replay's progress; None when standard error is no terminal. ``what`` is replayed, if it is
    not the run itself.
    """
    console = None if _is_for_machines() else errors()
    if console is None or not console.is_terminal:
        yield None
        return
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        *([TextColumn("{task.description}")] if what else []),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("requests  {task.fields[clock]}"),
        TextColumn("[cyan]{task.fields[running]:,}[/] running  [yellow]{task.fields[waiting]:,}[/] waiting"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        task = progress.add_task(what, total=total, clock=_clock(0.0), running=0, waiting=0)

        def show(done: Replayed) -> None:
            progress.update(
                task,
                completed=done.num_done,
                clock=_clock(done.now),
                running=done.num_running,
                waiting=done.num_waiting,
            )

        yield show


@contextmanager
def variants_bar(total: int, done: int = 0) -> Iterator[Callable[[], None]]:
    """What to call with every variant that is finished; a bar with the time left where standard error is a terminal."""
    if _is_for_machines() or not (console := errors()).is_terminal:
        yield lambda: None
        return
    from rich import progress as rich  # noqa: PLC0415

    columns = (
        rich.BarColumn(bar_width=None),
        rich.MofNCompleteColumn(),
        rich.TextColumn("variants"),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=console, transient=True, expand=True) as progress:
        task = progress.add_task("", total=total, completed=done)
        yield lambda: progress.advance(task)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} simulated"


# ---------------------------------------------------------------------------------------------------------------------
# What a library call has to say besides its result, on standard error.


def say_notes(workload: Workload) -> None:
    """What looks wrong in the workload as it was read, on standard error; the header has the rest, too."""
    for each in workload.remarks:
        if each.warning:
            warn(f"{workload.name}: {each.text}")
