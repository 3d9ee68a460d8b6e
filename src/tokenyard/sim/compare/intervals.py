"""A mean over seeds with its 95 % confidence interval (Student's t)."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

import msgspec

__all__ = ["Interval", "interval"]

_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""0.975 quantiles of Student's t for 1, 2, ... degrees of freedom; beyond them the normal one is used."""


class Interval(msgspec.Struct, frozen=True):
    """``mean`` plus or minus ``half``; None where one seed cannot tell."""

    mean: float
    half: float | None = None

    def __str__(self) -> str:
        return _digits(self.mean) if self.half is None else f"{_digits(self.mean)} ± {_digits(self.half)}"


def interval(values: Sequence[float]) -> Interval:
    """Of at least one value."""
    if len(values) < 2:
        return Interval(values[0])
    quantile = _T[len(values) - 2] if len(values) - 2 < len(_T) else 1.96
    return Interval(fmean(values), quantile * stdev(values) / sqrt(len(values)))


def _digits(value: float) -> str:
    """Three significant digits, no exponent."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"
