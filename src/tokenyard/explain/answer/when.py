# cython: auto_pickle=True
"""When things happened: amounts over time in few numbers, and the while in which most of them lay."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import numpy.typing as npt

_MOST = 4096
"""Bins of time that are kept of a name; with more, two become one."""
_WINDOWS = 240
"""Parts of a run by which its level is judged."""
_CALM = 0.04
"""Part of the highest level up to which it counts as calm."""
_CALM_WINDOWS = 3
"""Windows in a row that have to be calm for something to be over, and as a part of how long it lasted."""
_CALM_PART = 0.2
_WHOLE = 0.8
"""Part of a run from which on a span is that of nearly all of it."""

Floats = npt.NDArray[np.float64]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A while, in seconds on the trace's clock."""

    start_ts: float
    end_ts: float
    is_over: bool = True
    """False: it went on when the trace ended."""
    is_whole: bool = False
    """Nearly all of the trace."""


class TimeLog:
    """Adds up amounts by name and time. Costs a microsecond an amount, and a bounded amount of memory."""

    def __init__(self) -> None:
        self._width = 1000
        """Microseconds of a bin: a multiple of it begins each."""
        self._bins: dict[str, Counter[int]] = {}

    @property
    def names(self) -> list[str]:
        """The names that have something, most first."""
        return sorted(self._bins, key=lambda name: -self.total(name))

    def total(self, name: str) -> int:
        """All of a name."""
        return self._bins.get(name, Counter()).total()

    def add(self, name: str, start_us: int, end_us: int, number: int) -> None:
        """Add a number of requests, times the microseconds that they waited together: however it is divided into steps,
        the sums are the same.
        """
        while end_us - start_us > self._width * _MOST:
            self._widen()
        width, bins = self._width, self._bins.setdefault(name, Counter())
        first, last = start_us // width, end_us // width
        if first == last:
            bins[first] += number * (end_us - start_us)
        else:
            bins[first] += number * ((first + 1) * width - start_us)
            for at in range(first + 1, last):
                bins[at] += number * width
            bins[last] += number * (end_us - last * width)
        self._bound(name)

    def count(self, name: str, at_us: int, number: int) -> None:
        """Add a number that belongs to one moment."""
        self._bins.setdefault(name, Counter())[at_us // self._width] += number
        self._bound(name)

    def _bound(self, name: str) -> None:
        while len(self._bins[name]) > _MOST:
            self._widen()

    def _widen(self) -> None:
        self._width *= 2
        for name, bins in self._bins.items():
            wider: Counter[int] = Counter()
            for at, amount in bins.items():
                wider[at // 2] += amount
            self._bins[name] = wider

    def join(self, other: TimeLog) -> None:
        """The amounts of another engine, too, on the same clock."""
        while self._width < other._width:
            self._widen()
        for name, bins in other._bins.items():
            mine = self._bins.setdefault(name, Counter())
            for at, amount in bins.items():
                mine[at * other._width // self._width] += amount
        for name in other._bins:
            self._bound(name)

    def passed(self, names: list[str]) -> tuple[Floats, Floats]:
        """Moments in seconds, and how much of these names there was up to each; both of shape ``[n]``, rising."""
        amounts: Counter[int] = Counter()
        for name in names:
            for at, amount in self._bins.get(name, Counter()).items():
                amounts[at] += amount
        bins = sorted(amounts)
        edges = [edge for at in bins for edge in (at * self._width, (at + 1) * self._width)]
        sums = np.cumsum([part for at in bins for part in (0.0, amounts[at])])
        return np.array(edges, np.float64) / 1e6, sums

    def span(self, names: list[str], start: float, end: float) -> Span | None:
        """The while around the highest level of these names, between calm ones; None: there is nothing of them."""
        moments, sums = self.passed(names)
        if not len(sums) or end <= start or sums[-1] <= 0:
            return None
        edges = np.linspace(start, end, _WINDOWS + 1)
        level = np.diff(np.interp(edges, moments, sums))
        calm = level <= _CALM * level.max()
        peak = int(level.argmax())
        first, last = _edge(calm, peak, -1), _edge(calm, peak, 1)
        width, goes_on = edges[1] - edges[0], last >= _WINDOWS - _CALM_WINDOWS
        since = float(_reached(moments, sums, edges[first], edges[first + 1]))
        until = end if goes_on else float(edges[last + 1])
        whole = until - since >= _WHOLE * (end - start) and since - start <= _CALM_WINDOWS * width + 0.1 * (end - start)
        return Span(start_ts=since, end_ts=until, is_over=not goes_on, is_whole=bool(whole))


def _edge(calm: npt.NDArray[np.bool_], peak: int, way: int) -> int:
    """The last window that is not calm before several are, from the peak on."""
    found = at = peak
    while 0 <= at < len(calm) and abs(at - found) < max(_CALM_WINDOWS, _CALM_PART * abs(found - peak)):
        if not calm[at]:
            found = at
        at += way
    return found


def _reached(moments: Floats, sums: Floats, start: float, end: float) -> float:
    """When a twentieth of what the window has was there."""
    first, last = np.interp([start, end], moments, sums)
    return float(np.clip(np.interp(first + 0.05 * (last - first), sums, moments), start, end))
