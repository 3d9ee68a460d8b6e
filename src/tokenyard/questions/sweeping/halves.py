"""Whether both halves of what follows the first third of a replay agree, as those of a steady state do."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import isfinite, nan, sqrt

import numpy as np
import numpy.typing as npt

from tokenyard.core.request import FinishReason, Request
from tokenyard.core.sched.observer import StepObserver
from tokenyard.explain.figures import percentile
from tokenyard.explain.population import FirstSent
from tokenyard.explain.slo import OF_NO_REQUEST, SLO
from tokenyard.explain.steady import FEWEST_ARRIVALS
from tokenyard.questions.by_class import classes_in
from tokenyard.workload.record import Workload

FloatArray = npt.NDArray[np.float64]

_DRIFT = 0.01
"""Share of the time by which requests may take longer while they arrive: as much more arrives than is served."""
_APART = 0.1
"""Share of a bound by which its figure may differ between halves that agree, if it is not by chance."""
_BATCHES, _SIGMAS = 8, 3.0
"""Parts of a half whose figures say how much is chance, and how many standard deviations that is taken to be."""


def has_pace(workload: Workload) -> bool:
    """Return whether there is a rate at which a workload could go on; a closed loop has that of its answers."""
    moments = [each.arrival_time for each in workload if not each.after]
    return workload.max_concurrency is None and len(moments) >= FEWEST_ARRIVALS and max(moments) > min(moments)


class Agreement(StrEnum):
    """Whether both halves of a replay agree."""

    WHOLE = "whole"
    NEARLY = "nearly"
    """Bounded figures differ, both within their bounds: by no more than chance makes of so many requests, or not so far
    that a third half which differs as much from the second would miss one."""
    NONE = "none"


class Halves(StepObserver):
    """Notes how long requests take, by when they came."""

    reads_tokens = False

    def __init__(self, slos: Sequence[SLO], workload: Workload, by: str | None = None) -> None:
        """``by``: the column that bounds of a class go by."""
        self._slos = [slo for slo in slos if slo.statistic is not None and slo.figure not in OF_NO_REQUEST]
        self._class_of = {} if by is None else classes_in(workload, by)
        self._last = max(each.arrival_time for each in workload if not each.after)
        self._first = FirstSent()
        self._columns = {name: array("d") for name in ("arrival", "queue", "ttft", "tpot", "e2e", "tokens")}
        self._classes: list[str] = []

    def request_finished(self, ts: float, request: Request) -> None:
        """Note one that has its whole answer."""
        times, reason = request.times, FinishReason.of(request.status)
        is_left = reason is FinishReason.ABORT
        user, came = self._first.user(request.request_id, request.arrival_time, is_cancelled=is_left)
        if is_left or reason is FinishReason.ERROR:
            return
        end = ts if times.finished is None else times.finished
        first = end if times.first_token is None else times.first_token
        started = first if times.first_scheduled is None else times.first_scheduled
        tokens = request.num_output_tokens
        pace = (end - first) / (tokens - 1) if tokens > 1 else nan
        told = (came, started - came, first - came, pace, end - came, tokens)
        for column, value in zip(self._columns.values(), told, strict=True):
            column.append(value)
        self._classes.append(self._class_of.get(user, ""))

    def agreement(self) -> Agreement:
        """Return whether requests do not take longer and longer, and bounded figures are alike in both halves."""
        found = Agreement.WHOLE
        columns = {name: np.array(column) for name, column in self._columns.items()}
        arrival, classes = columns["arrival"], np.array(self._classes)
        if not len(arrival):
            return Agreement.NONE
        # Those that come last have an engine that empties to themselves: they are not of the same state.
        first, last = float(arrival.min()), self._last - float(columns["e2e"].mean())
        start, middle = first + (last - first) / 3, first + (last - first) * 2 / 3
        halves = [(arrival > start) & (arrival <= middle), (arrival > middle) & (arrival <= last)]
        if not all(half.any() for half in halves):
            return Agreement.NONE
        before, after = (_takes(columns, half) for half in halves)
        if after - before > _DRIFT * (middle - start):
            return Agreement.NONE
        for slo in self._slos:
            own = np.full(len(arrival), True) if not slo.of else classes == slo.of
            parts = [columns[slo.figure][half & own] for half in halves]
            values = [_statistic(part, slo.statistic or "mean") for part in parts]
            apart = abs(values[1] - values[0])
            if not isfinite(apart) or apart <= _APART * slo.bound_ms / 1e3:
                continue
            bound, following = slo.bound_ms / 1e3, 2 * values[1] - values[0]
            says_other = min(values) <= bound < max(values)
            if (says_other or following > bound) and apart > _SIGMAS * _chance(parts, slo.statistic or "mean"):
                return Agreement.NONE
            found = Agreement.NEARLY
        return found

    def variation(self) -> float | None:
        """Return how unlike requests are: the standard deviation of the work that one brings, its gap to the one before
        it included, over the mean; None where there are too few.
        """
        arrival, stay = (np.array(self._columns[name]) for name in ("arrival", "e2e"))
        works = (stay - np.array(self._columns["queue"]), np.diff(np.sort(arrival)))
        if len(arrival) < FEWEST_ARRIVALS or not all(float(each.mean()) for each in works):
            return None
        return sqrt(sum((float(each.std(ddof=1)) / float(each.mean())) ** 2 for each in works))


def _takes(columns: Mapping[str, FloatArray], chosen: npt.NDArray[np.bool_]) -> float:
    """Seconds that a request of the mean length takes, which other lengths do not blur."""
    pace = columns["tpot"][chosen]
    pace = pace[~np.isnan(pace)]
    further = float(columns["tokens"].mean()) - 1
    return float(columns["ttft"][chosen].mean()) + (float(pace.mean()) * further if len(pace) else 0.0)


def _chance(halves: Sequence[FloatArray], statistic: str) -> float:
    """Standard deviation of the difference of a statistic between halves: by what it is in parts of them."""
    variance = 0.0
    for half in halves:
        found = np.array([_statistic(part, statistic) for part in np.array_split(half, _BATCHES)])
        found = found[~np.isnan(found)]
        variance += float(found.var(ddof=1)) / len(found) if len(found) > 1 else 0.0
    return sqrt(variance)


def _statistic(values: FloatArray, statistic: str) -> float:
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return nan
    if statistic == "mean":
        return float(known.mean())
    return percentile(known, 100.0 if statistic == "max" else float(statistic[1:]))
