"""Where no variant holds every bound: the one that comes nearest.

The nearest is the variant whose worst figure is the fewest times its bound; of those alike the cheapest. Only figures
of whole replays are compared. A replay that was ended early says no more than that its worst figure is beyond a bound:
such a variant is replayed again, until it ends or is certain to be farther off than the nearest so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from tokenyard.errors import ConfigError
from tokenyard.sim.plan.goal import price_of
from tokenyard.sim.sweep.row import Row

__all__ = ["nearest"]

RunOn = Callable[[Row, float], Row]
"""A row whose replay was ended early, and the worst figure from which on nobody wants to know more, in times its bound
-> its row, whole unless it is beyond that for certain."""

_ALIKE = 1 + 1e-9
"""By which figures may differ that are the same."""


def nearest(rows: Sequence[Row], run_on: RunOn) -> Row:
    """Of rows that all miss a bound, at one load, the whole row of the nearest. ConfigError if none was replayed."""
    left = [row for row in rows if row.problem is None]
    if not left:
        raise _no_row(rows)
    best = min((row for row in left if row.is_measured), key=_rank, default=None)
    for row in sorted((row for row in reversed(left) if not row.is_measured), key=_dearest_first):
        most = inf if best is None or best.tightness is None else best.tightness
        if row.tightness_above is not None and row.tightness_above >= most:
            continue
        whole = run_on(row, most * _ALIKE)
        if whole.is_measured and (best is None or _rank(whole) <= _rank(best)):
            best = whole
    if best is None:
        raise _no_row(rows)
    return best


def _dearest_first(row: Row) -> float:
    """What costs most, of these the last, is likely the nearest; the others are then soon known to be farther off."""
    return -price_of(row)


def _rank(row: Row) -> tuple[float, float]:
    return (inf if row.tightness is None else row.tightness), price_of(row)


def _no_row(rows: Sequence[Row]) -> ConfigError:
    problems = [row.problem for row in rows if row.problem is not None]
    one = "none could be replayed: " if len(set(problems)) == 1 else "none could be replayed; the first: "
    return ConfigError("space", f"{len(rows)} variants", f"{one}{problems[0] if problems else 'no row'}")
