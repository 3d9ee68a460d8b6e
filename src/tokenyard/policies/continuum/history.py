"""Two quantities learnt from the past: how long evicted turns queue, and how much a turn's number tells."""

from __future__ import annotations

from collections import deque
from math import sqrt

__all__ = ["Memoryfulness", "QueueingDelay"]


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
