"""Virtual time."""

from __future__ import annotations

__all__ = ["VirtualClock"]


class VirtualClock:
    """Seconds that pass only when somebody says so; never backwards."""

    __slots__ = ("_now",)

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds since the start of the workload."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        assert seconds >= 0, seconds
        self._now += seconds

    def advance_to(self, moment: float) -> None:
        """Wait until ``moment``; no time passes if it is over."""
        self._now = max(self._now, moment)
