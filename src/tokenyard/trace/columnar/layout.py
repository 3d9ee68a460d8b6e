"""Layouts: how a line was written, so that it can be written again byte by byte.

A layout is the spacing of a line, its fields in their order, and for each field where its value is. A trace has a few
dozen of them, which stand in the footer of the file; a row names its own by number.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["EXTRA", "MAX_LAYOUTS", "NULL", "VALUE", "WHOLE", "Layout", "LayoutTable", "Style", "encoder_of", "style_of"]

MAX_LAYOUTS = 2_000
"""Rows of any further layout keep their bytes as they are."""

Style = str
"""``compact`` without spaces, as we and orjson write; ``spaced`` as Python's ``json.dumps`` writes."""

VALUE, NULL, WHOLE, EXTRA = "v", "n", "w", "x"
"""Where a field's value is: in its column; nowhere, it is null; in its column of fractions, as a whole number; in the
column of what has no column."""


class Layout(msgspec.Struct, frozen=True):
    """One way in which lines are written."""

    style: Style
    fields: tuple[str, ...]
    places: str
    """One letter per field."""


class LayoutTable:
    """Numbers layouts in the order in which they come."""

    def __init__(self) -> None:
        self.layouts: list[Layout] = []
        self._numbers: dict[Layout, int] = {}

    def number(self, layout: Layout) -> int | None:
        """The number of a layout; None if there are too many."""
        number = self._numbers.get(layout)
        if number is None and len(self.layouts) < MAX_LAYOUTS:
            number = self._numbers[layout] = len(self.layouts)
            self.layouts.append(layout)
        return number


def _compact(record: dict[str, Any]) -> bytes:
    return msgspec.json.encode(record)


def _spaced(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


_ENCODERS: dict[Style, Callable[[dict[str, Any]], bytes]] = {"compact": _compact, "spaced": _spaced}


def encoder_of(style: Style) -> Callable[[dict[str, Any]], bytes]:
    """How lines of a style are written. Raises KeyError for a style that we do not know."""
    return _ENCODERS[style]


def style_of(line: bytes, record: dict[str, Any], likely: Style) -> Style | None:
    """The style that gives ``line`` back from ``record``, ``likely`` tried first; None if none does."""
    for style in sorted(_ENCODERS, key=lambda each: each != likely):
        if _ENCODERS[style](record) == line:
            return style
    return None
