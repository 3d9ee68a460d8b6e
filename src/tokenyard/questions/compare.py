"""Policies side by side: the same workloads replayed under each, with confidence intervals and a drawing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf, sqrt
from operator import attrgetter
from os import PathLike
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Unpack, cast

import msgspec

from tokenyard.arguments import given_function, given_text
from tokenyard.core.config import require_int
from tokenyard.core.request import FinishReason, Request, RequestStatus
from tokenyard.core.sched.observer import Observers, StepObserver
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.given import changed
from tokenyard.deploy.header import with_idle_policies, with_oracles
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import ConfigError, PolicyError, TokenyardError, WorkloadError
from tokenyard.explain.figures import percentile
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.classes import Classes, classes_of
from tokenyard.explain.report.report import Report
from tokenyard.explain.slo import OF_NO_REQUEST, SLO, SLOs, slo_texts
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.policies.named import PolicyMaker
from tokenyard.questions.by_class import column_called, grouped_by_class, read_bounds
from tokenyard.questions.chart import COLOURS, Chart
from tokenyard.questions.scenario import (
    Scenario,
    WorkloadChoice,
    deployment_settings,
    replay_spec,
    takes_arrivals,
    traffic_by_name,
)
from tokenyard.questions.space import Space, grid_of
from tokenyard.questions.sweeping.rows import NotAnswered, settings_in_words, word_of
from tokenyard.questions.variant_sources import WorkloadVariants
from tokenyard.questions.variants import is_load
from tokenyard.record.recorder import TraceRecorder
from tokenyard.sim.choices import PolicyChoice, policy_choices
from tokenyard.sim.replay import replay_engines
from tokenyard.sim.rows.rows import ReplayRows, RowsOfEngine
from tokenyard.sim.settings import ReplaySettings
from tokenyard.sim.traffic import Progress
from tokenyard.trace.start import DeploymentHeader as Header
from tokenyard.units import count_of
from tokenyard.workload.load import doubt_of_policy
from tokenyard.workload.record import Workload

if TYPE_CHECKING:
    from tokenyard.questions.keywords import TrafficKeywords

# ---------------------------------------------------------------------------------------------------------------------
# A mean over seeds with its 95 % confidence interval (Student's t).

_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""0.975 quantiles of Student's t for 1, 2, ... degrees of freedom; beyond them the normal one is used."""


class Interval(msgspec.Struct, frozen=True):
    """``mean`` plus or minus ``half``; None where one seed cannot tell."""

    mean: float
    half: float | None = None

    def __str__(self) -> str:
        return _digits(self.mean) if self.half is None else f"{_digits(self.mean)} ± {_digits(self.half)}"


def interval(values: Sequence[float]) -> Interval:
    """The mean of at least one value, and how far it may be off."""
    if len(values) < 2:
        return Interval(values[0])
    quantile = _T[len(values) - 2] if len(values) - 2 < len(_T) else 1.96
    return Interval(fmean(values), quantile * stdev(values) / sqrt(len(values)))


