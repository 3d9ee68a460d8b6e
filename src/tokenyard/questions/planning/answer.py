"""The plan as one object: the goal, the nearest variant, floors of the bounds, the largest load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from html import escape
from math import inf, sqrt
from typing import Any

import msgspec

from tokenyard.errors import ConfigError
from tokenyard.explain.measured import Calibration
from tokenyard.explain.slo import SLO
from tokenyard.explain.steady import LoadState
from tokenyard.explain.table import Printable, RowTable
from tokenyard.questions.chart import COLOURS, Chart
from tokenyard.questions.planning.goal import (
    Goal,
    goal_value,
    is_feasible,
    row_price,
)
from tokenyard.questions.plots import axes
from tokenyard.questions.sweeping.rows import Row, Setting, rows_table, settings_in_words
from tokenyard.trace.start import DeploymentHeader
from tokenyard.vocabulary import REASONS, Reason

# ---------------------------------------------------------------------------------------------------------------------
# A plan as a drawing: what each variant reaches, over what it costs; and as a page with its figures.

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


# ---------------------------------------------------------------------------------------------------------------------
# How sure it is that a bound holds: its figure, and the range in which that lies.


class Sureness(StrEnum):
    """How sure it is that a bound holds, or all of them."""

    HOLDS = "holds"
    """All over the range in which the figure lies in nine cases of ten."""
    PROBABLY_HOLDS = "probably_holds"
    """It holds in the replay, and not all over that range."""
    PROBABLY_MISSED = "probably_missed"
    MISSED = "missed"
    UNKNOWN = "unknown"
    """It is not known how far off the figure may be."""


_VERDICTS = {
    Sureness.HOLDS: "the bound holds all over it",
    Sureness.PROBABLY_HOLDS: "the bound may be missed",
    Sureness.PROBABLY_MISSED: "the bound may hold all the same",
    Sureness.MISSED: "the bound is missed all over it",
}


class BoundRange(msgspec.Struct, frozen=True, kw_only=True):
    """A bound, and the range in which its figure lies in nine cases of ten."""

    bound: str
    """``ttft_p90=500ms``."""
    value_ms: float
    """What the replay has."""
    low_ms: float | None
    """None, as ``high_ms``, where it is not known how far off it may be."""
    high_ms: float | None
    sureness: Sureness

    @property
    def sentence(self) -> str | None:
        """The range in words; None where it is not known, or no range."""
        if self.low_ms is None or self.high_ms is None or self.low_ms == self.high_ms:
            return None
        return (
            f"{self.bound.rpartition('=')[0]} {self.value_ms:,.0f} ms reads as {self.low_ms:,.0f} to"
            f" {self.high_ms:,.0f} ms, in nine cases of ten: {_VERDICTS[self.sureness]}"
        )


def sureness_of(value: float, low: float | None, high: float | None, bound: float) -> Sureness:
    """How sure it is, of a figure's value and its range, if that is known."""
    if low is None or high is None:
        return Sureness.UNKNOWN if value <= bound else Sureness.PROBABLY_MISSED
    if value <= bound:
        return Sureness.HOLDS if high <= bound else Sureness.PROBABLY_HOLDS
    return Sureness.MISSED if low > bound else Sureness.PROBABLY_MISSED


_LEAST_FIRST = tuple(map(Sureness, ("missed", "probably_missed", "unknown", "probably_holds", "holds")))


def least_sure(several: Iterable[Sureness]) -> Sureness | None:
    """How sure it is that all of them hold; None without any."""
    return min(several, key=_LEAST_FIRST.index, default=None)


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# Where no variant holds a bound: what the bound would have to be, and which part of the time makes it.
#
# The floor is what the nearest variant reaches when it serves one request at a time: then none queues, and every
# step has one request's tokens. A bound below it is held at no load; one above it is missed because of the load.


