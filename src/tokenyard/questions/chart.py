"""A chart as SVG, for a file or a notebook: dots and lines over two axes that begin at 0, and a legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10

from tokenyard.arguments import suggests_keywords
from tokenyard.errors import ConfigError

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#bab0ac")
"""Distinguished by most who see colours differently; the order in the legend tells the rest."""
_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 170, 40, 60
_MIDDLE_X, _MIDDLE_Y = (_LEFT + _WIDTH - _RIGHT) / 2, (_TOP + _HEIGHT - _BOTTOM) / 2


class Chart:
    """Takes marks by their values, in the order in which they are to be drawn; ``str`` gives the drawing."""

    def __init__(
        self, title: str, across: str, up: str, size: tuple[float, float], places: Mapping[float, str] | None = None
    ) -> None:
        """``across`` and ``up`` name the axes, which end at ``size``; ``places``: what is written along the first."""
        self._size = size
        self._entries = 0
        box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" font-family="sans-serif" font-size="12"'
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
            f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}</text>',
        ]
        for value in _ticks(size[1]):
            y = self._at(0, value)[1]
            self._parts += [
                f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>',
                _label(_LEFT - 8, y + 4, f"{value:g}", "end"),
            ]
        for value, said in (places or {value: f"{value:g}" for value in _ticks(size[0])}).items():
            self._parts.append(_label(self._at(value, 0)[0], _HEIGHT - _BOTTOM + 18, said, "middle"))
        self._parts.append(_label(_MIDDLE_X, _HEIGHT - 14, across, "middle"))
        self._parts.append(_label(18, _MIDDLE_Y, up, "middle", f' transform="rotate(-90 18 {_MIDDLE_Y:.0f})"'))

    def legend(self, said: str, colour: str) -> None:
        """Add an entry."""
        y = _TOP + 18 * self._entries
        self._entries += 1
        self._parts.append(f'<circle cx="{_WIDTH - _RIGHT + 18}" cy="{y}" r="4" fill="{colour}"/>')
        self._parts.append(_label(_WIDTH - _RIGHT + 28, y + 4, said))

    def dot(self, x: float, y: float, colour: str, said: str = "") -> None:
        """Draw one; ``said`` is its tooltip."""
        at = self._at(x, y)
        told = f"<title>{escape(said)}</title>" if said else ""
        self._parts.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4" fill="{colour}">{told}</circle>')

    def ring(self, x: float, y: float, colour: str) -> None:
        """Draw one around a dot."""
        at, stroke = self._at(x, y), f'stroke="{colour}" stroke-width="3"'
        self._parts.append(f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="8" fill="none" {stroke}/>')

    def line(self, points: Sequence[tuple[float, float]], colour: str, *, is_dashed: bool = False) -> None:
        """Draw one from point to point."""
        corners = " ".join("{:.1f},{:.1f}".format(*self._at(*point)) for point in points)
        dashes = ' stroke-dasharray="4 3"' if is_dashed else ""
        self._parts.append(f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>')

    def __str__(self) -> str:
        return "\n".join((*self._parts, "</svg>", ""))

    def _at(self, x: float, y: float) -> tuple[float, float]:
        right, top = self._size
        return (
            _LEFT + (_WIDTH - _LEFT - _RIGHT) * x / right,
            _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * max(y, 0.0) / top,
        )


@suggests_keywords()
def line_chart(
    title: str,
    across: str,
    up: str,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    bounds: Mapping[str, float] | None = None,
) -> str:
    """A chart of named lines as SVG text: each has (x, y) points in the order of x, and both axes begin at 0.

    ``bounds`` are heights with a name, drawn as dashed lines from side to side: a published figure, or a limit.

    Raises:
        ConfigError: there is no point, or no value above 0 on one of the axes.
    """
    bounds = bounds or {}
    right = max((x for points in lines.values() for x, _ in points), default=0.0)
    top = max((y for points in lines.values() for _, y in points), default=0.0)
    top = max((top, *bounds.values()))
    if not (right > 0 and top > 0):
        raise ConfigError("lines", dict(lines), "give at least one point whose x and y are above 0")
    chart = Chart(title, across, up, (1.05 * right, 1.05 * top))
    for (name, height), colour in zip(bounds.items(), reversed(COLOURS), strict=False):
        chart.line([(0.0, height), (1.05 * right, height)], colour, is_dashed=True)
        chart.legend(name, colour)
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        chart.line(points, colour)
        for x, y in points if len(points) <= _MOST_DOTS else ():
            chart.dot(x, y, colour, f"{name}: {x:g}, {y:.3g}")
        chart.legend(name, colour)
    return str(chart)


_MOST_DOTS = 40
"""A longer line is drawn without its points."""


def _label(x: float, y: float, said: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(said)}</text>'


def _ticks(top: float) -> list[float]:
    power = 10.0 ** floor(log10(top))
    step = next(step * power for step in (0.1, 0.2, 0.5, 1.0, 2.0) if top / (step * power) <= 8)
    return [i * step for i in range(int(top / step) + 1)]
