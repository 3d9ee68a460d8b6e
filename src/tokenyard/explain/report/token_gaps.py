"""Inter-token latency: the time between two tokens of one answer, from the moments at which steps ended.

    moments of steps that sampled   t0   t1   t2   t3   t4   t5
    an answer of four tokens             first             last    its gaps: t2 - t1, t3 - t2, t4 - t3

An answer that got a token in every such step between its first and its last is known whole by those two moments and its
number of tokens. One that paused (preempted, passed over, in a pipeline) or got several tokens at once (drafts) is not:
nobody recorded when its tokens came, so it is left out, and counted by who asks.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from tokenyard.explain.report.percentiles import LatencyFigures, WeightedSeries

__all__ = ["TokenGaps"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class TokenGaps:
    """Eight bytes per step, and 24 per request."""

    def __init__(self) -> None:
        self._moments = array("d")
        """When steps ended that sampled a token."""
        self._first = array("d")
        self._last = array("d")
        self._tokens = array("q")
        self._is_known = True
        self._others = WeightedSeries()
        """Gaps of other engines."""
        self._num_others = 0

    def step_completed(self, ts: float | None, sampled: int | None) -> None:
        """A step ended."""
        if ts is None or sampled is None:
            self._is_known = False
        elif sampled:
            self._moments.append(ts)

    def request_finished(self, first_token: float, end: float, num_tokens: int) -> None:
        """A request got two tokens or more, the first and the last at these moments."""
        self._first.append(first_token)
        self._last.append(end)
        self._tokens.append(num_tokens)

    def join(self, other: TokenGaps) -> None:
        """The answers of another engine, too."""
        gaps, number = other._gaps()
        self._others.join(gaps)
        self._num_others += number

    def result(self) -> tuple[LatencyFigures, int]:
        """The figures, and of how many requests they are."""
        gaps, number = self._gaps()
        return gaps.latency(), number

    def _gaps(self) -> tuple[WeightedSeries, int]:
        series, number = WeightedSeries(), self._num_others
        series.join(self._others)
        if not self._is_known or len(self._moments) < 2 or not self._tokens:
            return series, number
        moments = np.array(self._moments)
        first, last = _nearest(moments, self._first), _nearest(moments, self._last)
        is_whole = last - first == np.array(self._tokens) - 1
        ends = np.zeros(len(moments), np.int64)  # how many answers have a gap that ends here, as differences
        np.add.at(ends, first[is_whole] + 1, 1)
        after = last[is_whole] + 1
        np.add.at(ends, after[after < len(moments)], -1)
        series.add(np.diff(moments), np.cumsum(ends)[1:])
        return series, number + int(np.count_nonzero(is_whole))


def _nearest(moments: FloatArray, wanted: array[float]) -> IntArray:
    """Index of the moment nearest to each: an engine notes a token's time a little apart from its step's end."""
    times = np.array(wanted)
    after = np.clip(np.searchsorted(moments, times), 1, len(moments) - 1)
    is_before = times - moments[after - 1] < moments[after] - times
    return np.where(is_before, after - 1, after)