class AchievableBound(msgspec.Struct, frozen=True, kw_only=True):
    """One bound that the nearest variant misses."""

    bound: str
    """``ttft_p90=500ms``."""
    bound_ms: float
    reached_ms: float
    """The figure of the nearest variant, in ms, at the workload's own load."""
    alone_ms: float | None
    """Its figure in ms, serving one request at a time; None where that was not measured."""
    parts_ms: dict[str, float]
    """``queueing``, ``prefill``, ``decode``: means at the workload's own load, as far as the figure has them."""


def floors_of(slos: Sequence[SLO], row: Row, alone: Row) -> list[AchievableBound]:
    """Bounds on statistics that ``row`` misses; ``alone`` is the same variant, serving one request at a time."""
    return list(_missed(slos, row, alone))


def _missed(slos: Sequence[SLO], row: Row, alone: Row) -> Iterator[AchievableBound]:
    for slo in slos:
        name = slo.key
        if name is None:
            continue
        reached = row.figures.get(name)
        if reached is not None and reached > slo.bound_ms:
            yield AchievableBound(
                bound=str(slo),
                bound_ms=slo.bound_ms,
                reached_ms=reached,
                alone_ms=alone.figures.get(name),
                parts_ms={} if slo.of else _parts_of_figure(slo.figure, row),
            )


def _parts_of_figure(figure: str, row: Row) -> dict[str, float]:
    """A request queues until it is first scheduled, is prefilled until its first token, and decodes until its end."""
    queue, first, end = (row.figures.get(f"{name}_ms.mean") for name in ("queue", "ttft", "e2e"))
    parts: dict[str, float] = {}
    if queue is not None and figure in ("queue", "ttft", "e2e"):
        parts["queueing"] = queue
        if first is not None and figure != "queue":
            parts["prefill"] = first - queue
    if figure == "e2e" and first is not None and end is not None:
        parts["decode"] = end - first
    if figure in ("tpot", "itl") and (mean := row.figures.get(f"{figure}_ms.mean")) is not None:
        parts["decode"] = mean
    return parts


def meets_alone(floors: Sequence[AchievableBound]) -> bool:
    """Whether every bound that is missed would hold for one request at a time: it is the load that is too much."""
    return bool(floors) and all(each.alone_ms is not None and each.alone_ms <= each.bound_ms for each in floors)


def sentence_of(floor: AchievableBound) -> str:
    """The same in words."""
    said = f"{floor.bound}: {_time(floor.reached_ms)} here"
    if len(floor.parts_ms) > 1:
        said += f" (on average {', '.join(f'{_time(value)} {name}' for name, value in floor.parts_ms.items())})"
    if floor.alone_ms is None:
        return said
    alone = f"{said}; one request at a time {_time(floor.alone_ms)}"
    if floor.alone_ms <= floor.bound_ms:
        return f"{alone}, so it is the load that is too much"
    parts = " and ".join(name for name in floor.parts_ms if name != "queueing") or "waiting"
    return f"{alone}, all of it {parts}: no load holds this bound here, it would have to be that much at least"


def _time(milliseconds: float) -> str:
    return f"{milliseconds / 1e3:.3g} s" if milliseconds >= 1e3 else f"{milliseconds:.3g} ms"


# ---------------------------------------------------------------------------------------------------------------------
# Where no variant holds every bound: the one that comes nearest.
#
# The nearest is the variant whose worst figure is the fewest times its bound; of those alike the cheapest. Only
# figures of whole replays are compared. A replay that was ended early says no more than that its worst figure is
# beyond a bound: such a variant is replayed again, until it ends or is certain to be farther off than the nearest so
# far.

RunOn = Callable[[Row, float], Row]
"""A row whose replay was ended early, and the worst figure from which on more is not worth knowing, in times its bound
-> its row, whole unless it is beyond that for certain."""

_NEAREST_ALIKE = 1 + 1e-9
"""Share by which figures may differ and still count as the same."""


