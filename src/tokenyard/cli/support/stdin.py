"""`-` on the command line: what comes by standard input, kept in a file, because it is looked at more than once."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from tokenyard.errors import ConfigError

__all__ = ["with_stdin"]

Command = TypeVar("Command", bound=Any)
_NAMES = ("workload", "trace", "a", "b")
"""Arguments that name a file to read."""
_PROBED = 1 << 16
_folders: list[TemporaryDirectory[str]] = []
"""Each is removed when the process ends."""


def with_stdin(command: Command) -> Command:
    """``command`` with a file in the place of `-`; ConfigError if it stands there twice, or nothing is piped in."""
    fields = {field.name for field in dataclasses.fields(command)}
    named = [name for name in _NAMES if name in fields and str(getattr(command, name)) == "-"]
    if not named:
        return command
    if len(named) > 1:
        raise ConfigError(named[1], "-", "standard input can be read once: name a file here")
    if sys.stdin is None or sys.stdin.isatty():
        raise ConfigError(named[0], "-", "nothing is piped in: name a file")
    path = _kept()
    kind = type(getattr(command, named[0]))
    changed: Command = dataclasses.replace(command, **{named[0]: path if issubclass(kind, Path) else str(path)})
    return changed


def _kept() -> Path:
    folder = TemporaryDirectory(prefix="tokenyard-")
    _folders.append(folder)
    start = sys.stdin.buffer.read(_PROBED)
    is_trace = b'"event"' in start.split(b"\n", 1)[0]
    path = Path(folder.name) / ("stdin.steps.jsonl" if is_trace else "stdin")
    with path.open("wb") as file:
        file.write(start)
        copyfileobj(sys.stdin.buffer, file)
    return path
