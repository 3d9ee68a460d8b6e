"""The comparison: every policy on every workload, at every load, for every seed.

All policies see the same workloads, so their ratios are taken seed by seed and only then averaged: what a seed makes
easy or hard for everybody cancels out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tokenyard.errors import ConfigError
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.slo import SLO
from tokenyard.policies.named import PolicyMaker
from tokenyard.sched.observer import Observers
from tokenyard.sim.choices import PolicyChoice, policy_choices
from tokenyard.sim.compare.intervals import Interval, interval
from tokenyard.sim.compare.measures import METRICS, JobTimes, Metric, MetricValues, measures_of
from tokenyard.sim.replay import Progress
from tokenyard.sim.settings import ReplaySettings, replay_engines
from tokenyard.sim.workload.record import Workload
from tokenyard.trace.emit.recorder import TraceRecorder
from tokenyard.trace.format.deployment import Deployment

__all__ = ["Cell", "Comparison", "compare"]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One policy at one load."""

    policy: str
    load: float
    metrics: dict[str, Interval]
    speedup: Interval
    """Job completion time of the first policy over this one's, seed by seed: above 1 is faster."""
    refused: int
    """Requests refused and turns left out after them, all seeds together."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Cells by load, then by policy; the first policy is the baseline."""

    workload: str
    policies: tuple[str, ...]
    loads: tuple[float, ...]
    seeds: tuple[int, ...]
    cells: list[Cell]
    header: Deployment | None = None
    """What is served, and what was assumed; None if the caller does not say."""

    @property
    def baseline(self) -> str:
        return self.policies[0]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What was measured, in the order of the table."""
        return tuple(metric for metric in METRICS if metric.name in self.cells[0].metrics)

    def cell(self, policy: str, load: float) -> Cell:
        """KeyError if it was not compared."""
        for each in self.cells:
            if each.policy == policy and each.load == load:
                return each
        raise KeyError((policy, load))


OnProgress = Callable[[str, float, int, Progress], None]
"""Policy, load, seed, and how far that replay has come."""


def compare(
    policies: Sequence[PolicyChoice] | Mapping[str, PolicyChoice],
    workload: Callable[[int], Workload],
    settings: ReplaySettings,
    *,
    loads: Sequence[float] = (1.0,),
    seeds: Sequence[int] = (0,),
    slos: Sequence[SLO] = (),
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Replay ``workload(seed)``, arriving ``load`` times as fast, under every policy, each in a state of its own;
    ``slos`` are what goodput is counted by.

    A policy is a registered name, ``FILE.py:CLASS``, a class, or a function that makes one; a mapping says what each is
    called. Intervals are of 95 %. Raises ConfigError for a policy that nobody knows, a list that is empty or says a
    thing twice, or a load that is none.
    """
    makers = policy_choices(policies)
    for field, values in (("loads", loads), ("seeds", seeds)):
        if not values or len(set(values)) < len(values):
            raise ConfigError(field, ",".join(map(str, values)), "name at least one, and none twice")
    made = {seed: workload(seed) for seed in seeds}
    cells: list[Cell] = []
    for load in loads:
        at_load = {seed: made[seed].with_rate(load) for seed in seeds}
        baseline: list[float] = []
        for policy in makers:
            runs, refused = [], 0
            for seed in seeds:
                listener = _listener(on_progress, policy, load, seed)
                run, left = _run(makers[policy], at_load[seed], settings.seeded(seed), listener, slos)
                runs.append(run)
                refused += left
            times = [run["completion_s"] for run in runs]
            baseline = baseline or times
            speedups = [_ratio(before, seconds) for before, seconds in zip(baseline, times, strict=True)]
            cells.append(_cell(policy, load, runs, speedups, refused))
    return Comparison(
        workload=made[seeds[0]].name, policies=tuple(makers), loads=tuple(loads), seeds=tuple(seeds), cells=cells
    )


def _ratio(baseline: float, seconds: float) -> float:
    return baseline / seconds if seconds else 1.0


def _cell(policy: str, load: float, runs: list[MetricValues], speedups: list[float], refused: int) -> Cell:
    metrics = {name: interval([run[name] for run in runs]) for name in runs[0]}
    return Cell(policy=policy, load=load, metrics=metrics, speedup=interval(speedups), refused=refused)


def _listener(on_progress: OnProgress | None, policy: str, load: float, seed: int) -> Callable[[Progress], None] | None:
    return None if on_progress is None else lambda progress: on_progress(policy, load, seed, progress)


def _run(
    make: PolicyMaker,
    workload: Workload,
    settings: ReplaySettings,
    on_progress: Callable[[Progress], None] | None,
    slos: Sequence[SLO],
) -> tuple[MetricValues, int]:
    """One replay: its measures, and how many requests were not served."""
    jobs = JobTimes()
    builders = [ReportBuilder(slos) for _ in range(settings.fleet.num_engines)]
    result = replay_engines(
        workload,
        settings,
        observers=[Observers(TraceRecorder(None, each), jobs) for each in builders],
        policies=[make() for _ in builders],
        on_progress=on_progress,
    )
    whole = builders[0] if len(builders) == 1 else ReportBuilder.joined(builders)
    return measures_of(whole.report(), jobs), len(result.refused) + result.num_left_out