def _digits(value: float) -> str:
    """Three significant digits, no exponent."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


# ---------------------------------------------------------------------------------------------------------------------
# What one replay is measured by.


class Metric(msgspec.Struct, frozen=True):
    """One column."""

    name: str
    heading: str
    meaning: str
    with_interval: bool = False
    """The table has room for it; JSON always has them."""
    legend_as: str | None = None
    """What the legend calls it; None: its heading."""

    @property
    def legend(self) -> tuple[str, str]:
        """What it is called, and what it means."""
        return self.legend_as or self.heading, self.meaning


METRICS = (
    Metric(
        "completion_s",
        "job s",
        "mean job completion time in seconds: a job's first arrival to its last turn's end",
        True,
    ),
    Metric("completion_p90_s", "p90", "90th percentile of it"),
    Metric("ttft_s", "TTFT s", "mean seconds from a turn's arrival to its first token", True),
    Metric("goodput", "good %", "share of requests that ended whole and within every bound of --slo", True),
    Metric("output_tokens_per_s", "tok/s", "output tokens per second of the run"),
    Metric("hit_rate", "hit %", "share of prompt tokens found in the prefix cache when a turn is first admitted"),
    Metric("prefill_tokens", "prefilled", "prompt tokens not found there, so computed, many of them again"),
    Metric("preemptions", "preempt", "running requests that lost their blocks"),
    Metric("recomputed_tokens", "redone", "tokens computed again after a preemption"),
    Metric("fairness", "fairness", "Jain's index over classes of their end-to-end time per output token: 1 is alike"),
    Metric("acceptance_rate", "acc %", "share of draft tokens that the model accepted (speculative decoding only)"),
)


def _metric_of_class(name: str) -> Metric:
    """The metric of a class's figure: ``interactive:ttft_p95_s``."""
    own, _, figure = name.rpartition(":")
    heading, meaning = _OF_CLASSES[figure]
    return Metric(name, f"{own} {heading}", meaning, figure == "ttft_p95_s", heading)


_OF_CLASSES = {
    "ttft_p95_s": ("TTFT p95 s", "of a class: 95th percentile of seconds from a turn's arrival to its first token"),
    "e2e_p95_s": ("E2E p95 s", "of a class: 95th percentile of seconds from a turn's arrival to its end"),
    "goodput": ("good %", "share of requests, or of a class, that ended whole and within every bound of --slo"),
}

MetricValues = dict[str, float]
"""Metric name -> value of one replay."""

_WHOLE = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.REPETITION)
"""Ends of requests that were served."""


class JobTimes(StepObserver):
    """Notes when jobs begin and end, on one engine or several. A request without a job is a job of its own."""

    reads_tokens = False

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._broken: set[str] = set()
        """Jobs of which a turn was not served to its end."""
        self.prompt_tokens = 0
        self.hit_tokens = 0

    @property
    def seconds(self) -> list[float]:
        """Completion time of every job of which a turn has ended; at least, where :attr:`is_broken`."""
        return [end - self._begun[job] for job, end in self._ended.items()]

    @property
    def is_broken(self) -> bool:
        """Whether a job has not come to its end: a turn of it was refused, given up or lost."""
        return bool(self._broken) or len(self._ended) < len(self._begun)

    def request_arrived(self, ts: float, request: Request) -> None:
        job = request.job_id or request.request_id
        self._begun[job] = min(request.arrival_time, self._begun.get(job, inf))

    def request_refused(self, ts: float, request: Request) -> None:
        self.request_arrived(ts, request)
        self.request_finished(ts, request)

    def request_finished(self, ts: float, request: Request) -> None:
        if request.status is RequestStatus.FINISHED_MOVED:
            return
        job = request.job_id or request.request_id
        self._ended[job] = ts
        if FinishReason.of(request.status) not in _WHOLE:
            self._broken.add(job)

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        self.prompt_tokens += request.num_prompt_tokens
        self.hit_tokens += local + external


def measures_of(report: Report, jobs: JobTimes) -> MetricValues:
    """The run's value of every metric it has; a run in which nothing ended has zeros."""
    times = sorted(jobs.seconds)
    hits, prompts = jobs.hit_tokens, jobs.prompt_tokens
    drafts = report.speculation
    goodput = report.goodput
    good = {} if goodput is None or goodput.share is None else {"goodput": 100.0 * goodput.share}
    accepted = {} if drafts is None else {"acceptance_rate": 100.0 * (drafts.acceptance_rate or 0.0)}
    return {
        "completion_s": sum(times) / len(times) if times else 0.0,
        "completion_p90_s": percentile(times, 90) if times else 0.0,
        "ttft_s": (report.ttft_ms.mean or 0.0) / 1e3,
        "output_tokens_per_s": report.throughput.output_tokens_per_s or 0.0,
        "hit_rate": 100.0 * hits / prompts if prompts else 0.0,
        "prefill_tokens": float(prompts - hits),
        "preemptions": float(report.preemptions or 0),
        "recomputed_tokens": float(report.recomputed_tokens or 0),
        **good,
        **accepted,
    }


