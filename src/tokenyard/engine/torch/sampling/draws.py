"""Random numbers that depend on a seed and a position alone: whoever shares the batch, a request draws the same.

A counter-based generator (the finaliser of SplitMix64, Steele, Lea and Flood 2014) over seed and position.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenyard.columns import IntArray

__all__ = ["uniform"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_TOP_BITS = np.uint64(11)
"""Shifted out, to leave the 53 that a float can hold."""


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    words = (words ^ (words >> _SHIFTS[0])) * _MIX[0]
    words = (words ^ (words >> _SHIFTS[1])) * _MIX[1]
    return words ^ (words >> _SHIFTS[2])


def uniform(seeds: IntArray, positions: IntArray) -> npt.NDArray[np.float64]:
    """Numbers from 0 up to, and without, 1."""
    with np.errstate(over="ignore"):
        streams = _mixed(seeds.astype(np.int64).view(np.uint64) + _GOLDEN)
        words = _mixed(streams + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
    return (words >> _TOP_BITS).astype(np.float64) / float(1 << 53)
