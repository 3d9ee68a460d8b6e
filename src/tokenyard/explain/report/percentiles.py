"""Numbers gathered one by one, and their mean and percentiles."""

from __future__ import annotations

from array import array

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["LatencyFigures", "Series", "StepFigures", "WeightedSeries"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_PERCENTS = (50, 90, 99, 95, 100)
"""Of latencies, in the order of :class:`LatencyFigures`."""


class LatencyFigures(msgspec.Struct, frozen=True):
    """Milliseconds; None if nothing was measured."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p95: float | None = None
    max: float | None = None


class StepFigures(msgspec.Struct, frozen=True):
    """A quantity per step; None if nothing was measured."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None


class Series:
    """Eight bytes per number. Percentiles interpolate linearly between neighbours."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values = array("d")

    @classmethod
    def of(cls, values: FloatArray) -> Series:
        """The numbers of an array, shape ``[n]``."""
        series = cls()
        series._values.frombytes(values.tobytes())
        return series

    def add(self, value: float, times: int = 1) -> None:
        """One more number, or the same one several times."""
        if times == 1:
            self._values.append(value)
        else:
            self._values.extend([value] * times)

    def join(self, other: Series) -> None:
        """The numbers of another series, too."""
        self._values.extend(other._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def sum(self) -> float:
        return float(np.sum(np.asarray(self._values)))

    @property
    def max(self) -> float | None:
        return max(self._values, default=None)

    def latency(self) -> LatencyFigures:
        """In milliseconds, of numbers in seconds."""
        return _milliseconds(self._summary(*_PERCENTS))

    def spread(self) -> StepFigures:
        """In the numbers' own unit."""
        return StepFigures(*self._summary(50, 95))

    def _summary(self, *percents: float) -> list[float | None]:
        """Mean, then the percentiles."""
        if not self._values:
            return [None] * (1 + len(percents))
        values = np.asarray(self._values)
        return [float(values.mean()), *(float(value) for value in np.percentile(values, percents))]


class WeightedSeries:
    """Numbers that stand for several alike each; the same figures as of a :class:`Series` with every one of them."""

    __slots__ = ("_values", "_weights")

    def __init__(self) -> None:
        self._values: list[FloatArray] = []
        self._weights: list[IntArray] = []

    def add(self, values: FloatArray, weights: IntArray) -> None:
        """Numbers, each so many times; both of shape ``[n]``."""
        kept = weights > 0
        self._values.append(values[kept])
        self._weights.append(weights[kept])

    def join(self, other: WeightedSeries) -> None:
        """The numbers of another series, too."""
        self._values += other._values
        self._weights += other._weights

    def latency(self) -> LatencyFigures:
        """In milliseconds, of numbers in seconds."""
        values = np.concatenate([*self._values, np.empty(0)])
        weights = np.concatenate([*self._weights, np.empty(0, np.int64)])
        if not len(values):
            return LatencyFigures()
        order = np.argsort(values, kind="stable")
        values, ends = values[order], np.cumsum(weights[order])
        count = int(ends[-1])
        mean = float(values @ weights[order]) / count
        return _milliseconds([mean, *(_between(values, ends, percent * (count - 1) / 100) for percent in _PERCENTS)])


def _between(values: FloatArray, ends: IntArray, position: float) -> float:
    """The number at a position of the whole list, between its neighbours where it is none."""
    low = int(position)
    first, second = np.searchsorted(ends, [low, min(low + 1, int(ends[-1]) - 1)], side="right")
    return float(values[first] + (position - low) * (values[second] - values[first]))


def _milliseconds(seconds: list[float | None]) -> LatencyFigures:
    return LatencyFigures(*(None if value is None else value * 1e3 for value in seconds))
