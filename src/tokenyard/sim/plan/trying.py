"""The variants of a plan, replayed one after the other: what is known of each, on disk where that is wanted."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tokenyard.sim.plan.goal import Goal, best_of, rival_of
from tokenyard.sim.plan.load import largest_load
from tokenyard.sim.sweep.journal import Journal
from tokenyard.sim.sweep.measuring import Measuring
from tokenyard.sim.sweep.row import Row, Settings, key_of

__all__ = ["Trying"]


class Trying:
    """Replays variants, and remembers what others have to beat. What a journal has is not replayed again."""

    def __init__(
        self,
        job: Measuring,
        goal: Goal,
        *,
        has_rivals: bool,
        journal: Journal | None = None,
        advance: Callable[[], None] = lambda: None,
    ) -> None:
        """``has_rivals``: a variant ends early where a cheaper one within the bounds cannot be beaten any more."""
        self.job = job
        self.goal = goal
        self._has_rivals = has_rivals
        self._journal = journal
        self._advance = advance
        self._rows: dict[str, Row] = {}
        self.best: Row | None = None
        """Of those that hold every bound."""

    @property
    def rows(self) -> list[Row]:
        """One of each variant that was tried, in their order."""
        return list(self._rows.values())

    @property
    def replays(self) -> int:
        """That all of them took, those of an earlier call included."""
        return sum(row.replays for row in self._rows.values())

    def evaluate(self, settings: Settings) -> Row:
        """One variant: its row, at the largest load that it bears where that is the goal."""
        row = None if self._journal is None else self._journal.get(settings)
        if row is None:
            row = self._at_load(settings) if self.goal is Goal.LOAD else self._once(settings)
            self._keep(row)
        self._rows[key_of(settings)] = row
        self._advance()
        self.best = best_of([row] if self.best is None else [self.best, row], self.goal)
        return row

    def run_on(self, row: Row, most: float) -> Row:
        """A row whose replay was ended early, with all its figures, unless one is beyond ``most`` times its bound."""
        again = self.job(row.settings, load=row.load, stops=True, slack=most)
        again = msgspec.structs.replace(again, replays=row.replays + again.replays)
        self._keep(again)
        self._rows[key_of(row.settings)] = again
        return again

    def _keep(self, row: Row) -> None:
        """On disk; what could not be replayed costs nothing to try again, and may have been mended."""
        if self._journal is not None and row.problem is None:
            self._journal.add(row)

    def _once(self, settings: Settings) -> Row:
        rival = rival_of(self.best, self.goal) if self._has_rivals and self.best is not None else None
        return self.job(settings, stops=True, rivals=[] if rival is None else [rival])

    def _at_load(self, settings: Settings) -> Row:
        found = largest_load(
            lambda load: self.job(settings, load=load, stops=True),
            must_bear=None if self.best is None else self.best.load,
            start=1.0,
        )
        row = found.borne or found.missed
        assert row is not None, "a search has replayed something"
        return msgspec.structs.replace(row, replays=found.replays)
