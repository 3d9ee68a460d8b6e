"""Answers as text: a console that prints foreign text as it is, less what would steer a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from io import StringIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tokenyard.redaction import plain_lines

_WIDTH = 110
_PADDING = re.compile(r" +\n")


class PlainConsole(Console):
    """A console that prints foreign text without what would steer the terminal, whatever it stands in.

    Where it is no terminal, lines have no blanks at their ends.
    """

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        text = super()._render_buffer(buffer)
        return text if self.is_terminal else _PADDING.sub("\n", text)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The segments of anything: every printed character passes here."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=plain_lines(segment.text))


def printed(print_on: Callable[[Console], object]) -> str:
    """What ``print_on`` prints on a console of 110 columns, without colours: what ``print`` shows of an answer."""
    out = StringIO()
    print_on(PlainConsole(file=out, width=_WIDTH, highlight=False, color_system=None))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n")
