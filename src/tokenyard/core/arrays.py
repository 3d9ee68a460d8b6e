"""The types of NumPy arrays that hosts and the core hand to each other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["BoolArray", "Int32Array", "IntArray", "all_ones", "any_true", "are_within", "as_whole_numbers", "total"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


def as_whole_numbers(column: npt.NDArray[np.integer]) -> IntArray:
    """Return the numbers as int64, contiguous; mostly the array itself."""
    return np.ascontiguousarray(column, np.int64)


def any_true(mask: npt.NDArray[np.bool_]) -> bool:
    """Whether one entry is true."""
    return bool(np.count_nonzero(mask))


def all_ones(column: IntArray) -> bool:
    """Whether every entry is 1."""
    return bool((column == 1).all())


def are_within(numbers: IntArray, least: int, most: int) -> bool:
    """Whether all are from ``least`` to ``most``; true where there are none."""
    return not numbers.size or (int(numbers.min()) >= least and int(numbers.max()) <= most)


def total(column: IntArray) -> int:
    """Return the sum of the entries."""
    return int(column.sum())
