"""Standard output and error when nobody reads them any more."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

from tokenyard.printable import plain_lines

__all__ = ["say", "silence"]


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
