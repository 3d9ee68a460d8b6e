"""Standard input in the place of a file; standard output and error when they are not read any more."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from tokenyard.errors import ConfigError
from tokenyard.redaction import plain_lines

if TYPE_CHECKING:
    from pathlib import Path
    from tempfile import TemporaryDirectory

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