def nearest_row(rows: Sequence[Row], run_on: RunOn) -> Row:
    """The whole row of the nearest, of rows that all miss a bound at one load. ConfigError if none was replayed."""
    left = [row for row in rows if row.problem is None]
    if not left:
        raise _no_row(rows)
    best = min((row for row in left if row.is_measured), key=_rank, default=None)
    for row in sorted((row for row in reversed(left) if not row.is_measured), key=_dearest_first):
        most = inf if best is None or best.tightness is None else best.tightness
        if row.tightness_above is not None and row.tightness_above >= most:
            continue
        whole = run_on(row, most * _NEAREST_ALIKE)
        if whole.is_measured and (best is None or _rank(whole) <= _rank(best)):
            best = whole
    if best is None:
        raise _no_row(rows)
    return best


def _dearest_first(row: Row) -> float:
    """What costs most, of these the last, is likely the nearest; the others are then soon known to be farther off."""
    return -row_price(row)


def _rank(row: Row) -> tuple[float, float]:
    return (inf if row.tightness is None else row.tightness), row_price(row)


def _no_row(rows: Sequence[Row]) -> ConfigError:
    problems = [row.problem for row in rows if row.problem is not None]
    one = "none could be replayed: " if len(set(problems)) == 1 else "none could be replayed; the first: "
    return ConfigError("space", f"{len(rows)} variants", f"{one}{problems[0] if problems else 'no row'}")


# ---------------------------------------------------------------------------------------------------------------------
# The largest load within the bounds: arrivals are pressed together until one is missed, then the middle is sought.
#
# It is taken for granted that a bound which is missed at one load is missed at every greater one.

PRECISION = 0.02
"""Share by which the load that is missed is greater than the one that is borne."""
_FELT = ("ttft_ms.mean", "ttft_ms.max", "tpot_ms.mean", "tpot_ms.max", "throughput.requests_per_s")
_LOAD_ALIKE = 0.002
MOST_LOAD = 1024.0
"""Beyond it, and below its inverse, nothing is sought."""


class LoadSearch(msgspec.Struct, frozen=True):
    """What was found."""

    borne: Row | None
    """The row at the largest load within the bounds; None if not even the smallest is."""
    missed: Row | None
    """The row at the smallest load beyond it; None if every load is served, or more load changes nothing."""
    replays: int


def _changes(less: Row, more: Row) -> bool:
    """Whether a greater load is felt: once all requests come at once, or turns only wait for each other, none is."""
    pairs = [(less.figures.get(name), more.figures.get(name)) for name in _FELT]
    if all(pair == (None, None) for pair in pairs):
        return True
    return any(one != other and (not one or not other or abs(other / one - 1) > _LOAD_ALIKE) for one, other in pairs)


def largest_load(
    at: Callable[[float], Row],
    *,
    start: float = 1.0,
    must_bear: float | None = None,
    borne: Row | None = None,
    growth: float = 2.0,
    precision: float = PRECISION,
) -> LoadSearch:
    """Search by replays ``at`` a load; one that does not bear ``must_bear`` is given up after one replay.

    ``borne``: what is known to be borne, from which on greater loads are tried, ``growth`` times as great at first.
    ``precision``: share by which what is missed is greater in the end.
    """
    missed: Row | None = None
    load, replays = must_bear or start, 0
    if borne is not None:
        load = borne.load * growth
    while 1 / MOST_LOAD <= load <= MOST_LOAD:
        row = at(load)
        replays += row.replays
        if row.problem is not None:
            return LoadSearch(borne, missed or row, replays)
        if is_borne(row):
            if borne is not None and missed is None and not _changes(borne, row):
                return LoadSearch(row, None, replays)
            borne = row
        else:
            missed = row
        if missed is not None and borne is None and must_bear is not None:
            return LoadSearch(None, missed, replays)
        if borne is not None and missed is not None:
            if missed.load <= borne.load * (1 + precision):
                return LoadSearch(borne, missed, replays)
            load = sqrt(borne.load * missed.load)
        else:
            load = row.load / growth if borne is None else borne.load * growth
            growth = min(growth**2, 2.0)
    return LoadSearch(borne, missed, replays)


