"""Questions to NumPy columns that are asked in every step, in the form that costs least.

Most columns here have a few entries, where NumPy's own functions cost what they cost before the first entry: a sum
0.7 us, ``any`` 0.7 us, ``x + 1`` twice as much as ``x + ONE`` because the number becomes an array first, ``x += y``
twice as much as ``x + y``, and an assignment twice as much if it has to convert.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "ONE",
    "Int32Array",
    "IntArray",
    "all_ones",
    "anywhere",
    "as_whole_numbers",
    "constant",
    "counting",
    "same",
    "total",
]

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]

_FEW = 64
"""Entries up to which Python adds faster than NumPy."""

_sum = np.add.reduce


def constant(value: int) -> IntArray:
    """A number as an array without dimensions, made once and used in every step; read-only."""
    array = np.array(value, np.int64)
    array.flags.writeable = False
    return array


ONE = constant(1)


_counting = np.arange(1024)
_counting.flags.writeable = False


def counting(n: int) -> IntArray:
    """0, 1, ... ``n - 1``, read-only: a part of one array that is kept."""
    global _counting  # noqa: PLW0603 - grows when somebody needs more
    if n > len(_counting):
        _counting = np.arange(2 * n)
        _counting.flags.writeable = False
    return _counting[:n]


def as_whole_numbers(column: npt.NDArray[np.integer[Any]]) -> IntArray:
    """The same numbers as int64, of which the questions below read the bytes; a number beyond that becomes negative."""
    return column.astype(np.int64, copy=False)


def anywhere(mask: npt.NDArray[np.bool_]) -> bool:
    """Whether any entry is true."""
    return 1 in mask.tobytes()


_ones = np.ones(1024, np.int64).tobytes()


def all_ones(column: IntArray) -> bool:
    """Whether every entry is 1, as where everybody decodes."""
    global _ones  # noqa: PLW0603 - as for counting
    told = column.tobytes()
    if len(told) > len(_ones):
        _ones = np.ones(2 * len(column), np.int64).tobytes()
    return told == _ones[: len(told)]


def same(one: IntArray, other: IntArray) -> bool:
    """Whether both have the same entries; neither is a view with gaps."""
    return one.tobytes() == other.tobytes()


def total(column: IntArray) -> int:
    """The sum of the entries."""
    if all_ones(column):
        return len(column)
    return sum(column.tolist()) if len(column) <= _FEW else int(_sum(column))
