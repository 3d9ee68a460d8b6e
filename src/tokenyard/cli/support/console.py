"""Where things are printed: results on stdout, progress and warnings on stderr."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.console import Console

from tokenyard.cli.support.streams import say

__all__ = ["errors", "print_json", "results", "warn"]


class _Results(Console):
    """A console that leaves it to ``main`` what happens when the reader has gone away."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise BrokenPipeError


def results() -> Console:
    """Standard output; ids and paths are printed as they are, without guessing at numbers to colour."""
    return _Results(highlight=False)


def errors() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False)


def warn(message: str) -> None:
    """One line on standard error."""
    say(f"tokenyard: warning: {message}")


def print_json(value: Any) -> None:
    """One object, readable, on standard output."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