def is_borne(row: Row) -> bool:
    """Whether a variant bears a load: every bound holds in a steady state."""
    return is_feasible(row) and row.state is not LoadState.SHORT


# ---------------------------------------------------------------------------------------------------------------------
# The plan: one object, which ``tokenyard plan --json`` prints; ``docs/plan.md`` explains it.

PLAN_VERSION = 1
_FEWEST_BEYOND = 5
"""Requests beyond a percentile without which it is a matter of luck."""
_PERCENTS = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


class LargestLoad(msgspec.Struct, frozen=True, kw_only=True):
    """How much faster requests may arrive."""

    load: float | None
    """Times as fast; None if not even the least that was tried is within the bounds."""
    is_all: bool
    """Whatever was tried was borne; a greater one changes hardly anything, or was not tried."""
    offered_requests_per_s: float | None = None
    """Requests that arrive per second at that load; None where ``load`` is."""
    chance: float | None = None
    """Share of the load by which that of other requests, as many and as unlike each other, may be less or more: two
    standard deviations of the work that they bring. None where it is not known."""
    row: Row | None
    """The recommended setting at that load."""
    beyond: Row | None
    """The same at the next greater load that was tried: a bound is missed."""


class ServedSplit(msgspec.Struct, frozen=True, kw_only=True):
    """How the engines of a split are started; a proxy between both sides sends prompts to the first."""

    prefill_engines: int
    prefill: str
    """The line to start those that prefill."""
    decode_engines: int
    decode: str
    """The line to start those that decode."""


