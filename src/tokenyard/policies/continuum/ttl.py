"""Time-to-live rules: how long the blocks of a finished turn are worth keeping.

    fixed          the released code's: one threshold that is also the time to live
    cost-benefit   the paper's: argmax over tau of P(duration <= tau) (T eta + PrefillReload(n)) - tau
    memory share   ours: argmax over tau of P(duration <= tau) PrefillReload(n) - E[min(duration, tau)] n / rest

The paper takes a second of holding blocks for a second lost, however few they are, and a queueing delay saved for this
turn for one saved altogether. Ours weighs what everybody loses: recomputing stops the whole engine for a while, holding
blocks stops the share of it that they could have served: n tokens of the ``rest`` that no pin holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import NamedTuple, Protocol

import numpy as np

from tokenyard.errors import ConfigError
from tokenyard.policies.continuum.estimator import FloatArray, ToolCallEstimator
from tokenyard.policies.continuum.history import Memoryfulness, QueueingDelay

__all__ = [
    "CostBenefit",
    "FinishedTurn",
    "FixedThreshold",
    "MemoryShare",
    "Observations",
    "PrefillReload",
    "TtlRule",
    "best_shared_ttl",
    "best_ttl",
    "cold_ttl",
]

_COLD_MEAN = 1.0
"""Seconds: below K samples, durations are taken as exponential with this mean."""

_EXPONENTIAL = -_COLD_MEAN * np.log1p(-(np.arange(100) + 0.5) / 100)
"""The same as 100 samples, ascending."""


@dataclass(slots=True)
class Observations:
    """What is known when a turn ends."""

    tools: ToolCallEstimator = field(default_factory=ToolCallEstimator)
    delay: QueueingDelay = field(default_factory=QueueingDelay)
    memory: Memoryfulness = field(default_factory=Memoryfulness)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillReload:
    """Seconds to compute a prefix of ``n`` tokens: ``base + linear n + quadratic n^2``.

    The default is an 8-billion-parameter model on an H100: 2 x 8e9 FLOP per token, and 5.2e5 FLOP per (query, key)
    pair, at about 80 and 60 % of 990 TFLOPS. Fit your own from a prefill benchmark.
    """

    base: float = 2e-3
    linear: float = 2e-5
    quadratic: float = 4.5e-10

    def __post_init__(self) -> None:
        for name in ("base", "linear", "quadratic"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ConfigError(name, value, "give a number, not negative")

    def seconds(self, num_tokens: int) -> float:
        """For a prefix of so many tokens."""
        return self.base + (self.linear + self.quadratic * num_tokens) * num_tokens


def best_ttl(benefit: float, durations: FloatArray) -> float:
    """``argmax P(tau) benefit - tau`` over 0 and the ``durations`` (ascending, in seconds); the least of equals."""
    reached = np.arange(1, len(durations) + 1) / len(durations)
    gain = reached * benefit - durations
    best = int(gain.argmax())
    return float(durations[best]) if gain[best] > 0 else 0.0


def best_shared_ttl(benefit: float, share: float, durations: FloatArray) -> float:
    """``argmax P(tau) benefit - share E[min(duration, tau)]`` over 0 and the ``durations``; the least of equals."""
    count = len(durations)
    reached = np.arange(1, count + 1)
    held = (durations.cumsum() + (count - reached) * durations) / count
    gain = reached / count * benefit - share * held
    best = int(gain.argmax())
    return float(durations[best]) if gain[best] > 0 else 0.0


def cold_ttl(benefit: float, mean: float = _COLD_MEAN) -> float:
    """The same for exponential durations: ``mean ln(benefit / mean)``, or 0."""
    return mean * log(benefit / mean) if benefit > mean else 0.0


class FinishedTurn(NamedTuple):
    """A turn that has ended."""

    tool: str | None
    """Tool that it called. None: it called none, a person is next, about whom nothing is known."""
    reload: float
    """Seconds to compute its prefix again."""
    share: float
    """Its tokens over those that would be left to others: what the KV cache holds without them and all pins."""


class TtlRule(Protocol):
    """Says how long to keep a turn's blocks."""

    def ttl(self, known: Observations, turn: FinishedTurn) -> float:
        """Seconds from the turn's end; 0: do not keep them."""


class FixedThreshold:
    """Keep for ``threshold`` seconds unless the tool takes longer on average, or no tool is called."""

    def __init__(self, threshold: float = 2.0) -> None:
        self._threshold = threshold

    def ttl(self, known: Observations, turn: FinishedTurn) -> float:
        quick = turn.tool is not None and known.tools.mean(turn.tool) <= self._threshold
        return self._threshold if quick else 0.0


class CostBenefit:
    """The paper's rule."""

    def ttl(self, known: Observations, turn: FinishedTurn) -> float:
        if turn.tool is None:
            return 0.0
        durations = known.tools.durations(turn.tool)
        if durations is None:
            return cold_ttl(known.delay.mean + turn.reload)
        return best_ttl(known.delay.mean * known.memory.value + turn.reload, durations)


class MemoryShare:
    """Weighs the engine's time to compute the prefix again against the share of memory that stands idle meanwhile."""

    def ttl(self, known: Observations, turn: FinishedTurn) -> float:
        if turn.tool is None:
            return 0.0
        durations = known.tools.durations(turn.tool)
        return best_shared_ttl(turn.reload, turn.share, _EXPONENTIAL if durations is None else durations)
