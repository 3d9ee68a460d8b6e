"""A plan as a drawing: what each variant reaches, over what it costs; and as a page with its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from tokenyard.questions.chart import COLOURS, Chart
from tokenyard.questions.planning.goal import Goal, goal_value, is_feasible
from tokenyard.questions.plots import axes
from tokenyard.questions.sweeping.rows import Row, settings_in_words

_HELD, _MISSED, _CHOSEN = COLOURS[0], COLOURS[7], COLOURS[3]

Axis = tuple[str, Callable[[Row], float | None]]


def draw(title: str, goal: Goal, rows: Sequence[Row], *, front: Sequence[Row], recommended: Row | None) -> str:
    """SVG: a dot for every variant that ran to its end, a ring around the recommended one, a line along the front."""
    across, up, points = points_of(rows, goal)
    right = max((x for _, x, _ in points), default=1.0) * 1.05 or 1.0
    top = max((y for _, _, y in points), default=1.0) * 1.05 or 1.0
    chart = Chart(title, across, up, (right, top))
    for said, colour in (("recommended", _CHOSEN), ("within every bound", _HELD), ("a bound is missed", _MISSED)):
        chart.legend(said, colour)
    line = sorted((x, y) for row, x, y in points if row in front)
    if len(line) > 1:
        chart.line(line, _HELD, is_dashed=True)
    for row, x, y in sorted(points, key=lambda point: is_feasible(point[0])):
        chart.dot(x, y, _HELD if is_feasible(row) else _MISSED, settings_in_words(row.settings))
        if row == recommended:
            chart.ring(x, y, _CHOSEN)
    return str(chart)


def points_of(rows: Sequence[Row], goal: Goal) -> tuple[str, str, list[tuple[Row, float, float]]]:
    """What stands along both axes, and where each variant that ran to its end lies."""
    across, up = _axes(rows, goal)
    points = [
        (row, x, y)
        for row in rows
        if row.is_measured and (x := across[1](row)) is not None and (y := up[1](row)) is not None
    ]
    return across[0], up[0], points


def plot(title: str, goal: Goal, rows: Sequence[Row], *, recommended: Row | None, ax: Any = None) -> Any:
    """The same dots and ring, drawn with matplotlib. Returns the axes. MissingExtraError without it."""
    ax = axes(ax)
    across, up, points = points_of(rows, goal)
    for said, holds in (("within every bound", True), ("a bound is missed", False)):
        some = [(x, y) for row, x, y in points if is_feasible(row) is holds]
        ax.scatter([x for x, _ in some], [y for _, y in some], label=said)
    chosen = [(x, y) for row, x, y in points if row == recommended]
    ax.scatter([x for x, _ in chosen], [y for _, y in chosen], s=150, facecolors="none", edgecolors="black")
    ax.set(title=title, xlabel=across, ylabel=up)
    ax.legend()
    return ax


def page_of(workload: str, drawing: str, text: str) -> str:
    """The drawing of a plan with what was printed, as HTML that needs nothing else."""
    head = f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Plan: {escape(workload)}</title>'
    style = "<style>body{font:15px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}pre{overflow-x:auto}</style>"
    return f"{head}{style}\n<h1>{escape(workload)}</h1>\n{drawing}\n<pre>{escape(text)}</pre>\n</html>\n"


def _axes(rows: Sequence[Row], goal: Goal) -> tuple[Axis, Axis]:
    """Cost where variants differ in it, else how near they are to their bounds."""
    measured = [row for row in rows if row.is_measured]
    reached: Axis = (goal.unit, lambda row: goal_value(row, goal))
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