class Plan(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """What to serve with, and what it rests on."""

    printer = "tokenyard.questions.printing.plan:print_plan"

    plan_version: int = PLAN_VERSION
    workload: str
    requests: int
    goal: str
    slo: list[str]
    space: dict[str, list[Setting]]
    size: int
    """Variants of the space."""
    replays: int
    """Replays that all of it took, those of the load included."""
    is_whole: bool
    """Every variant was tried: the recommended one is the best of the space."""
    method: str
    recommended: Row | None
    """None if no variant could be replayed."""
    holds: bool
    """Whether the recommended one is within every bound; else it is the one nearest to that."""
    sureness: Sureness | None = None
    """How sure that is, by the ranges in ``bounds``; None without bounds."""
    bounds: list[BoundRange] = []
    """Every bound on a statistic, and the range of its figure."""
    state: LoadState | None = None
    """``steady``: both halves of its replay agree, and no queue grows; ``overloaded``, or ``short`` where neither was
    shown, and it does not hold the bounds then; None where the requests are too few, or come all at once, or one when
    another ends: there is no rate."""
    times: int = 1
    """The traffic was made so many times as long, for a steady state."""
    traffic: str | None = None
    """How, in words; None: it was not."""
    value: float | None
    """What it reaches of the goal."""
    serve: str | None
    """The line to start vLLM with; None of a trace, which does not say how it was started, and of a split."""
    replicas: str | None = None
    """How many are started with that line, behind a balancer: ``4``, ``1..8``; None: one."""
    serve_split: ServedSplit | None = None
    """The two lines of a split of prefill and decode."""
    flags: list[str]
    """What the recommendation changes, as flags of ``vllm serve``."""
    notes: list[str] = []
    """What no flag of vLLM says."""
    next_best: Row | None = None
    next_best_value: float | None = None
    front: list[Row] = []
    """Variants within the bounds that no other beats both in the goal and in cost, cheapest first; where all cost the
    same, both in the goal and in distance from the bounds."""
    largest_load: LargestLoad | None = None
    """None where it was not looked for."""
    limits: str | None = None
    """What would be short next; None where a bound is missed already."""
    floors: list[AchievableBound] = []
    """What the bounds that are missed would have to be."""
    header: DeploymentHeader | None = None
    """The recommended deployment, with what was taken, assumed and ignored; of a split its decode engines; None of
    a trace."""
    calibration: Calibration | None = None
    """How step times were scaled to what the workload's input measured; None: they were not."""
    uncertainty: list[str] = []
    """How far the figures may be off, in words."""
    unknown: list[str] = []
    """What the answer cannot know."""
    rows: list[Row] = []
    """Every variant that was tried."""

    def summary(self) -> str:
        chosen = "nothing" if self.recommended is None else settings_in_words(self.recommended.settings)
        how = "recommended" if self.holds else "nearest to the bounds"
        if self.sureness is Sureness.PROBABLY_HOLDS:
            how += ", probably within the bounds"
        return f"{chosen} {how}, {len(self.rows):,} of {self.size:,} variants tried"

    def as_table(self) -> RowTable:
        """One row per variant that was tried: its settings, what came of it, its figures."""
        return rows_table(self.rows)

    @property
    def _title(self) -> str:
        return f"{self.workload}: {', '.join(self.slo) or 'no bounds'}"

    def draw(self) -> str:
        """A drawing as SVG: what each variant reaches, over what it costs or how near its bounds it is."""
        return draw(self._title, Goal(self.goal), self.rows, front=self.front, recommended=self.recommended)

    def plot(self, ax: Any = None) -> Any:
        """The same drawn with matplotlib, on ``ax`` or new axes, which are returned; MissingExtraError without it."""
        return plot(self._title, Goal(self.goal), self.rows, recommended=self.recommended, ax=ax)

    def page(self) -> str:
        """The drawing with what is printed, as an HTML page that needs nothing else."""
        return page_of(self.workload, self.draw(), str(self))

    def _repr_html_(self) -> str:
        return f"{self.draw()}{super()._repr_html_()}"


def next_best(rows: Sequence[Row], chosen: Row, goal: Goal) -> Row | None:
    """The feasible row that comes nearest to the chosen one in the goal."""
    others = [row for row in rows if row is not chosen and is_feasible(row) and goal_value(row, goal) is not None]
    sign = 1.0 if goal.is_least else -1.0
    return min(others, key=lambda row: sign * (goal_value(row, goal) or 0.0), default=None)


def limits_of(row: Row, beyond: Row | None) -> str:
    """What is short at the recommended setting, or would be with more load."""
    last = beyond if beyond is not None and beyond.is_measured else row
    parts = []
    if beyond is not None and beyond.only_grows:
        parts.append("with more load the queue grows")
    elif beyond is not None and beyond.tightest is not None:
        parts.append(f"with more load {beyond.tightest} is missed first")
    elif row.tightest is not None and row.tightness is not None:
        parts.append(f"{row.tightest} is nearest to its bound, at {row.tightness:.0%} of it")
    if last.held_by is None:
        parts.append(
            "no request is held back: the time goes into the steps themselves, so a faster GPU, or more of them"
        )
    else:
        meaning = REASONS[Reason(last.held_by)].meaning.rstrip(".") if last.held_by in REASONS else ""
        where = "" if last.held_at is None else f" on the {last.held_at} side"
        why = f" ({meaning[0].lower()}{meaning[1:]})" if meaning else ""
        parts.append(f"requests wait{where} for {last.held_by}{why}")
    return "; ".join(parts)


def few_requests(slos: Sequence[SLO], counts: Mapping[str, int]) -> Iterator[str]:
    """Percentiles that rest on a handful of requests. ``counts``: of each class; of the empty name, all."""
    for slo in slos:
        requests = counts[slo.of]
        beyond = requests * (100 - _PERCENTS.get(slo.statistic or "", 50)) / 100
        if beyond < _FEWEST_BEYOND:
            slowest = f"the slowest {max(beyond, 1):.0f}"
            yield f"{slo.name} of {requests:,} requests rests on {slowest}: a longer workload would say more"
