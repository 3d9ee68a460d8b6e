"""Rows of whole numbers: C memory where this is compiled, arrays of the standard library where it is interpreted."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, TypeAlias

__all__ = ["NEVER", "NO_TOKEN", "Int32s", "Int64s", "Numbers", "Row", "TokenRow", "int32s", "int64s"]

if TYPE_CHECKING:
    Numbers: TypeAlias = array[int]
    Int32s: TypeAlias = array[int]
    Int64s: TypeAlias = array[int]
else:
    Numbers = Int32s = Int64s = array
# Int32s are numbers below 2**31, of fixed length; Int64s have 64 bits. Compiled, these two look into the memory of an
# array, of any kind; Numbers are the array itself.

NEVER = 9223372036854775807
"""A position that no request reaches."""
NO_TOKEN = -1
"""Stands where there is no token; no token id is negative."""


def int32s(value: int, count: int) -> Int32s:
    """Return ``count`` times ``value``."""
    return array("i", [value]) * count


def int64s(value: int, count: int) -> Int64s:
    """Return ``count`` times ``value``."""
    return array("q", [value]) * count


class Row:
    """A row of numbers that grows at its end: ``data[:size]``."""

    data: Int64s
    memory: Numbers
    """The array that ``data`` looks into; an empty row has none of its own."""
    room: int
    size: int

    def __init__(self, room: int = 0) -> None:
        """Make an empty row with room for so many numbers before it has to grow."""
        self.room = room
        self.size = 0
        if room:
            self.memory = _ZERO * room
            self.data = self.memory
        else:  # most of what a row costs is its view of memory
            empty: Row = _EMPTY
            self.memory = empty.memory
            self.data = empty.data

    def append(self, number: int) -> None:
        """Put a number behind the last one."""
        if self.size == self.room:
            self.make_room(self.size + 1)
        self.data[self.size] = number
        self.size += 1

    def make_room(self, size: int) -> None:
        """Have room for so many numbers at least."""
        if size > self.room:
            room = max(2 * self.room, size, 8)
            self.memory = self.memory[: self.size] + _ZERO * (room - self.size)
            self.data = self.memory
            self.room = room

    def extend(self, numbers: list[int]) -> None:
        """Put several numbers behind the last one."""
        self.make_room(self.size + len(numbers))
        for number in numbers:
            self.data[self.size] = number
            self.size += 1

    def extend_from(self, other: Row, start: int) -> None:
        """Put the numbers of another row behind the last one, from place ``start`` on."""
        count = other.size - start
        self.make_room(self.size + count)
        for i in range(count):
            self.data[self.size + i] = other.data[start + i]
        self.size += count

    def __len__(self) -> int:
        return self.size

    def as_array(self, start: int = 0) -> Numbers:
        """Return a copy from place ``start`` on, as an array."""
        return self.memory[start : self.size]

    def as_list(self, start: int = 0) -> list[int]:
        """Return a copy from place ``start`` on, as a list."""
        return list(self.memory[start : self.size])


_ZERO = array("q", [0])
_EMPTY = Row(1)


class TokenRow:
    """Token ids that grow at their end: ``data[:size]``."""

    data: Int32s
    memory: Numbers
    """The array that ``data`` looks into."""
    room: int
    size: int

    def __init__(self) -> None:
        self.room = 16
        self.memory = array("i", bytes(4 * self.room))
        self.data = self.memory
        self.size = 0

    def append(self, token: int) -> None:
        """Put a token behind the last one."""
        if self.size == self.room:
            self.memory = self.memory + array("i", bytes(4 * self.room))  # cold
            self.data = self.memory  # cold
            self.room *= 2
        self.data[self.size] = token
        self.size += 1

    def part(self, start: int, stop: int) -> Numbers:
        """Return a copy of the tokens ``start..stop-1``, as an array of int32."""
        return self.memory[start : min(stop, self.size)]
