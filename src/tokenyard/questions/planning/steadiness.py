"""Traffic that goes on until a variant shows its steady state, or that it has none.

    400 requests in 20 s        answers of 7 s: what has begun is not yet what goes on
    800, 1,600 ...              more of the same, until both halves of what follows the first third agree

A short log fills an empty server, which looks as if it bore more than it does. So no bound holds, and no load is borne,
by a replay in which requests take longer and longer, or of which the second half would say another thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil, sqrt

import msgspec

from tokenyard.explain.steady import ANSWERS_LONG, LoadState
from tokenyard.questions.scenario import Scenario
from tokenyard.questions.sweeping.halves import has_pace
from tokenyard.questions.sweeping.measuring import PreparedVariant, VariantSource, VariantWorker
from tokenyard.questions.sweeping.rows import Row, Settings
from tokenyard.questions.variant_sources import KnownSource, WorkloadVariants
from tokenyard.quick_dataclass import dataclass
from tokenyard.workload.load import GENERATORS, files_named
from tokenyard.workload.record import Workload
from tokenyard.workload.stretches import repeated

MOST_REQUESTS = 8_000
"""Requests beyond which traffic is not made longer; a workload that has more is replayed as it is."""
FEWEST_TO_LOOK = 400
"""Requests with which a load is looked for, before it is decided with more of them."""
FEWEST_FOR_LOAD = 5_000
"""Requests without which no load of drawn traffic is said to be borne: the rate of fewer is itself a matter of luck by
some percent."""
FEWEST_OF_A_LOG = 1_000
"""The same of a log that is repeated, whose rate is always its own."""
_LONGER = 4
"""Times :data:`FEWEST_TO_LOOK` from which on a workload is as long as what decides."""
_ANSWERS = 6
"""Times the mean answer, or session, that arrivals are made to go on for to begin with."""


@dataclass(frozen=True, kw_only=True)
class LongerSource:
    """The variants of another source, with so many times the traffic."""

    source: VariantSource
    times: int

    def prepared(self, settings: Settings) -> PreparedVariant:
        """The variant. Raises TokenyardError as the other source does."""
        if isinstance(self.source, WorkloadVariants):
            drawn = drawn_longer(self.source.run, self.source.workload, self.times)
            if drawn is not None:
                return WorkloadVariants(drawn).prepared(settings)
        variant = self.source.prepared(settings)
        if not has_pace(variant.workload):  # its settings make it a closed loop, or send all at once
            return variant
        return msgspec.structs.replace(variant, workload=repeated(variant.workload, self.times))


def drawn_longer(scenario: Scenario, workload: Workload, times: int) -> Scenario | None:
    """Return the scenario whose built-in workload draws so many times as many requests or sessions; None: it is read.

    ``workload`` is what it draws as it is.
    """
    name, arrivals = scenario.workload, scenario.arrivals
    if not isinstance(name, str) or name not in GENERATORS or files_named(name, format=arrivals.format) is not None:
        return None
    count = times * sum(not each.after for each in workload)
    if name == "random":
        return replace(scenario, arrivals=replace(arrivals, num_prompts=count, limit=None))
    return replace(scenario, arrivals=replace(arrivals, limit=count))


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How long the traffic of a plan is made. It can be pickled."""

    job: VariantWorker
    """Measures variants with the traffic as it is."""
    most: int
    """Times that it is made as long at most; 1: it stays as it is."""
    fewest: int = FEWEST_FOR_LOAD
    """Requests without which no load is said to be borne."""
    looks: bool = False
    """It is only looked where the largest load is: what may be chance is not replayed again."""

    @property
    def looking(self) -> Lengths | None:
        """The same to look where the largest load is; None where traffic is long already."""
        is_long = _LONGER * self.most * FEWEST_TO_LOOK > MOST_REQUESTS
        return replace(self, fewest=FEWEST_TO_LOOK, looks=True) if is_long else None

    @property
    def enough(self) -> int:
        """Times that the traffic is made as long for the fewest requests; fewer of them may miss a bound by chance."""
        return ceil(self.fewest * self.most / MOST_REQUESTS)

    @classmethod
    def of(cls, job: VariantWorker, workload: Workload) -> Lengths:
        """Return what makes ``workload`` longer where it has a pace to go on at."""
        is_drawn = isinstance(job.source, WorkloadVariants) and drawn_longer(job.source.run, workload, 1) is not None
        most = max(MOST_REQUESTS // len(workload), 1) if has_pace(workload) else 1
        return cls(job=job, most=most, fewest=FEWEST_FOR_LOAD if is_drawn else FEWEST_OF_A_LOG)

    def chance(self, row: Row) -> float | None:
        """Return the share of a load that is a matter of luck: of which requests are drawn, or a log happens to have.

        What is repeated says no more of others than it does once.
        """
        drawn = row.requests if self.fewest == FEWEST_FOR_LOAD else row.requests / row.times
        return None if row.variation is None else 2 * row.variation / sqrt(max(drawn, 1))

    def worker(self, times: int) -> VariantWorker:
        """Return what measures variants with so many times the traffic."""
        return self.job if times == 1 else replace(self.job, source=LongerSource(source=self.job.source, times=times))

    def settled(self, at: Callable[[VariantWorker], Row], times: int = 1) -> tuple[Row, int]:
        """Replay ``at`` longer and longer traffic until the row shows a steady state of many requests, or none, or
        there is no longer traffic.

        Return the row, and the replays that took.
        """
        replays = 0
        while True:
            row = msgspec.structs.replace(at(self.worker(times)), times=times)
            replays += 1
            is_little = row.state is LoadState.STEADY and row.met is not False and row.requests < self.fewest
            if not self.may_settle(row) and (times >= self.most or not is_little):
                # There is no longer traffic that would tell chance from a trend.
                is_steady = row.nearly_steady and times >= self.most
                return (msgspec.structs.replace(row, state=LoadState.STEADY) if is_steady else row), replays
            is_little |= self.is_chance(row)
            enough = ceil(self.fewest * times / max(row.requests, 1)) if is_little else 1
            times = min(max(self.after(row) if self.may_settle(row) else times, enough), self.most)

    def may_settle(self, row: Row) -> bool:
        """Return whether longer traffic may show what a row within its bounds does not: a steady state, or none."""
        return row.times < self.most and is_unsettled(row) and not (self.looks and self.is_chance(row))

    @staticmethod
    def is_chance(row: Row) -> bool:
        """Return whether a row is unsettled though arrivals went on for long: what it shows may be chance."""
        return is_unsettled(row) and row.answers_long is not None and row.answers_long >= ANSWERS_LONG

    def after(self, row: Row) -> int:
        """Return how many times the traffic is to be as long after a row that was not steady."""
        return min(max(2 * row.times, ceil(self.wanted(row))), self.most)

    @staticmethod
    def wanted(row: Row) -> float:
        """Return how many times the traffic has to be as long for arrivals to outlast such answers by far."""
        return row.times * _ANSWERS / row.answers_long if row.answers_long else 1.0


def is_settled(row: Row) -> bool:
    """Return whether a row stays as it is with longer traffic: it cannot be replayed, or a bound is missed already."""
    return row.problem is not None or row.met is False


def is_unsettled(row: Row) -> bool:
    """Return whether a row within its bounds shows neither a steady state nor that there is none."""
    return row.is_measured and row.met is not False and row.state is LoadState.SHORT


# ---------------------------------------------------------------------------------------------------------------------
# The same in words.


def traffic_in_words(source: KnownSource, row: Row) -> str | None:
    """Return what was done to the traffic of a row, so that it shows a steady state; None: it is as it was given."""
    if row.times == 1:
        return None
    many = f"{row.requests:,} requests, {row.times:,} times as many as given"
    if isinstance(source, WorkloadVariants) and drawn_longer(source.run, source.workload, row.times) is not None:
        return f"{many}, drawn at the same rate"
    return f"{many}: the same again and again at the same rate, with prompts that share nothing with those before"


def unsteady_of(workload: Workload, row: Row) -> Iterator[str]:
    """Sentences on why the figures of a row are not those of a steady state; none where they are."""
    if row.state is LoadState.STEADY or workload.max_concurrency is not None:
        return
    if row.state is LoadState.SHORT:
        yield (
            f"no steady state was shown in {row.requests:,} requests, the most that are replayed for it: figures are of"
            " a server that fills, and no load is stated"
        )
    elif not has_pace(workload):
        yield (
            f"the figures are of these {len(workload):,} requests, once, from an empty server on: they are too few, or"
            " come all at once, so there is no rate that could go on, and no largest load"
        )
