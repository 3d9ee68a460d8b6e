"""Rows of numbers."""

from __future__ import annotations

from array import array
from typing import TypeAlias

Int64s: TypeAlias = "array[int]"


class Row:
    """A row of numbers that grows at its end: ``data[:size]``."""

    data: Int64s
    memory: array[int]
    size: int

    def __init__(self) -> None:
        self.memory = array("q", bytes(32))
        self.data = self.memory
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def append(self, number: int) -> None:
        """Put a number behind the last one."""
        if self.size == len(self.data):
            self.grow()
        self.data[self.size] = number
        self.size += 1

    def grow(self) -> None:
        """Double the room."""
        self.memory = self.memory + array("q", bytes(8 * self.size))
        self.data = self.memory

    def at(self, place: int) -> int:
        """Return a number; the last one for -1, as in a list."""
        return self.data[place]


def row_of(numbers: list[int]) -> Row:
    """Make a row of these numbers."""
    row = Row()
    for number in numbers:
        row.append(number)
    return row
