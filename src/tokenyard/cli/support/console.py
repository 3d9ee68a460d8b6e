"""Where things are printed: results on stdout, progress and warnings on stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import msgspec

from tokenyard.errors import ConfigError
from tokenyard.patterns import lazy_pattern
from tokenyard.redaction import plain_lines, with_valid_text

if TYPE_CHECKING:
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from rich.console import Console

    from tokenyard.sim.traffic import Progress as Replayed
    from tokenyard.workload.record import Workload


# ---------------------------------------------------------------------------------------------------------------------
# Standard input in the place of a file; standard output and error when they are not read any more.

Command = TypeVar("Command", bound=Any)
_NAMES = ("workload", "more", "log", "trace", "a", "b")
"""Arguments that name a file to read."""
_PROBED = 1 << 16
_folders: list[TemporaryDirectory[str]] = []
"""Each is removed when the process ends."""


def make_printable() -> None:
    """A stream that was closed takes what it is given, and one that cannot write a character writes a question mark."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 (for good)
        elif isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def say(message: str) -> None:
    """A line on standard error; that it is not read must not change how the command ends."""
    try:
        print(plain_lines(message), file=sys.stderr)
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """The reader of our output has gone, or takes no more; the interpreter must not complain at its exit."""
    with suppress(OSError, ValueError):  # not a file of the system's, as under tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def with_stdin(command: Command) -> Command:
    """``command`` with a file in the place of `-`, since files are looked at more than once.

    Raises ConfigError if `-` stands there twice, or nothing is piped in.
    """
    from dataclasses import fields, replace  # noqa: PLC0415 (an interrupt is not expected while this module loads)
    from pathlib import Path  # noqa: PLC0415

    known = {field.name for field in fields(command)}
    named = [name for name in _NAMES if name in known for each in _files(getattr(command, name)) if each == "-"]
    if not named:
        return command
    if len(named) > 1:
        raise ConfigError(named[1], "-", "standard input can be read once: name a file here")
    if sys.stdin is None or sys.stdin.isatty():
        raise ConfigError(named[0], "-", "nothing is piped in: name a file")
    path, value = _copied_input(), getattr(command, named[0])
    kept = path if isinstance(value, Path) else str(path)
    several = tuple(str(path) if each == "-" else each for each in value) if isinstance(value, tuple) else None
    changed: Command = replace(command, **{named[0]: kept if several is None else several})
    return changed


def _files(value: Any) -> tuple[str, ...]:
    """The files that an argument names."""
    return value if isinstance(value, tuple) else (str(value),)


def _copied_input() -> Path:
    from pathlib import Path  # noqa: PLC0415
    from shutil import copyfileobj  # noqa: PLC0415
    from tempfile import TemporaryDirectory  # noqa: PLC0415

    folder = TemporaryDirectory(prefix="tokenyard-")
    _folders.append(folder)
    start = sys.stdin.buffer.read(_PROBED)
    is_trace = b'"event"' in start.split(b"\n", 1)[0]
    path = Path(folder.name) / ("stdin.steps.jsonl" if is_trace else "stdin")
    with path.open("wb") as file:
        file.write(start)
        copyfileobj(sys.stdin.buffer, file)
    return path


# ---------------------------------------------------------------------------------------------------------------------

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
