"""Where in a large file of JSON lines the lines of a step are.

The file is read once, a mebibyte at a time, and of each such stretch only the least and the greatest step are kept: a
file of gigabytes needs a few thousand numbers, and records that are out of order are found all the same.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from tokenyard.server.web.identity import identity_of, is_other

__all__ = ["StepIndex", "step_of"]

_STRETCH = 1 << 20
_LONGEST = 64 << 20
"""A line longer than this ends the index: it is no trace."""
_STEP = re.compile(rb'"step"[ \t]*:[ \t]*(\d{1,15})')
"""Quotes within texts are escaped, so this is a key; that of an inner object only widens a stretch's bounds."""


class _Stretch(NamedTuple):
    offset: int
    length: int
    first: int
    last: int


class _WithStep(msgspec.Struct):
    step: int | None = None


_decoder = msgspec.json.Decoder(_WithStep)


def step_of(line: bytes) -> int | None:
    """The step of a line; None if it has none."""
    try:
        return _decoder.decode(line).step
    except (ValueError, RecursionError):
        return None


class StepIndex:
    """The index of one file, which may grow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stretches: list[_Stretch] = []
        self._end = 0
        self._identity = ""
        self._lock = threading.Lock()

    def bounds(self) -> tuple[int, int] | None:
        """Least and greatest step; None without any."""
        stretches = self._brought_up_to_date()
        if not stretches:
            return None
        return min(each.first for each in stretches), max(each.last for each in stretches)

    def lines(self, first: int, last: int) -> Iterator[bytes]:
        """The lines, without their line feeds, whose step lies within ``first`` and ``last``."""
        stretches = self._brought_up_to_date()
        with self.path.open("rb") as file:
            for stretch in stretches:
                if stretch.first <= last and stretch.last >= first:
                    file.seek(stretch.offset)
                    for line in file.read(stretch.length).split(b"\n"):
                        step = step_of(line)
                        if step is not None and first <= step <= last:
                            yield line

    def _brought_up_to_date(self) -> list[_Stretch]:
        with self._lock, self.path.open("rb") as file:
            before, self._identity = self._identity, identity_of(file)
            if is_other(before, self._identity) or file.seek(0, 2) < self._end:
                self._stretches, self._end = [], 0  # another run
            file.seek(self._end)
            while piece := _whole_lines(file):
                steps = [int(step) for step in _STEP.findall(piece)]
                if steps:
                    self._stretches.append(_Stretch(self._end, len(piece), min(steps), max(steps)))
                self._end += len(piece)
            return self._stretches.copy()


def _whole_lines(file: BinaryIO) -> bytes:
    """The next lines, about a mebibyte of them; nothing at the end, or if the last line is not whole yet."""
    piece = file.read(_STRETCH)
    while piece and len(piece) < _LONGEST:
        end = piece.rfind(b"\n") + 1
        if end:
            file.seek(end - len(piece), 1)
            return piece[:end]
        more = file.read(_STRETCH)
        if not more:
            break
        piece += more
    return b""
