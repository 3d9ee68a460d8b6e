"""The largest load within the bounds: arrivals are pressed together until one is missed, then the middle is sought.

It is taken for granted that a bound which is missed at one load is missed at every greater one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

from tokenyard.sim.plan.goal import is_feasible
from tokenyard.sim.sweep.row import Row

__all__ = ["LoadSearch", "largest_load"]

PRECISION = 0.03
"""Share by which the load that is missed is greater than the one that is borne."""
_FELT = ("ttft_ms.mean", "ttft_ms.max", "tpot_ms.mean", "tpot_ms.max", "throughput.requests_per_s")
_ALIKE = 0.002
MOST_LOAD = 1024.0
"""Beyond it, and below its inverse, nothing is sought."""


class LoadSearch(NamedTuple):
    """What was found."""

    borne: Row | None
    """At the largest load within the bounds; None if not even the smallest is."""
    missed: Row | None
    """At the smallest load beyond it; None if every load is borne, or more load changes nothing."""
    replays: int


def _changes(less: Row, more: Row) -> bool:
    """Whether a greater load is felt: once all requests come at once, or turns only wait for each other, none is."""
    pairs = [(less.figures.get(name), more.figures.get(name)) for name in _FELT]
    if all(pair == (None, None) for pair in pairs):
        return True
    return any(one != other and (not one or not other or abs(other / one - 1) > _ALIKE) for one, other in pairs)


def largest_load(at: Callable[[float], Row], *, start: float = 1.0, must_bear: float | None = None) -> LoadSearch:
    """Search by replays ``at`` a load; one that does not bear ``must_bear`` is given up after one replay."""
    borne: Row | None = None
    missed: Row | None = None
    load, replays = must_bear or start, 0
    while True:
        row = at(load)
        replays += 1
        if row.problem is not None:
            return LoadSearch(borne, missed or row, replays)
        if is_feasible(row):
            if borne is not None and missed is None and not _changes(borne, row):
                return LoadSearch(row, None, replays)
            borne = row
        else:
            missed = row
        if missed is not None and borne is None and must_bear is not None:
            return LoadSearch(None, missed, replays)
        if borne is not None and missed is not None:
            if missed.load <= borne.load * (1 + PRECISION):
                return LoadSearch(borne, missed, replays)
            load = sqrt(borne.load * missed.load)
        elif borne is not None:
            load = borne.load * 2
        else:
            load = row.load / 2
        if not 1 / MOST_LOAD <= load <= MOST_LOAD:
            return LoadSearch(borne, missed, replays)
