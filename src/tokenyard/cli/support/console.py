"""Where things are printed: results on stdout, progress and warnings on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tokenyard.cli.support.streams import say
from tokenyard.printable import plain_lines, with_valid_text

__all__ = ["PlainConsole", "errors", "print_json", "results", "warn"]

_STEERING = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What JSON leaves as it is and a terminal may obey: the other controls, and what turns a line around."""


_BEYOND_ASCII = re.compile("[^\x00-\x7f]")


class PlainConsole(Console):
    """A console that prints foreign text without what would steer the terminal, whatever it stands in."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The segments of anything: every printed character passes here."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=plain_lines(segment.text))


class _Results(PlainConsole):
    """One that leaves it to ``main`` what happens when the reader has gone away."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise BrokenPipeError


def results() -> Console:
    """Standard output; ids and paths are printed as they are, without guessing at numbers to colour."""
    return _Results(highlight=False)


def errors() -> Console:
    """Standard error."""
    return PlainConsole(stderr=True, highlight=False)


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


def _escaped(found: re.Match[str]) -> str:
    """A character as JSON escapes it, in two halves if it is far out."""
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
