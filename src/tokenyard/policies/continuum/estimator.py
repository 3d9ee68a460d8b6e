"""The estimator: how long tool calls take, by tool, learnt across all jobs.

A call lasts from the end of the turn that makes it to the arrival of the job's next turn.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

__all__ = ["COLD_START_SAMPLES", "FloatArray", "ToolCallEstimator"]

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
