"""What a plan is to reach, and which of two rows reaches more of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import inf

from tokenyard.sim.sweep.deciding import Rival
from tokenyard.sim.sweep.row import Row

__all__ = ["Goal", "best_of", "front_of", "is_feasible", "price_of", "rival_of", "value_of"]

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
    """Of an hour."""

    @property
    def is_least(self) -> bool:
        """Whether less is better."""
        return self in (Goal.GPUS, Goal.COST)

    @property
    def unit(self) -> str:
        """Of its values."""
        units = {"goodput": "requests/s", "throughput": "output tokens/s", "load": "times the load", "gpus": "GPUs"}
        return units.get(self.value, "an hour")


def value_of(row: Row, goal: Goal) -> float | None:
    """How much of the goal a row reaches; None if it has no such figure."""
    if goal is Goal.LOAD:
        return row.load
    if goal.is_least:
        return row.cost_per_hour if goal is Goal.COST else row.gpus
    value = row.figures.get(_FIGURES[goal])
    return row.figures.get("throughput.requests_per_s") if value is None and goal is Goal.GOODPUT else value


def is_feasible(row: Row) -> bool:
    """Whether it ran to its end, and no bound is missed."""
    return row.is_measured and row.met is not False


def best_of(rows: Sequence[Row], goal: Goal) -> Row | None:
    """The feasible row that reaches most; of those alike the cheapest, then the one furthest from its bounds."""
    known = [(row, value) for row in rows if is_feasible(row) and (value := value_of(row, goal)) is not None]
    if not known:
        return None
    sign = -1.0 if goal.is_least else 1.0
    top = max(sign * value for _, value in known)
    alike = [row for row, value in known if sign * value >= top - _ALIKE * abs(top)]
    return min(alike, key=lambda row: (price_of(row), row.tightness if row.tightness is not None else _slowness(row)))


def price_of(row: Row) -> float:
    """What a row costs beside others: of an hour, or its GPUs where nobody gave prices."""
    return row.cost_per_hour if row.cost_per_hour is not None else float(row.gpus or 0)


def _slowness(row: Row) -> float:
    value = row.figures.get("e2e_ms.mean")
    return inf if value is None else value


def rival_of(row: Row, goal: Goal) -> Rival | None:
    """What others have to beat; None where a row says nothing of that."""
    value = value_of(row, goal)
    if not is_feasible(row) or value is None or goal is Goal.LOAD:
        return None
    return Rival(goal.value, value, row.cost_per_hour, row.gpus)


def front_of(rows: Sequence[Row], goal: Goal) -> list[Row]:
    """Feasible rows that no other beats both in the goal and in cost; in distance from the bounds where costs are alike
    or are the goal.
    """
    known = [row for row in rows if is_feasible(row) and value_of(row, goal) is not None]
    by_cost = len({price_of(row) for row in known}) > 1 and not goal.is_least
    scores = {id(row): _score(row, goal, by_cost=by_cost) for row in known}
    front = [row for row in known if not any(_beats(scores[id(other)], scores[id(row)]) for other in known)]
    return sorted(front, key=lambda row: scores[id(row)])


def _score(row: Row, goal: Goal, *, by_cost: bool) -> tuple[float, ...]:
    """Less is better in each."""
    value = value_of(row, goal)
    assert value is not None
    if by_cost:
        return price_of(row), -value
    return value if goal.is_least else -value, row.tightness if row.tightness is not None else _slowness(row)


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))
