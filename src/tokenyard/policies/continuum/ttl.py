"""Time-to-live rules, and what they learn from: tool calls, evictions, histories."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from math import log, sqrt
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.arguments import is_number
from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass

# ---------------------------------------------------------------------------------------------------------------------
# Quantities learnt from the past: how long evicted turns queue, what a tier gives back of them, and how much a turn's
# number tells.


class QueueingDelay:
    """Sliding mean of the seconds that follow-up turns waited whose blocks had not been kept (the paper's T)."""

    __slots__ = ("_seconds",)

    def __init__(self, window: int = 100) -> None:
        self._seconds: deque[float] = deque(maxlen=window)

    def add(self, seconds: float) -> None:
        """One such turn was admitted after so long."""
        self._seconds.append(seconds)

    @property
    def mean(self) -> float:
        """0 before the first."""
        return sum(self._seconds) / len(self._seconds) if self._seconds else 0.0


class TierRecall:
    """Share of what a turn had lost from the KV cache that a tier below it brought back; sliding, over turns."""

    __slots__ = ("_turns",)

    def __init__(self, window: int = 100) -> None:
        self._turns: deque[tuple[int, int]] = deque(maxlen=window)

    def add(self, loaded: int, lost: int) -> None:
        """A follow-up was admitted: so many tokens of the turn before it were lost, and so many of these loaded."""
        if lost > 0:
            self._turns.append((min(loaded, lost), lost))

    @property
    def share(self) -> float:
        """From 0 to 1; 1 before the first."""
        lost = sum(lost for _, lost in self._turns)
        return sum(loaded for loaded, _ in self._turns) / lost if lost else 1.0


class Memoryfulness:
    """``eta = -corr(k, N - k)`` over the turns ``k = 1..N`` of finished programs, within 0..1.

    1 where all programs have the same number of turns: each turn brings the end nearer, so a delay saved is a delay
    saved for good. 0 where the number of turns to come does not depend on the turns made.
    """

    __slots__ = ("_count", "_k", "_kk", "_kr", "_r", "_rr")

    def __init__(self) -> None:
        self._count = self._k = self._r = self._kk = self._rr = self._kr = 0

    def program_ended(self, turns: int) -> None:
        """A program is over after so many turns."""
        n = turns
        pairs = n * (n + 1) // 2
        squares = n * (n + 1) * (2 * n + 1) // 6
        self._count += n
        self._k += pairs
        self._r += pairs - n
        self._kk += squares
        self._rr += squares - n * n
        self._kr += n * pairs - squares

    @property
    def value(self) -> float:
        """eta; 1 where nothing varies."""
        n = self._count
        spread_k = n * self._kk - self._k**2
        spread_r = n * self._rr - self._r**2
        if spread_k <= 0 or spread_r <= 0:
            return 1.0
        correlation = (n * self._kr - self._k * self._r) / sqrt(spread_k * spread_r)
        return min(max(-correlation, 0.0), 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# The estimator: how long tool calls take, by tool, learnt across all jobs.
#
# A call lasts from the end of the turn that makes it to the arrival of the job's next turn.

FloatArray = npt.NDArray[np.float64]

COLD_START_SAMPLES = 100
"""Samples below which a distribution is not trusted (the paper's K)."""


class _Durations:
    """The latest ``window`` durations in seconds."""

    __slots__ = ("_sorted", "values")

    def __init__(self, window: int) -> None:
        self.values: deque[float] = deque(maxlen=window)
        self._sorted: FloatArray | None = None

    def add(self, seconds: float) -> None:
        self.values.append(seconds)
        self._sorted = None

    @property
    def ascending(self) -> FloatArray:
        if self._sorted is None:
            self._sorted = np.sort(np.fromiter(self.values, np.float64, len(self.values)))
        return self._sorted


class ToolCallEstimator:
    """Durations of tool calls; ``window`` bounds what is kept per tool and over all tools."""

    def __init__(self, *, window: int = 1000, cold_start: int = COLD_START_SAMPLES) -> None:
        self._window = window
        self._cold_start = cold_start
        self._all = _Durations(window)
        self._tools: dict[str, _Durations] = {}

    def observe(self, tool: str, seconds: float) -> None:
        """A call of ``tool`` took so long."""
        if tool not in self._tools:
            self._tools[tool] = _Durations(self._window)
        self._tools[tool].add(seconds)
        self._all.add(seconds)

    def mean(self, tool: str) -> float:
        """Mean duration in seconds; 0 for a tool that was never seen (as in the released code)."""
        seen = self._tools.get(tool)
        return sum(seen.values) / len(seen.values) if seen else 0.0

    def durations(self, tool: str) -> FloatArray | None:
        """Observed durations in seconds, ascending: the tool's own, or all tools' while it has too few samples.

        None while there are too few overall.
        """
        own = self._tools.get(tool)
        if own is not None and len(own.values) >= self._cold_start:
            return own.ascending
        return self._all.ascending if len(self._all.values) >= self._cold_start else None


# ---------------------------------------------------------------------------------------------------------------------
# Time-to-live rules: how long the blocks of a finished turn are worth keeping.
#
#     fixed          the released code's: one threshold that is also the time to live
#     cost-benefit   the paper's: argmax over tau of P(duration <= tau) (T eta + PrefillReload(n)) - tau
#     memory share   ours: argmax over tau of P(duration <= tau) PrefillReload(n) - E[min(duration, tau)] n / rest
#
# The paper takes a second of holding blocks for a second lost, however few they are, and a queueing delay saved for
# this turn for one saved altogether. Ours weighs what all requests lose: recomputing stops the whole engine for a
# while, holding blocks stops the share of it that they could have served: n tokens of the ``rest`` that no pin holds.

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
    recall: TierRecall = field(default_factory=TierRecall)


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
            if not is_number(value):
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
    """What :func:`best_ttl` tends to for exponential durations: ``mean ln(benefit / mean)``, or 0."""
    return mean * log(benefit / mean) if benefit > mean else 0.0


class FinishedTurn(msgspec.Struct, frozen=True):
    """A turn that has ended."""

    tool: str | None
    """Tool that it called. None: it called none, as is known."""
    reload: float
    """Seconds to compute its prefix again, or to load what of it a tier is likely to hold, if that is quicker."""
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
