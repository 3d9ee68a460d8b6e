"""Random numbers that all generators use, and the checks of their options."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tokenyard.config import require_int
from tokenyard.errors import ConfigError

__all__ = [
    "Lognormal",
    "draw",
    "draw_count",
    "poisson_arrivals",
    "require_counts",
    "require_positive",
    "require_shapes",
]

Lognormal = tuple[float, float]
"""(median, sigma of the logarithm)."""


def draw(rng: np.random.Generator, shape: Lognormal) -> float:
    """One value."""
    median, sigma = shape
    return float(median * math.exp(sigma * rng.standard_normal()))


def draw_count(rng: np.random.Generator, shape: Lognormal, low: int, high: int) -> int:
    """One whole number within ``low..high``."""
    return int(min(max(round(draw(rng, shape)), low), high))


def poisson_arrivals(rng: np.random.Generator, count: int, rate: float) -> npt.NDArray[np.float64]:
    """``count`` arrival times in seconds at ``rate`` per second; the first is 0."""
    gaps = rng.exponential(1.0 / rate, count)
    gaps[0] = 0.0
    return np.cumsum(gaps)


def require_counts(options: object, **lows: int) -> None:
    """Raise ConfigError unless each named option is a whole number from its low on."""
    for field, low in lows.items():
        require_int(field, getattr(options, field), low)


def require_positive(options: object, *fields: str) -> None:
    """Raise ConfigError unless each named option is a finite number above 0."""
    for field in fields:
        value = getattr(options, field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ConfigError(field, value, "give a number above 0")


def require_shapes(options: object, *fields: str) -> None:
    """Raise ConfigError unless each named option is (median > 0, sigma >= 0)."""
    for field in fields:
        value = getattr(options, field)
        numbers = isinstance(value, tuple) and all(isinstance(x, int | float) for x in value)
        if not numbers or len(value) != 2 or not 0 < value[0] < math.inf or not 0 <= value[1] < 10:
            raise ConfigError(field, value, "give (median above 0, sigma of the logarithm from 0)")
