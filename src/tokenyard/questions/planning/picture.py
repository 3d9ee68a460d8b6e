"""A plan as a drawing: what each variant reaches, over what it costs; and as a page with its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import floor, log10

from tokenyard.questions.planning.answer import Goal, Plan, is_feasible, value_of
from tokenyard.questions.sweeping.rows import Row, words_of

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 30, 60, 60
_HELD, _MISSED, _CHOSEN = "#4c78a8", "#bab0ac", "#e45756"

Axis = tuple[str, Callable[[Row], float | None]]


def draw(plan: Plan) -> str:
    """SVG: a dot for every variant that ran to its end, a ring around the recommended one, a line along the front."""
    goal = Goal(plan.goal)
    across, up = _axes(plan, goal)
    points = [
        (row, x, y)
        for row in plan.rows
        if row.is_measured and (x := across[1](row)) is not None and (y := up[1](row)) is not None
    ]
    right = max((x for _, x, _ in points), default=1.0) * 1.05 or 1.0
    top = max((y for _, _, y in points), default=1.0) * 1.05 or 1.0
    place = _Place(right, top)
    return "\n".join((*_head(plan), *_lines(place, across[0], up[0]), *_dots(plan, points, place), "</svg>", ""))


def page(plan: Plan, lines: Sequence[str]) -> str:
    """The drawing with what was printed, as HTML that needs nothing else."""
    head = f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Plan: {escape(plan.workload)}</title>'
    style = "<style>body{font:15px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}pre{overflow-x:auto}</style>"
    text = escape("\n".join(lines))
    return f"{head}{style}\n<h1>{escape(plan.workload)}</h1>\n{draw(plan)}\n<pre>{text}</pre>\n</html>\n"


def _axes(plan: Plan, goal: Goal) -> tuple[Axis, Axis]:
    """Cost where variants differ in it, else how near they are to their bounds."""
    measured = [row for row in plan.rows if row.is_measured]
    reached: Axis = (goal.unit, lambda row: value_of(row, goal))
    tight: Axis = ("the figure nearest to its bound, as a share of it", lambda row: row.tightness)
    slow: Axis = ("mean end-to-end time, ms", lambda row: row.figures.get("e2e_ms.mean"))
    near = tight if any(row.tightness is not None for row in measured) else slow
    if goal.is_least:
        return reached, near
    if len({row.cost_per_hour for row in measured} - {None}) > 1:
        return ("cost of an hour", lambda row: row.cost_per_hour), reached
    if len({row.gpus for row in measured} - {None}) > 1:
        return ("GPUs", lambda row: None if row.gpus is None else float(row.gpus)), reached
    return near, reached


class _Place:
    """From values to the paper."""

    def __init__(self, right: float, top: float) -> None:
        self.right, self.top = right, top

    def x(self, value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / self.right

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / self.top


def _head(plan: Plan) -> Iterator[str]:
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" font-family="sans-serif" font-size="12"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    title = f"{plan.workload}: {', '.join(plan.slo) or 'no bounds'}"
    yield f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}</text>'
    for x, colour, said in (
        (0, _CHOSEN, "recommended"),
        (110, _HELD, "within every bound"),
        (260, _MISSED, "a bound is missed"),
    ):
        yield f'<circle cx="{_LEFT + x + 5}" cy="40" r="4" fill="{colour}"/>'
        yield f'<text x="{_LEFT + x + 14}" y="44">{said}</text>'


def _lines(place: _Place, across: str, up: str) -> Iterator[str]:
    for value in _ticks(place.top):
        y = place.y(value)
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    for value in _ticks(place.right):
        yield f'<text x="{place.x(value):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{value:g}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle:.0f}" y="{_HEIGHT - 14}" text-anchor="middle">{escape(across)}</text>'
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    turned = f'transform="rotate(-90 18 {middle:.0f})" text-anchor="middle"'
    yield f'<text x="18" y="{middle:.0f}" {turned}>{escape(up)}</text>'


def _ticks(top: float) -> list[float]:
    power = 10.0 ** floor(log10(top))
    step = next(step * power for step in (0.1, 0.2, 0.5, 1.0, 2.0) if top / (step * power) <= 8)
    return [i * step for i in range(int(top / step) + 1)]


def _dots(plan: Plan, points: list[tuple[Row, float, float]], place: _Place) -> Iterator[str]:
    front = [(x, y) for row, x, y in points if row in plan.front]
    if len(front) > 1:
        corners = " ".join(f"{place.x(x):.1f},{place.y(y):.1f}" for x, y in sorted(front))
        yield f'<polyline points="{corners}" fill="none" stroke="{_HELD}" stroke-dasharray="4 3"/>'
    for row, x, y in sorted(points, key=lambda point: is_feasible(point[0])):
        centre = f'cx="{place.x(x):.1f}" cy="{place.y(y):.1f}"'
        colour = _HELD if is_feasible(row) else _MISSED
        said = f"<title>{escape(words_of(row.settings))}</title>"
        yield f'<circle {centre} r="4" fill="{colour}">{said}</circle>'
        if row == plan.recommended:
            yield f'<circle {centre} r="8" fill="none" stroke="{_CHOSEN}" stroke-width="3"/>'
