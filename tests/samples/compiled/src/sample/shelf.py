"""A shelf that is filled by a rule."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from sample.numbers import FULL, HALF, NOTHING
from sample.rows import Row, row_of

_MOST = 1000


class Placed(NamedTuple):
    """Stays a class of Python."""

    place: int
    size: int


class Rule:
    """Says what fits; Python code may derive from it."""

    name: ClassVar[str] = "all"
    limit: int
    asked: int

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.asked = 0

    def fits(self, size: int, left: int = 10) -> bool:
        """Say whether it fits."""
        self.asked += 1
        return size <= self.limit and left > 0

    def __lt__(self, other: Rule) -> bool:
        return self.limit < other.limit

    def __hash__(self) -> int:
        return self.limit


class HalfRule(Rule):
    """Overrides in C, and calls what it overrides."""

    def fits(self, size: int, left: int = 10) -> bool:
        """Say whether the half of it fits."""
        return Rule.fits(self, int(size * HALF), left)


class Shelf:
    """Things on a shelf, by size."""

    rule: Rule
    sizes: Row
    last: Rule | None
    weight: float
    is_full: bool

    def __init__(self, rule: Rule, *, weight: float = 0.0) -> None:
        self.rule = rule
        self.sizes = Row()
        self.last = None
        self.weight = weight
        self.is_full = False

    def fill(self, sizes: Row) -> int:
        """Put what fits; return the first that does not, or NOTHING."""
        for i in range(sizes.size):
            size = sizes.data[i]
            if size == FULL or size > _MOST or not self.rule.fits(size):
                self.is_full = True
                return size
            self.sizes.append(size)
        return NOTHING

    def place_of(self, size: int) -> int:
        """Return where a thing is; ValueError if it is not there."""
        for i in range(self.sizes.size):
            if self.sizes.data[i] == size:
                return i
        raise ValueError(f"nothing of size {size}")

    def largest(self) -> int:
        """Stays Python's: a generator is in it."""
        return max(self.sizes.at(i) for i in range(len(self.sizes)))

    def in_order(self) -> list[int]:
        """Return all sizes, sorted."""
        return sorted([self.sizes.at(i) for i in range(len(self.sizes))])

    def best(self, rules: list[Rule]) -> Rule | None:
        """Return the rule that lets most through, or None."""
        best: Rule | None = None
        rule: Rule
        for rule in rules:
            if best is None or best < rule:
                best = rule
        return best

    @property
    def share(self) -> float:
        return self.sizes.size * HALF


def fill(sizes: list[int], limit: int = 3) -> Placed:
    """Fill a shelf."""
    shelf = Shelf(HalfRule(limit))
    return Placed(shelf.fill(row_of(sizes)), shelf.sizes.size)
