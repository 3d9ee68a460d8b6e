"""How sure it is that a bound holds: its figure, and the range in which that lies."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Sureness(StrEnum):
    """How sure it is that a bound holds, or all of them."""

    HOLDS = "holds"
    """All over the range in which the figure lies in nine cases of ten."""
    PROBABLY_HOLDS = "probably_holds"
    """It holds in the replay, and not all over that range."""
    PROBABLY_MISSED = "probably_missed"
    MISSED = "missed"
    UNKNOWN = "unknown"
    """It is not known how far off the figure may be."""


_VERDICTS = {
    Sureness.HOLDS: "the bound holds all over it",
    Sureness.PROBABLY_HOLDS: "the bound may be missed",
    Sureness.PROBABLY_MISSED: "the bound may hold all the same",
    Sureness.MISSED: "the bound is missed all over it",
}


class BoundRange(msgspec.Struct, frozen=True, kw_only=True):
    """A bound, and the range in which its figure lies in nine cases of ten."""

    bound: str
    """``ttft_p90=500ms``."""
    value_ms: float
    """What the replay has."""
    low_ms: float | None
    """None, as ``high_ms``, where it is not known how far off it may be."""
    high_ms: float | None
    sureness: Sureness

    @property
    def sentence(self) -> str | None:
        """The range in words; None where it is not known, or no range."""
        if self.low_ms is None or self.high_ms is None or self.low_ms == self.high_ms:
            return None
        return (
            f"{self.bound.rpartition('=')[0]} {self.value_ms:,.0f} ms reads as {self.low_ms:,.0f} to"
            f" {self.high_ms:,.0f} ms, in nine cases of ten: {_VERDICTS[self.sureness]}"
        )


def sureness_of(value: float, low: float | None, high: float | None, bound: float) -> Sureness:
    """How sure it is, of a figure's value and its range, if that is known."""
    if low is None or high is None:
        return Sureness.UNKNOWN if value <= bound else Sureness.PROBABLY_MISSED
    if value <= bound:
        return Sureness.HOLDS if high <= bound else Sureness.PROBABLY_HOLDS
    return Sureness.MISSED if low > bound else Sureness.PROBABLY_MISSED


_LEAST_FIRST = tuple(map(Sureness, ("missed", "probably_missed", "unknown", "probably_holds", "holds")))


def least_sure(several: Iterable[Sureness]) -> Sureness | None:
    """How sure it is that all of them hold; None without any."""
    return min(several, key=_LEAST_FIRST.index, default=None)