def lower_bounds_of(report: Report, jobs: JobTimes) -> frozenset[str]:
    """Names of metrics that are at least what :func:`measures_of` says: some of those who came were not served."""
    found = {"completion_s", "completion_p90_s"} if jobs.is_broken else set()
    return frozenset(found | ({"ttft_s"} if "mean" in report.ttft_ms.censored else set()))


class Replayed(msgspec.Struct, frozen=True):
    """What one replay comes to."""

    metrics: MetricValues
    refused: int
    """Requests refused and turns left out after them."""
    lower_bounds: frozenset[str]
    """Names of metrics that are lower bounds."""


# ---------------------------------------------------------------------------------------------------------------------
# The comparison: every policy on every workload, at every load, for every seed.
#
# All policies see the same workloads, so their ratios are taken seed by seed and only then averaged: what a seed
# makes easy or hard for all of them cancels out.


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One policy at one load."""

    policy: str
    load: float
    metrics: dict[str, Interval]
    speedup: Interval
    """Job completion time of the first policy over this one's, seed by seed: above 1 is faster."""
    refused: int
    """Requests refused and turns left out after them, all seeds together."""
    lower_bounds: list[str] = []
    """Metrics whose mean is a lower bound, since that of a seed is: it rests on requests that were not served."""
    speedup_is_open: bool = False
    """Job completion times of it or of the first policy are lower bounds: which is faster is open."""


