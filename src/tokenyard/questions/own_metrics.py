"""What a metric of the caller's own rests on: everybody who came, a part of them, or how long the others have waited.

It is a function of a run, so it is called again with runs in which one thing differs:

    lower bounds of the report, or the ends by now of who is unfinished, later   it gets higher: it is a lower bound
    latencies that requests do not have, first 0 and then without end            it differs: it left them out

What only counts who has a latency, or takes a missing one as too long, says the same of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isnan

import numpy as np

from tokenyard.errors import ConfigError
from tokenyard.explain.population import SERVED, outcomes_of
from tokenyard.explain.table import Column, RowTable
from tokenyard.questions.run import RunResult

Measure = Callable[[RunResult], float | None]
"""A figure of one replay; None or NaN where it has none."""

_LATENCIES = ("queue_ms", "ttft_ms", "tpot_ms", "e2e_ms", "first_scheduled_s", "first_token_s", "finished_s")
_LATER = 1e12


def value_of(name: str, measure: Measure, run: RunResult) -> float | None:
    """Return a metric of a run. ConfigError where it is no number."""
    value = measure(run)
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError("metrics", name, f"returned {value!r}: return a number, or None") from None


class Basis:
    """What a metric of a run rests on."""

    def __init__(self, name: str, measure: Measure, run: RunResult) -> None:
        self._name, self._measure, self._run = name, measure, run
        self.value = value_of(name, measure, run)
        has_value = self.value is not None and not isnan(self.value)
        self.is_at_least = has_value and any(self._is_higher(other) for other in self._with_higher_bounds())
        """Whether it is a lower bound."""
        self.part = self._part() if has_value and not self.is_at_least else None
        """How many requests it is of, and how many came; None: of all."""

    def _is_higher(self, other: RunResult) -> bool:
        higher = value_of(self._name, self._measure, other)
        return higher is not None and self.value is not None and higher > self.value

    def _with_higher_bounds(self) -> Iterator[RunResult]:
        if self._run.report.censored:
            yield replace(self._run, report=self._run.report.with_higher_bounds())
        table = self._run.requests
        is_open = np.array([reason is None for reason in table["finish_reason"].tolist()], bool)
        if is_open.any():
            yield self._with("until_s", np.where(is_open, table["until_s"] + _LATER, table["until_s"]))

    def _part(self) -> tuple[int, int] | None:
        table = self._run.requests
        is_served = outcomes_of(table["finish_reason"].tolist()) == SERVED
        left_out = []
        for name in _LATENCIES:
            column = table[name]
            misses = np.isnan(column) & ~is_served
            if misses.any():
                soon, late = (
                    value_of(self._name, self._measure, self._with(name, np.where(misses, filled, column)))
                    for filled in (0.0, _LATER)
                )
                if late not in (self.value, soon):
                    left_out.append(int(misses.sum()))
        return (len(table) - max(left_out), len(table)) if left_out else None

    def _with(self, name: str, column: Column) -> RunResult:
        """Return the run with another column in its table of requests."""
        table = self._run.requests
        other = RowTable(table.name, {**table.to_numpy(), name: column})
        rows = self._run.rows.with_requests(other)
        return replace(self._run, result=replace(self._run.result, rows=rows))
