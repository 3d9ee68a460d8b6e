"""What a plan is to reach, and which of two rows reaches more of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import inf

from tokenyard.questions.sweeping.measuring import Incumbent
from tokenyard.questions.sweeping.rows import Row

_ALIKE = 0.005
"""Values that differ by less are alike: cost decides, then distance from the bounds."""
_FIGURES = {"goodput": "goodput.requests_per_s", "throughput": "throughput.output_tokens_per_s"}


class Goal(StrEnum):
    """What is maximised, or minimised, with every bound held."""

    GOODPUT = "goodput"
    """Requests per second that end whole and within the bounds; without bounds, requests per second."""
    THROUGHPUT = "throughput"
    """Output tokens per second."""
    LOAD = "load"
    """Times as fast as they did that requests may arrive."""
    GPUS = "gpus"
    COST = "cost"
    """The cost of an hour."""

    @property
    def is_least(self) -> bool:
        """Whether less is better."""
        return self in (Goal.GPUS, Goal.COST)

    @property
    def unit(self) -> str:
        """The unit of its values."""
        units = {"goodput": "requests/s", "throughput": "output tokens/s", "load": "times the load", "gpus": "GPUs"}
        return units.get(self.value, "an hour")


def goal_value(row: Row, goal: Goal) -> float | None:
    """How much of the goal a row reaches; None if it has no such figure."""
    if goal is Goal.LOAD:
        return row.load
    if goal.is_least:
        return row.cost_per_hour if goal is Goal.COST else row.gpus
    value = row.figures.get(_FIGURES[goal])
    return row.figures.get("throughput.requests_per_s") if value is None and goal is Goal.GOODPUT else value


def is_feasible(row: Row) -> bool:
    """Whether it ran to its end, and no bound is missed or open."""
    return row.is_measured and row.met is not False and not row.is_open


def best_row(rows: Sequence[Row], goal: Goal) -> Row | None:
    """The row that reaches most; of those alike the cheapest, then the one furthest from its bounds, or that answers
    soonest. None: no row is feasible.
    """
    return min(reach_most(rows, goal), key=lambda row: (row_price(row), _distance(row)), default=None)


def reach_most(rows: Sequence[Row], goal: Goal) -> list[Row]:
    """The feasible rows that reach as much as any, or nearly."""
    known = [(row, value) for row in rows if is_feasible(row) and (value := goal_value(row, goal)) is not None]
    sign = -1.0 if goal.is_least else 1.0
    top = max((sign * value for _, value in known), default=0.0)
    return [row for row, value in known if sign * value >= top - _ALIKE * abs(top)]


def row_price(row: Row) -> float:
    """What a row costs beside others: of an hour, or its GPUs where no prices were given."""
    return row.cost_per_hour if row.cost_per_hour is not None else float(row.gpus or 0)


def _distance(row: Row) -> float:
    """How near its bounds a row is, or how long its answers take where there are none; less is better."""
    if row.tightness is not None:
        return row.tightness
    value = row.figures.get("e2e_ms.mean")
    return inf if value is None else value


def incumbent_of(row: Row, goal: Goal) -> Incumbent | None:
    """What others have to beat; None where a row says nothing of that."""
    value = goal_value(row, goal)
    if not is_feasible(row) or value is None or goal is Goal.LOAD:
        return None
    return Incumbent(goal.value, value, row.cost_per_hour, row.gpus)


def front_of(rows: Sequence[Row], goal: Goal) -> list[Row]:
    """Feasible rows that no other beats both in the goal and in cost; in distance from the bounds where costs are alike
    or are the goal.
    """
    known = [row for row in rows if is_feasible(row) and goal_value(row, goal) is not None]
    by_cost = len({row_price(row) for row in known}) > 1 and not goal.is_least
    scores = {id(row): _score(row, goal, by_cost=by_cost) for row in known}
    front: list[Row] = []
    for row in sorted(known, key=lambda row: scores[id(row)]):
        # None before it is worse in the first score: it is beaten unless it is better in the second, or the same.
        if not front or scores[id(row)][1] < scores[id(front[-1])][1] or scores[id(row)] == scores[id(front[-1])]:
            front.append(row)
    return front


def _score(row: Row, goal: Goal, *, by_cost: bool) -> tuple[float, float]:
    """Less is better in each."""
    value = goal_value(row, goal)
    assert value is not None
    if by_cost:
        return row_price(row), -value
    return value if goal.is_least else -value, _distance(row)


def pareto_front(rows: Sequence[Row]) -> list[Row]:
    """Rows that no other beats both in output tokens per second of each GPU and in the TPOT that nine of ten have."""
    known = [(row, *scores) for row in rows if (scores := _per_gpu(row)) is not None]
    front: list[Row] = []
    least = inf
    for row, _, tpot in sorted(known, key=lambda each: (-each[1], each[2])):
        if tpot < least:
            front.append(row)
            least = tpot
    return front


def _per_gpu(row: Row) -> tuple[float, float] | None:
    """Output tokens per second of each GPU, and TPOT p90; None where a row does not have them."""
    tokens, tpot = row.figures.get(_FIGURES[Goal.THROUGHPUT]), row.figures.get("tpot_ms.p90")
    return None if not row.is_measured or not row.gpus or tokens is None or tpot is None else (tokens / row.gpus, tpot)
