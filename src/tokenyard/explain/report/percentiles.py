"""Numbers gathered one by one, and their mean and percentiles."""

from __future__ import annotations

from array import array

import msgspec
import numpy as np

__all__ = ["LatencyFigures", "Series", "StepFigures"]


class LatencyFigures(msgspec.Struct, frozen=True):
    """Milliseconds; None if nothing was measured."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


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
        return LatencyFigures(*(None if value is None else value * 1e3 for value in self._summary(50, 90, 99)))

    def spread(self) -> StepFigures:
        """In the numbers' own unit."""
        return StepFigures(*self._summary(50, 95))

    def _summary(self, *percents: int) -> list[float | None]:
        """Mean, then the percentiles."""
        if not self._values:
            return [None] * (1 + len(percents))
        values = np.asarray(self._values)
        return [float(values.mean()), *(float(value) for value in np.percentile(values, percents))]
