"""SplitMix64: words that look drawn at random and depend on their seeds alone (Steele, Lea and Flood 2014).

seed + GOLDEN * position  ->  mixed(...)  ->  shares(...)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words64 = npt.NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""The distance between neighbouring states of the generator."""


def mixed(states: Words64) -> Words64:
    """The generator's output for each state, in an array of its own."""
    words = (states ^ (states >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def shares(words: Words64) -> npt.NDArray[np.float64]:
    """Numbers from 0 up to, and without, 1: the 53 bits of each word that a float can hold."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
