"""A comparison as an SVG drawing: job completion time over load, one line per policy, whiskers for the intervals."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import floor, log10

from tokenyard.sim.compare.comparison import Comparison

__all__ = ["draw"]

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 170, 40, 55
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#bab0ac")
"""Told apart by most who see colours differently; the markers' order in the legend tells the rest."""


def draw(comparison: Comparison, metric: str = "completion_s", title: str = "mean job completion time (s)") -> str:
    """The drawing as text. Loads stand at equal distances, in the order in which they were compared."""
    return "\n".join(
        ("".join(_head(comparison, title)), *_axes(comparison, metric), *_lines(comparison, metric), "</svg>", "")
    )


def _head(comparison: Comparison, title: str) -> Iterator[str]:
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    yield f'<text x="{_LEFT}" y="22" font-size="14">{escape(comparison.workload)}: {escape(title)}</text>'


def _top(comparison: Comparison, metric: str) -> float:
    """Upper end of the vertical axis."""
    values = [cell.metrics[metric] for cell in comparison.cells]
    return max(value.mean + (value.half or 0.0) for value in values) or 1.0


def _x(comparison: Comparison, load: float) -> float:
    step = (_WIDTH - _LEFT - _RIGHT) / len(comparison.loads)
    return _LEFT + step * (comparison.loads.index(load) + 0.5)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * max(value, 0.0) / top


def _axes(comparison: Comparison, metric: str) -> Iterator[str]:
    top = _top(comparison, metric)
    power = 10.0 ** floor(log10(top))
    tick = next(step * power for step in (0.1, 0.2, 0.5, 1.0, 2.0) if top / (step * power) <= 8)
    for i in range(int(top / tick) + 1):
        y = _y(i * tick, top)
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{i * tick:g}</text>'
    for load in comparison.loads:
        yield f'<text x="{_x(comparison, load):.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{load:g}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    legend = "load: arrivals, times as fast as the workload's own"
    yield f'<text x="{middle:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">{legend}</text>'


def _lines(comparison: Comparison, metric: str) -> Iterator[str]:
    top, count = _top(comparison, metric), len(comparison.policies)
    for number, policy in enumerate(comparison.policies):
        colour = _COLOURS[number % len(_COLOURS)]
        aside = 5.0 * (number - (count - 1) / 2)
        points = []
        for load in comparison.loads:
            value = comparison.cell(policy, load).metrics[metric]
            x, y = _x(comparison, load) + aside, _y(value.mean, top)
            points.append(f"{x:.1f},{y:.1f}")
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
            if value.half is not None:
                low, high = _y(value.mean - value.half, top), _y(value.mean + value.half, top)
                yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}"/>'
        yield f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        y = _TOP + 18 * number
        yield f'<circle cx="{_WIDTH - _RIGHT + 18}" cy="{y}" r="4" fill="{colour}"/>'
        yield f'<text x="{_WIDTH - _RIGHT + 28}" y="{y + 4}">{escape(policy)}</text>'
