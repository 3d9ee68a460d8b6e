"""What TPOT rests on where the acceptance of drafts is not given: what was taken, and TPOT over a range of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from tokenyard.trace.schema import TraceStart
from tokenyard.trace.start import ACCEPTANCE, deployment_of
from tokenyard.units import milliseconds

_OF_TEXT = ("ngram", "suffix")
"""Methods whose drafts are copied from the text: where nothing repeats, none is right."""
_LOW, _HIGH = 0.3, 0.9
"""Range of the acceptance of drafts that a model makes, position by position."""
_ON_TOKENS = ("tpot", "itl", "e2e")
"""Latencies that the acceptance changes; an end-to-end time by this share at most."""


class AssumedAcceptance(msgspec.Struct, frozen=True, kw_only=True):
    """The acceptance that was taken, and a range of it.

    TPOT at both ends is by tokens per step alone, ``1 + a + a^2 + ...`` over the drafts of a step: nothing was replayed
    there, and steps are taken to last as long.
    """

    rates: list[float]
    """What was taken, by position."""
    low: float
    high: float
    tpot_ms: float | None
    """The mean, as replayed."""
    tpot_low_ms: float | None
    """What it would be at ``low``: more."""
    tpot_high_ms: float | None
    tpot_low_share: float
    """TPOT at ``low``, as a share of what was replayed."""
    tpot_high_share: float

    @property
    def rate(self) -> str:
        """``0.7``."""
        return ", ".join(f"{rate:g}" for rate in dict.fromkeys(self.rates))

    def __str__(self) -> str:
        if self.tpot_ms is None:
            taken = f"TPOT times {self.tpot_low_share:.2f} at {self.low:g}, {self.tpot_high_share:.2f} at {self.high:g}"
        else:
            taken = (
                f"TPOT {milliseconds(self.tpot_ms)}, but {milliseconds(self.tpot_low_ms)} at {self.low:g} and"
                f" {milliseconds(self.tpot_high_ms)} at {self.high:g}"
            )
        return f"The acceptance of drafts is assumed ({self.rate}): {taken}, by tokens per step (--acceptance-rates)."

    def beside(self, tpot_ms: float | None) -> AssumedAcceptance:
        """The same, of a replay with this mean TPOT."""
        return assume(self.rates, len(self.rates), self.low, tpot_ms)

    def doubts(self, bound: str, value_ms: float | None, bound_ms: float) -> bool:
        """Whether a bound of this name comes out otherwise at an end of the range."""
        if value_ms is None or not _is_on_tokens(bound):
            return False
        ends = (value_ms * self.tpot_low_share, value_ms * self.tpot_high_share)
        return any((end <= bound_ms) != (value_ms <= bound_ms) for end in ends)

    def spread_of(self, bound: str) -> tuple[float, float]:
        """Return the factors between which the figure of a bound of this name lies over the range."""
        return (self.tpot_high_share, self.tpot_low_share) if _is_on_tokens(bound) else (1.0, 1.0)


def _is_on_tokens(bound: str) -> bool:
    """Whether a bound of this name, perhaps of a class, is on the time per token."""
    return bound.rpartition(":")[2].partition("_")[0] in _ON_TOKENS


def assumed_acceptance(start: TraceStart | None, num_drafts: int, tpot_ms: float | None) -> AssumedAcceptance | None:
    """What was assumed in a run with at most so many drafts a step; None if the rate was given, or measured."""
    config = (start.config if start is not None else None) or {}
    section = config.get("speculation")
    is_assumed = any(each.name == ACCEPTANCE for each in deployment_of(config).assumed)
    if not is_assumed or not num_drafts or not isinstance(section, Mapping):
        return None
    try:
        rates = [float(rate) for rate in str(section.get("acceptance_rates")).split(",")]
    except ValueError:
        return None
    low = 0.0 if any(name in method_of(section) for name in _OF_TEXT) else _LOW
    return assume(rates, num_drafts, low, tpot_ms)


def assume(rates: Sequence[float], num_drafts: int, low: float, tpot_ms: float | None) -> AssumedAcceptance:
    """These rates by position, of which the last one counts for the rest."""
    taken = [*rates, *[rates[-1]] * num_drafts][:num_drafts]
    at_low, at_high = (_tokens(taken) / _tokens([rate] * num_drafts) for rate in (low, _HIGH))
    return AssumedAcceptance(
        rates=taken,
        low=low,
        high=_HIGH,
        tpot_ms=tpot_ms,
        tpot_low_ms=None if tpot_ms is None else tpot_ms * at_low,
        tpot_high_ms=None if tpot_ms is None else tpot_ms * at_high,
        tpot_low_share=at_low,
        tpot_high_share=at_high,
    )


def _tokens(rates: Sequence[float]) -> float:
    """Tokens that a request gets in a step with drafts right at these rates."""
    return 1.0 + sum(accumulate(rates, lambda right, rate: right * rate))


def method_of(section: Mapping[str, Any]) -> str:
    """Where drafts come from, by the flags that were given."""
    text, named = section.get("speculative_config"), section.get("spec_method")
    if text or named:
        return f"{named or ''} {text or ''}".lower()
    return str(section.get("speculative_method") or "").lower()
