"""Texts that end an answer, wherever in its tokens they begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["StopStrings", "Stopped"]


class Stopped(NamedTuple):
    """A stop string was found."""

    text: str
    """The answer, cut where the stop string begins, or where it ends if it belongs to the answer."""
    stop: str
    """The string."""


class StopStrings:
    """Those of one request; asked once for every piece of text."""

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        """``include``: the string is part of the answer."""
        self._stops = tuple(stops)
        self._include = include
        self._longest = max(map(len, self._stops), default=0)

    def held_back(self) -> int:
        """Characters at the end of an unfinished answer that may be the beginning of a stop string."""
        return 0 if self._include else max(0, self._longest - 1)

    def find(self, text: str, num_new: int) -> Stopped | None:
        """The stop string that begins first in ``text``, if its last ``num_new`` characters complete any.

        Of those that begin at the same place, the one named first.
        """
        start = max(0, len(text) - num_new - self._longest + 1)
        found = [(at, order) for order, stop in enumerate(self._stops) if (at := text.find(stop, start)) >= 0]
        if not found:
            return None
        at, order = min(found)
        stop = self._stops[order]
        return Stopped(text[: at + len(stop)] if self._include else text[:at], stop)
