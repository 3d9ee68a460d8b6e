"""Interpolation in measured tables: curves over one axis, grids over several.

Inside the table values are interpolated linearly; below its smallest point they are held; above its largest one they
go on as straight as at the end (never below the last value).
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tokenyard.errors import ConfigError

__all__ = ["Curve", "Floats", "Grid", "through"]

_MOST_POINTS = 1 << 22
Floats = npt.NDArray[np.float64]


def through(points: Mapping[float, float]) -> Callable[[Floats], Floats]:
    """The curve through measured points: straight between them, beyond them as from half way on; 0 at 0."""
    xs = np.array(sorted(points), np.float64)
    ys = np.array([points[x] for x in sorted(points)], np.float64)
    half = int(np.searchsorted(xs, xs[-1] / 2))
    slope = max(0.0, float(ys[-1] - ys[half]) / max(1.0, float(xs[-1] - xs[half])))

    def function(x: Floats) -> Floats:
        inside = np.interp(x, xs, ys) + np.maximum(0.0, x - xs[-1]) * slope
        return np.where(x > 0, inside, 0.0)

    return function


class Curve:
    """A function of a whole number, tabulated up to a largest argument so that looking it up is one index."""

    __slots__ = ("_last", "_slope", "_values")

    def __init__(self, function: Callable[[Floats], Floats], largest: int) -> None:
        """Tabulate ``function`` (vectorised) at 0, 1, ... ``largest``; beyond, the last stretch goes on."""
        values = function(np.arange(largest + 1, dtype=np.float64))
        back = max(1, largest // 4)
        self._slope = max(0.0, float(values[-1] - values[-1 - back]) / back)
        self._values: list[float] = values.tolist()
        self._last = largest

    def __call__(self, x: int) -> float:
        if x <= self._last:
            return self._values[x]
        return self._values[-1] + (x - self._last) * self._slope


class Grid:
    """Values over the product of several axes; looked up without arrays, which are slow for one point."""

    __slots__ = ("_axes", "_corners", "_flat", "_strides")

    def __init__(self, axes: Sequence[Sequence[float]], values: Floats) -> None:
        """``values`` has one dimension per axis; an axis of one point is constant."""
        assert values.shape == tuple(map(len, axes))
        self._axes: list[list[float]] = []
        for i, axis in enumerate(axes):
            points = [float(x) for x in axis]
            if len(points) == 1:
                values = np.repeat(values, 2, axis=i)
                points.append(points[0] + 1.0)
            self._axes.append(points)
        self._flat: list[float] = values.ravel().tolist()
        sizes = values.shape
        self._strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        self._corners = [sum(bits) for bits in itertools.product(*((0, stride) for stride in self._strides))]

    @classmethod
    def from_points(cls, points: Mapping[tuple[float, ...], float]) -> Grid:
        """The largest complete grid in scattered points.

        Measured tables are often two lattices laid over each other. Axis values are given up, the one with most
        holes first, until no hole is left.
        """
        dims = len(next(iter(points)))
        axes = [sorted({point[i] for point in points}) for i in range(dims)]
        index = [{x: j for j, x in enumerate(axis)} for axis in axes]
        if math.prod(map(len, axes)) > _MOST_POINTS:
            sizes = " x ".join(str(len(axis)) for axis in axes)
            raise ConfigError("latency", f"{len(points)} points", f"they spread over {sizes} places: measure on a grid")
        values = np.full([len(axis) for axis in axes], np.nan)
        for point, value in points.items():
            values[tuple(index[i][x] for i, x in enumerate(point))] = value
        while np.isnan(values).any():
            axis, at = _worst(np.isnan(values))
            values = np.delete(values, at, axis)
            del axes[axis][at]
        return cls(axes, values)

    @property
    def axes(self) -> list[list[float]]:
        """The points kept on every axis."""
        return [list(axis) for axis in self._axes]

    def __call__(self, *at: float) -> float:
        base = 0
        shares = []
        for axis, stride, x in zip(self._axes, self._strides, at, strict=True):
            i = min(max(bisect_right(axis, x) - 1, 0), len(axis) - 2)
            base += i * stride
            shares.append(max(0.0, (x - axis[i]) / (axis[i + 1] - axis[i])))
        flat = self._flat
        cell = [flat[base + corner] for corner in self._corners]
        for share in shares:
            half = len(cell) // 2
            cell = [low + (high - low) * share for low, high in zip(cell[:half], cell[half:], strict=True)]
        return cell[0]


def _worst(holes: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """(axis, position) of the axis value with the largest share of holes."""
    best, where = -1.0, (0, 0)
    for axis in range(holes.ndim):
        share = holes.mean(axis=tuple(i for i in range(holes.ndim) if i != axis))
        at = int(share.argmax())
        if holes.shape[axis] > 1 and share[at] > best:
            best, where = float(share[at]), (axis, at)
    return where
