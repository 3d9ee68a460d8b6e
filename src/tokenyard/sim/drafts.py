"""Speculative decoding in a replay: how many drafts the model accepts, by a rate per position and by dice.

The dice of a request are thrown per position of its stream, with a seed: the same run gives the same acceptances,
however requests are scheduled. What is said does not depend on them, only how soon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenyard.config import SpeculativeConfig
from tokenyard.errors import ConfigError

__all__ = ["DraftAcceptance", "SimulatedSpeculation"]

Int64s = npt.NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSpeculation:
    """Speculative decoding as a replay needs it."""

    config: SpeculativeConfig
    acceptance: tuple[float, ...] = (0.7,)
    """Probability that the draft at a position is right if those before it are; the last one counts for the rest."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.acceptance:
            raise ConfigError("acceptance", self.acceptance, "give at least one probability")
        for rate in self.acceptance:
            if not 0 <= rate <= 1:
                raise ConfigError("acceptance", rate, "give probabilities from 0 to 1")

    @property
    def rates(self) -> npt.NDArray[np.float64]:
        """One per position."""
        count = self.config.num_speculative_tokens
        return np.array([*self.acceptance, *[self.acceptance[-1]] * count][:count])


class DraftAcceptance:
    """Says how many drafts of each request the model accepts, for all requests of a step at once."""

    def __init__(self, speculation: SimulatedSpeculation) -> None:
        self._rates = speculation.rates
        self._shift = np.array([speculation.seed & 0xFFFF_FFFF_FFFF_FFFF], np.uint64) * _GOLDEN

    def accepted(self, seeds: Sequence[int], positions: Int64s, offered: Int64s) -> Int64s:
        """Drafts accepted per request: the right ones before the first wrong one.

        ``seeds[i]`` is the request's stream, ``positions[i]`` where its first draft stands, ``offered[i]`` how many.
        """
        base = np.array(seeds, np.int64).astype(np.uint64) + self._shift
        ahead = np.arange(len(self._rates))
        cells = (positions[:, None] + ahead).astype(np.uint64) * _GOLDEN + base[:, None]
        right = _uniform(cells) < self._rates
        run: Int64s = np.logical_and.accumulate(right, axis=1).sum(axis=1)
        return np.minimum(run, offered)


def _uniform(cells: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Numbers from 0 to 1, one per cell (the output function of splitmix64)."""
    mixed = (cells ^ (cells >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
