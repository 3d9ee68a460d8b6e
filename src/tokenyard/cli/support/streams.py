"""Standard output and error when nobody reads them any more."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from tokenyard.printable import plain_lines

__all__ = ["make_printable", "say", "silence"]


def make_printable() -> None:
    """A stream that was closed takes what it is given, and one that cannot write a character writes a question mark."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (open as long as the process)
        elif isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def say(message: str) -> None:
    """A line on standard error; whoever does not read it must not change how the command ends."""
    try:
        print(plain_lines(message), file=sys.stderr)
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Whoever reads our output has gone, or takes no more; the interpreter must not complain at its exit."""
    with suppress(OSError, ValueError):  # not a file of the system's, as under tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