class Comparison(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """Policies side by side: cells by load, then by policy; the first policy is the baseline."""

    printer = "tokenyard.questions.printing.policies:print_policies"

    workload: str
    policies: tuple[str, ...]
    """What they are called; variants of the deployment, where those are compared."""
    loads: tuple[float, ...]
    seeds: tuple[int, ...]
    cells: list[Cell]
    of_settings: bool = False
    """Variants of the deployment are compared, under its own policy."""
    idle: dict[str, str] = msgspec.field(default_factory=dict)
    """Policies that find nothing in the workload to decide by, and why."""
    header: Header | None = None
    """What is served, and what was assumed; None if the caller does not say."""
    not_compared: list[NotAnswered] = msgspec.field(default_factory=list)
    """Policies or variants that cannot run; they have no cell."""

    def summary(self) -> str:
        loads = ", ".join(f"{load:g}" for load in self.loads)
        return f"{', '.join(self.policies)} on {self.workload} at load {loads}, {count_of(len(self.seeds), 'seed')}"

    def as_table(self) -> RowTable:
        """One row per load and policy: ``load``, ``policy``, ``speedup`` and every metric's mean, each with half the
        width of its interval of 95 % (``speedup_half`` ...; missing with one seed).
        """
        return table_from(
            "cells",
            [
                {
                    "load": cell.load,
                    "policy": cell.policy,
                    "refused": cell.refused,
                    "lower_bounds": " ".join(cell.lower_bounds) or None,
                }
                | dict(
                    part
                    for name, value in {"speedup": cell.speedup, **cell.metrics}.items()
                    for part in ((name, value.mean), (f"{name}_half", value.half))
                )
                for cell in self.cells
            ],
            numbers=[f"{name}_half" for name in ("speedup", *self.cells[0].metrics)],
        )

    def draw(self, metric: str = "completion_s", title: str | None = None) -> str:
        """A drawing as SVG: a metric over load, a line per policy, whiskers for the intervals.

        Raises ConfigError for a metric that was not measured.
        """
        known = self.cells[0].metrics
        if metric not in known:
            raise ConfigError("metric", metric, f"use one of: {', '.join(known)}")
        return _drawn(self, metric, title or (metric if metric != "completion_s" else "mean job completion time (s)"))

    def _repr_html_(self) -> str:
        return f"{self.draw()}{super()._repr_html_()}"

    @property
    def baseline(self) -> str:
        """The policy that speedups are of."""
        return self.policies[0]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What was measured, in the order of the table."""
        measured = self.cells[0].metrics
        general = [metric for metric in METRICS if metric.name in measured]
        return (*general, *(_metric_of_class(name) for name in measured if ":" in name))

    def cell(self, policy: str, load: float) -> Cell:
        """KeyError if it was not compared."""
        for each in self.cells:
            if each.policy == policy and each.load == load:
                return each
        raise KeyError((policy, load))


OnProgress = Callable[[str, float, int, Progress], object]
"""Policy, load, seed, and how far that replay has come."""
Policies = Sequence[PolicyChoice] | Mapping[str, PolicyChoice]
"""Names, ``FILE.py:CLASS``, classes, or functions that make one; a mapping says what each is called."""

MOST_SEEDS = 1000


def require_several(loads: Sequence[float], seeds: Sequence[int]) -> None:
    """Raise ConfigError unless both are several, each of them once."""
    for name, given in (("loads", loads), ("seeds", seeds)):
        if isinstance(given, str) or not isinstance(given, Collection):
            raise ConfigError(name, given, "give several: [1.0, 2.0]" if name == "loads" else "give several: range(3)")
        if not len(given) or len(set(given)) < len(given):
            raise ConfigError(name, ",".join(map(str, given)), "name at least one, and none twice")
    require_int("seeds", len(seeds), 1, MOST_SEEDS)


@takes_arrivals
def compare(
    workload: WorkloadChoice | Callable[[int], Workload],
    deployment: Deployment | ReplaySettings,
    policies: Policies | None = None,
    *,
    space: Space | None = None,
    loads: Sequence[float] = (1.0,),
    seeds: Sequence[int] = (0,),
    slo: SLOs = None,
    by: str | None = None,
    progress: OnProgress | None = None,
    **arrivals: Unpack[TrafficKeywords],
) -> Comparison:
    """Replay a workload under every policy, at every load, with every seed; the first policy is the baseline.

    With ``space`` instead (``{"max_num_seqs": [64, 256]}``, as for :func:`tokenyard.sweep`) every combination of its
    settings is compared with the deployment as it is.

    ``workload``: as for :func:`tokenyard.run`, or a function that makes one of a seed. ``deployment``: one, or the
    settings of a replay. A policy is a registered name, ``FILE.py:CLASS``, a class, or a function that makes one; a
    mapping says what each is called. ``slo``: bounds that a request can hold, which goodput is counted by. ``by``: a
    column that says of which class a request is (``priority``, ``tier``, ...): figures of each class, fairness among
    them, and bounds of one (``interactive:ttft:1000``). ``progress`` is called with policy, load, seed and how far that
    replay has come. ``arrivals``: as for :func:`tokenyard.run`. ``loads`` are factors of the arrival rate. Intervals
    are of 95 %. Raises ConfigError for a policy that is not known, a list that is empty or says a thing twice, or a
    load that is none.
    """
    require_several(loads, seeds)
    given_function("progress", progress, "give a function of policy, load, seed and how far that replay is")
    if by is not None:
        given_text("by", by, "give the name of a column, as a text")
    if isinstance(deployment, ReplaySettings):
        is_made = callable(workload) or isinstance(workload, Workload)
        if arrivals or not is_made or space is not None or policies is None:
            fix = "settings of a replay take policies, and a Workload or a function that makes one of a seed: give a "
            raise ConfigError("workload", workload, f"{fix}Deployment")
        made = partial(_same, workload) if isinstance(workload, Workload) else cast(Callable[[int], Workload], workload)
        slos = _countable(read_bounds(slo_texts(slo), by))
        choices = {name: _Choice(maker, deployment) for name, maker in policy_choices(policies).items()}
        return _compared(choices, made, loads=loads, seeds=seeds, slos=slos, by=by, on_progress=progress)
    if isinstance(deployment, str | PathLike):
        fix = 'give a Deployment("vllm serve MODEL ...", gpu="h100"); compare_recordings() compares two traces'
        raise ConfigError("deployment", deployment, fix)
    named, make = ("", workload) if callable(workload) else (workload, None)
    scenario = Scenario.of(
        deployment_settings(deployment), named, arrivals=traffic_by_name(arrivals), slo=slo_texts(slo), by=by
    )
    return ask(scenario, policies, space=space, loads=loads, seeds=seeds, make=make, on_progress=progress)


def _same(workload: Workload, _: int) -> Workload:
    """For every seed."""
    return workload


class _Choice(msgspec.Struct, frozen=True):
    """One of those that are compared: a policy, or a variant of the deployment."""

    policy: PolicyMaker
    settings: ReplaySettings


def _variants(
    scenario: Scenario, space: Space, first: ReplaySpec, space_name: str
) -> tuple[dict[str, _Choice], list[NotAnswered]]:
    """The deployment as it is, and with every combination of the settings of ``space``; those that cannot start apart.

    Raises TokenyardError.
    """
    found: dict[str, _Choice] = {}
    failed: list[NotAnswered] = []
    for settings in ({}, *grid_of(space, WorkloadVariants(scenario), space_name).all()):
        for name, value in settings.items():
            if is_load(name):
                raise ConfigError(
                    space_name, f"{name}={word_of(value)}", "all variants get the same requests: use §loads"
                )
            if name in ("split", "kv_link_gb_per_s"):
                fix = "a split is no single deployment: `tokenyard plan` and `tokenyard sweep` compare splits"
                raise ConfigError(space_name, f"{name}={word_of(value)}", fix)
        name = settings_in_words(settings)
        try:
            spec = replay_spec(changed(scenario, settings), first.workload) if settings else first
        except TokenyardError as error:
            failed.append(NotAnswered.by(name, error))
            continue
        found[name] = _Choice(spec.policy, spec.replays(skip_refused=scenario.arrivals.skip_refused))
    return found, failed


def ask(
    scenario: Scenario,
    policies: Policies | None,
    *,
    space: Space | None = None,
    space_name: str = "space",
    loads: Sequence[float],
    seeds: Sequence[int],
    make: Callable[[int], Workload] | None = None,
    on_read: Callable[[Workload], None] | None = None,
    on_progress: OnProgress | None = None,
) -> Comparison:
    """The same for a scenario, whose workload is read, or made by ``make``, for every seed.

    Raises TokenyardError; what is wrong with the space is told as ``space_name``.
    """
    require_several(loads, seeds)
    if scenario.arrivals.client_timeout is not None:
        fix = "jobs are compared whole: leave it out, or compare traces of two runs with it"
        raise ConfigError("client_timeout", scenario.arrivals.client_timeout, fix)
    if (policies is None) == (space is None):
        fix = "compare policies, or settings (scheduling_policy among them): give one of the two"
        raise ConfigError(space_name if space is not None else "policies", space or policies, fix)
    slos = _countable(read_bounds(scenario.slo, scenario.by))
    scenario = replace(scenario, slo=())

    def setup_of(seed: int) -> ReplaySpec:
        of_seed = replace(scenario, arrivals=replace(scenario.arrivals, seed=seed))
        return replay_spec(of_seed if make is None else replace(of_seed, workload=make(seed)))

    first = setup_of(seeds[0])
    if on_read is not None:
        on_read(first.workload)
    failed: list[NotAnswered] = []
    if space is not None:
        choices, failed = _variants(scenario, space, first, space_name)
    else:
        assert policies is not None
        settings = first.replays(skip_refused=scenario.arrivals.skip_refused)
        choices = {name: _Choice(maker, settings) for name, maker in policy_choices(policies).items()}
    comparison = _compared(
        choices,
        lambda seed: first.workload if seed == seeds[0] else setup_of(seed).workload,
        loads=loads,
        seeds=seeds,
        slos=slos,
        by=scenario.by,
        on_progress=on_progress,
    )
    if comparison.cells[0].metrics["output_tokens_per_s"].mean == 0:
        fix = "§skip_refused leaves none of its requests; without it, the first one's problem is named"
        raise WorkloadError(scenario.name, 0, fix)
    if space is not None or isinstance(policies, Mapping):
        named = []
    else:
        named = [each for each in policies or () if isinstance(each, str)]
    header = with_idle_policies(with_oracles(first.deployment, named), named, first.workload)
    doubts = {name: doubt_of_policy(name, first.workload) for name in named}
    idle = {name: doubt for name, doubt in doubts.items() if doubt is not None}
    failed += comparison.not_compared
    return msgspec.structs.replace(
        comparison, header=header, of_settings=space is not None, idle=idle, not_compared=failed
    )


def _countable(slos: Sequence[SLO]) -> Sequence[SLO]:
    """Bounds; ConfigError if no request can hold any of them."""
    if slos and all(slo.statistic == "mean" or slo.figure in OF_NO_REQUEST for slo in slos):
        fix = "policies are compared by requests within bounds: give one that a request can hold, for example ttft:500"
        raise ConfigError("slo", ", ".join(map(str, slos)), fix)
    return slos


def _compared(
    choices: Mapping[str, _Choice],
    workload: Callable[[int], Workload],
    *,
    loads: Sequence[float],
    seeds: Sequence[int],
    slos: Sequence[SLO],
    by: str | None,
    on_progress: OnProgress | None,
) -> Comparison:
    """Every policy in a state of its own for each load and seed; one that cannot run is named, and has no cell.

    Raises TokenyardError for a policy that breaks its contract, and where none can run.
    """
    made = {seed: workload(seed) for seed in seeds}
    runs: dict[tuple[float, str], list[Replayed]] = {}
    failed: dict[str, TokenyardError] = {}
    for load in loads:
        at_load = {seed: made[seed].with_rate(load) for seed in seeds}
        for policy in [each for each in choices if each not in failed]:
            listeners = {seed: _listener(on_progress, policy, load, seed) for seed in seeds}
            try:
                runs[load, policy] = [
                    _run(choices[policy], seed, at_load[seed], listeners[seed], slos, by) for seed in seeds
                ]
            except PolicyError:
                raise
            except TokenyardError as error:
                failed[policy] = error
    compared = tuple(policy for policy in choices if policy not in failed)
    if not compared:
        raise next(iter(failed.values()))
    return Comparison(
        workload=made[seeds[0]].name,
        policies=compared,
        loads=tuple(loads),
        seeds=tuple(seeds),
        cells=[
            _cell(policy, load, runs[load, policy], runs[load, compared[0]]) for load in loads for policy in compared
        ],
        not_compared=[NotAnswered.by(policy, error) for policy, error in failed.items()],
    )


def _ratio(baseline: float, seconds: float) -> float:
    return baseline / seconds if seconds else 1.0


def _cell(
    policy: str,
    load: float,
    replays: Sequence[Replayed],
    baseline: Sequence[Replayed],
) -> Cell:
    """What the replays of a policy, one per seed, come to beside those of the baseline."""
    runs = [replay.metrics for replay in replays]
    speedups = [
        _ratio(before.metrics["completion_s"], run["completion_s"]) for before, run in zip(baseline, runs, strict=True)
    ]
    shared = [name for name in runs[0] if all(name in run for run in runs)]
    lower = frozenset[str]().union(*[replay.lower_bounds for replay in replays])
    return Cell(
        policy=policy,
        load=load,
        metrics={name: interval([run[name] for run in runs]) for name in shared},
        speedup=interval(speedups),
        refused=sum(replay.refused for replay in replays),
        lower_bounds=[name for name in shared if name in lower],
        speedup_is_open=any("completion_s" in replay.lower_bounds for replay in (*replays, *baseline)),
    )


def _listener(
    on_progress: OnProgress | None, policy: str, load: float, seed: int
) -> Callable[[Progress], object] | None:
    return None if on_progress is None else lambda progress: on_progress(policy, load, seed, progress)


def _run(
    choice: _Choice,
    seed: int,
    workload: Workload,
    on_progress: Callable[[Progress], object] | None,
    slos: Sequence[SLO],
    by: str | None,
) -> Replayed:
    """One replay: its measures, and how many requests were not served."""
    jobs = JobTimes()
    settings = choice.settings.seeded(seed)
    builders = [ReportBuilder([slo for slo in slos if not slo.of]) for _ in range(settings.fleet.num_engines)]
    recorders = [TraceRecorder(None, each) for each in builders]
    kept = [RowsOfEngine.with_report(*each) for each in zip(builders, recorders, strict=True)] if by else []
    result = replay_engines(
        workload,
        settings,
        observers=[Observers(each, jobs) for each in ([each.observer for each in kept] or recorders)],
        policy=choice.policy,
        on_progress=on_progress,
    )
    whole = builders[0] if len(builders) == 1 else ReportBuilder.joined(builders)
    report = whole.report()
    measured, lower = measures_of(report, jobs), lower_bounds_of(report, jobs)
    if by is not None:
        rows = ReplayRows(kept)
        classes = classes_of(rows.requests, rows.waits, column_called(by, rows.requests), slos=grouped_by_class(slos))
        measured |= _of_classes(classes)
        lower |= _lower_bounds_of(classes)
    return Replayed(measured, len(result.refused) + result.num_left_out, lower)


def _lower_bounds_of(classes: Classes) -> frozenset[str]:
    """Names of figures of classes that are lower bounds."""
    figures = {
        (each.name, figure): getattr(each, f"{figure}_ms") for each in classes.classes for figure in ("ttft", "e2e")
    }
    return frozenset(f"{name}:{figure}_p95_s" for (name, figure), of in figures.items() if "p95" in of.censored)


def _of_classes(classes: Classes) -> MetricValues:
    """Figures of each class, those that it has."""
    found = {"fairness": classes.fairness()}
    for each in sorted(classes.classes, key=attrgetter("name")):
        share = None if each.goodput is None else each.goodput.share
        seconds = {"ttft_p95_s": each.ttft_ms.p95, "e2e_p95_s": each.e2e_ms.p95}
        found |= {f"{each.name}:{name}": None if value is None else value / 1e3 for name, value in seconds.items()}
        found[f"{each.name}:goodput"] = None if share is None else 100.0 * share
    return {name: value for name, value in found.items() if value is not None}


# ---------------------------------------------------------------------------------------------------------------------
# A comparison as an SVG drawing: a metric over load, one line per policy, whiskers for the intervals.

_APART = 0.05
"""Distance between two policies at one load, in distances between loads."""


def _drawn(comparison: Comparison, metric: str, title: str) -> str:
    """The drawing as text. Loads stand at equal distances, in the order in which they were compared."""
    loads, policies = comparison.loads, comparison.policies
    values = [cell.metrics[metric] for cell in comparison.cells]
    top = max(value.mean + (value.half or 0.0) for value in values) or 1.0
    places = {i + 0.5: f"{load:g}" for i, load in enumerate(loads)}
    across = "load: arrivals, times as fast as the workload's own"
    chart = Chart(comparison.workload, across, title, (len(loads), top), places)
    for number, policy in enumerate(policies):
        colour = COLOURS[number % len(COLOURS)]
        aside = _APART * (number - (len(policies) - 1) / 2)
        points = []
        for x, load in zip(places, loads, strict=True):
            value = comparison.cell(policy, load).metrics[metric]
            points.append((x + aside, value.mean))
            chart.dot(*points[-1], colour, f"{policy}, load {load:g}: {value.mean:.3g}")
            if value.half is not None:
                chart.line([(x + aside, value.mean - value.half), (x + aside, value.mean + value.half)], colour)
        chart.line(points, colour)
        chart.legend(policy, colour)
    return str(chart)
