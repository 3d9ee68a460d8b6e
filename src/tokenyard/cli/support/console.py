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
    sys.stdout.write(_STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
