"""A study: deployments x policies x loads x seeds, each replayed once, with own metrics and paired intervals.

Every cell sees the same workloads, so cells are compared seed by seed: what one seed makes easy or hard for all of them
cancels out. Each replay is a row; nothing is averaged away before the caller has seen it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from itertools import product
from math import isnan
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import msgspec
import numpy as np

from tokenyard.arguments import given_path
from tokenyard.core.config import require_int
from tokenyard.core.sched.observer import StepObserver
from tokenyard.deploy.deployment import Deployment
from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.explain.population import SERVED, outcomes_of
from tokenyard.explain.report.classes import Classes
from tokenyard.explain.slo import SLOs, read_slos, slo_texts
from tokenyard.explain.table import Column, Printable, RowTable, table_from
from tokenyard.questions.compare import Cell, Comparison, Interval, Policies, interval, require_several
from tokenyard.questions.experiment import complete, contents_of
from tokenyard.questions.plots import axes
from tokenyard.questions.run import RunResult, run
from tokenyard.questions.scenario import (
    OnCount,
    Scenario,
    WorkloadChoice,
    counting_of,
    deployment_settings,
    takes_arrivals,
    traffic_by_name,
)
from tokenyard.questions.sweeping.rows import Journal, Row, Settings, figures_of
from tokenyard.questions.sweeping.variants import MOST_PROCESSES
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.choices import PolicyChoice, RouterChoice, policy_choices, policy_labels
from tokenyard.sim.routers import Router
from tokenyard.sim.traffic import Extent
from tokenyard.units import count_of
from tokenyard.version import __version__
from tokenyard.workload.record import Workload

if TYPE_CHECKING:
    from tokenyard.questions.keywords import TrafficKeywords

# ---------------------------------------------------------------------------------------------------------------------
# What a metric of the caller's own rests on: everybody who came, a part of them, or how long the others have waited.
#
# It is a function of a run, so it is called again with runs in which one thing differs:
#
#     lower bounds of the report, or the ends by now of who is unfinished, later   it gets higher: it is a lower bound
#     latencies that requests do not have, first 0 and then without end            it differs: it left them out
#
# What only counts who has a latency, or takes a missing one as too long, says the same of both.

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


# ---------------------------------------------------------------------------------------------------------------------

_COUNTS = ("problem", "requests", "refused", "cancelled", "unfinished")
_MORE_IS_BETTER = ("throughput", "per_s", "goodput", "share", "hit", "met", "served", "finished", "qoe", "speedup")
_SHOWN = ("ttft_ms.mean", "ttft_ms.p99", "tpot_ms.mean", "e2e_ms.mean", "throughput.output_tokens_per_s")


def is_better_high(metric: str) -> bool:
    """Whether more of a metric is better, as its name says."""
    return any(word in metric.lower() for word in _MORE_IS_BETTER)


class StudyCell(NamedTuple):
    """What is replayed once per seed."""

    deployment: str
    policy: str
    load: float

    @property
    def label(self) -> str:
        """What it is called within one load."""
        return f"{self.policy} on {self.deployment}" if self.deployment else self.policy


class Study(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """One row per replay, and what the replays of a cell come to together."""

    printer = "tokenyard.questions.printing.policies:print_study"

    workload: str
    deployments: tuple[str, ...]
    """What each is called; one empty text where there is one deployment."""
    policies: tuple[str, ...]
    loads: tuple[float, ...]
    seeds: tuple[int, ...]
    measures: tuple[str, ...]
    """The caller's own metrics, in their order; the report's figures go by their own names."""
    rows: list[Row]
    """One per replay: ``settings`` has ``deployment``, ``policy``, ``load`` and ``seed``, ``figures`` the metrics."""

    def summary(self) -> str:
        failed = sum(row.problem is not None for row in self.rows)
        return (
            f"{count_of(len(self.cells), 'cell')} x {count_of(len(self.seeds), 'seed')} on {self.workload}"
            f"{f', {failed:,} not replayed' if failed else ''}"
        )

    @property
    def cells(self) -> list[StudyCell]:
        """Every combination of deployment, policy and load, by load."""
        return [
            StudyCell(deployment, policy, load)
            for load, deployment, policy in product(self.loads, self.deployments, self.policies)
        ]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric that a row has: the caller's own, then the figures of reports, as ``ttft_ms.p99``."""
        own = set(self.measures)
        return (*self.measures, *(name for name in next(iter(self.rows)).figures if name not in own))

    def values(self, metric: str, cell: StudyCell) -> dict[int, float]:
        """Seed -> value, where the replay has one. ConfigError for a metric that there is not."""
        self._require(metric)
        found = {}
        for row in self.rows_of(cell):
            value = row.figures.get(metric)
            if value is not None and not isnan(value):
                found[int(row.settings["seed"] or 0)] = value
        return found

    def interval(self, metric: str, cell: StudyCell) -> Interval | None:
        """The mean over seeds with its interval of 95 % (Student's t); None where no replay has a value."""
        values = list(self.values(metric, cell).values())
        return interval(values) if values else None

    def is_at_least(self, metric: str, cell: StudyCell) -> bool:
        """Whether the mean is a lower bound, since that of a seed is: it rests on requests that were not served."""
        return any(metric in row.censored for row in self.rows_of(cell))

    def part(self, metric: str, cell: StudyCell) -> tuple[int, int] | None:
        """Return how many requests an own metric is of, and how many came, over all seeds; None: all."""
        rows = [row for row in self.rows_of(cell) if row.problem is None]
        if not any(metric in row.parts for row in rows):
            return None
        came = [row.requests + row.refused + row.cancelled + row.unfinished for row in rows]
        parts = [row.parts.get(metric, (each, each)) for row, each in zip(rows, came, strict=True)]
        return sum(part for part, _ in parts), sum(whole for _, whole in parts)

    def is_sure(self, metric: str, cell: StudyCell) -> bool:
        """Whether it is of everybody who came, and no lower bound; others are not compared."""
        return not self.is_at_least(metric, cell) and self.part(metric, cell) is None

    def rows_of(self, cell: StudyCell) -> list[Row]:
        """The replays of a cell, one per seed."""
        return [
            row
            for row in self.rows
            if (row.settings["deployment"], row.settings["policy"], row.settings["load"]) == cell
        ]

    def against(self, metric: str, cell: StudyCell, baseline: StudyCell, *, ratio: bool = False) -> Interval | None:
        """The difference to the baseline, or the ratio, taken seed by seed, with the interval of 95 % of its mean.

        Seeds that only one of the two has a value for do not count; of ratios neither do seeds with a baseline of 0.
        """
        own, other = self.values(metric, cell), self.values(metric, baseline)
        seeds = [seed for seed in own if seed in other and not (ratio and other[seed] == 0)]
        pairs = [own[seed] / other[seed] if ratio else own[seed] - other[seed] for seed in seeds]
        return interval(pairs) if pairs else None

    def as_table(self) -> RowTable:
        """One row per replay: ``deployment``, ``policy``, ``load``, ``seed``, ``problem``; ``requests`` that were
        served, ``refused``, ``cancelled`` and ``unfinished`` ones; ``censored``, metrics that are lower bounds;
        ``parts``, own metrics that leave requests out, with how many they are of; then every metric.
        """
        names = self.metrics
        return table_from(
            "replays",
            [
                {**row.settings, **{name: getattr(row, name) for name in _COUNTS}}
                | {"censored": " ".join(row.censored) or None}
                | {"parts": " ".join(f"{name}:{part}/{whole}" for name, (part, whole) in row.parts.items()) or None}
                | {name: row.figures.get(name) for name in names}
                for row in self.rows
            ],
            numbers=names,
        )

    def means(self, *metrics: str) -> RowTable:
        """One row per cell: each metric's mean, half of its interval (``..._half``), and the paired difference to the
        first cell of the same load (``..._change``, ``..._change_half``). ``..._is``: ``at least`` of a lower bound,
        ``of 37/80`` where requests are left out, None of everybody. Without names: the caller's own metrics.
        """
        names = metrics or self.shown
        rows: list[dict[str, Any]] = []
        for cell in self.cells:
            first = StudyCell(self.deployments[0], self.policies[0], cell.load)
            row: dict[str, Any] = cell._asdict()
            for name in names:
                mean, change = self.interval(name, cell), self.against(name, cell, first)
                row |= {name: mean and mean.mean, f"{name}_half": mean and mean.half}
                row |= {f"{name}_change": change and change.mean, f"{name}_change_half": change and change.half}
                part = self.part(name, cell)
                of_part = None if part is None else f"of {part[0]}/{part[1]}"
                row[f"{name}_is"] = "at least" if self.is_at_least(name, cell) else of_part
            rows.append(row)
        columns = [f"{name}{end}" for name in names for end in ("", "_half", "_change", "_change_half")]
        return table_from("cells", rows, numbers=columns)

    def ranked(self, metric: str | None = None, load: float | None = None) -> list[StudyCell]:
        """Return the cells of one load (the first), the best first: by the first metric shown, if none is named.

        Cells whose mean is no figure of everybody come behind the others, those without a value last. Less is better,
        but of throughput, goodput, shares and hit rates.
        """
        name = metric or self.shown[0]
        at = self.loads[0] if load is None else load
        sign = -1.0 if is_better_high(name) else 1.0

        def place(cell: StudyCell) -> tuple[bool, bool, float]:
            mean = self.interval(name, cell)
            return mean is None, not self.is_sure(name, cell), 0.0 if mean is None else sign * mean.mean

        return sorted((cell for cell in self.cells if cell.load == at), key=place)

    def best(self, metric: str | None = None, load: float | None = None) -> StudyCell:
        """Return the first of :meth:`ranked`."""
        return self.ranked(metric, load)[0]

    @property
    def shown(self) -> tuple[str, ...]:
        """What is printed where nothing is named: the caller's own metrics, else five of the report's."""
        return self.measures or tuple(name for name in _SHOWN if name in self.metrics)

    def draw(self, metric: str | None = None, title: str | None = None) -> str:
        """An SVG drawing: a metric over load, a line per deployment and policy, whiskers for the intervals."""
        name = metric or self.shown[0]
        labels = tuple(cell.label for cell in self.cells if cell.load == self.loads[0])
        cells = [
            Cell(
                policy=cell.label,
                load=cell.load,
                metrics={name: self.interval(name, cell) or Interval(0.0)},
                speedup=Interval(1.0),
                refused=0,
            )
            for cell in self.cells
        ]
        drawn = Comparison(workload=self.workload, policies=labels, loads=self.loads, seeds=self.seeds, cells=cells)
        return drawn.draw(name, title or name)

    def plot(self, metric: str | None = None, ax: Any = None) -> Any:
        """The same drawn with matplotlib, on ``ax`` or new axes, which are returned; MissingExtraError without it."""
        ax, name = axes(ax), metric or self.shown[0]
        lines: dict[str, list[tuple[float, float, float]]] = {}
        for cell in self.cells:
            found = self.interval(name, cell)
            if found is not None:
                lines.setdefault(cell.label, []).append((cell.load, found.mean, found.half or 0.0))
        for label, line in lines.items():
            loads, means, halves = zip(*line, strict=True)
            ax.errorbar(loads, means, yerr=halves, marker="o", capsize=3, label=label)
        ax.set(title=self.workload, xlabel="load", ylabel=name)
        ax.legend()
        return ax

    def _repr_html_(self) -> str:
        return f"{self.draw()}{super()._repr_html_()}"

    def _require(self, metric: str) -> None:
        if metric not in self.metrics:
            near = [name for name in self.metrics if name.startswith(str(metric))] or self.metrics
            raise ConfigError("metric", metric, f"use one of: {', '.join(near)}")


@takes_arrivals
def study(
    workload: WorkloadChoice | Callable[[int], Workload],
    deployments: Deployment | Mapping[str, Deployment],
    *,
    policies: Policies = ("fcfs",),
    loads: Sequence[float] = (1.0,),
    seeds: Sequence[int] = (0,),
    metrics: Mapping[str, Measure] | None = None,
    router: RouterChoice | None = None,
    observers: Mapping[str, Callable[[], StepObserver]] | None = None,
    by: str | None = None,
    slo: SLOs = None,
    warmup: float = 0.0,
    until: float | None = None,
    jobs: int | None = 1,
    ray: str | None = None,
    output: str | PathLike[str] | None = None,
    progress: OnCount | bool | None = None,
    **arrivals: Unpack[TrafficKeywords],
) -> Study:
    """Replay a workload on every deployment, under every policy, at every load, with every seed.

    ``workload``: as for :func:`tokenyard.run`, or a function that makes one of a seed. ``deployments``: one, or several
    by what they are called. ``policies``: as for :func:`tokenyard.compare`: names, classes, functions, or a mapping.
    ``loads`` are factors of the arrival rate. ``metrics``: own figures, each a function of a
    :class:`~tokenyard.RunResult`; all figures of reports are there besides. ``router``: a name, a class or a function.
    ``observers``: classes by name, of which every replay makes one each; a metric finds it in ``run.observed``. ``by``:
    a column, by whose values there are figures besides, as ``gold:ttft_ms_p99``. ``slo``, ``warmup`` (seconds that do
    not count), ``until`` (seconds), ``arrivals``: as for :func:`tokenyard.run`. ``jobs``: processes, None: as many as
    pay. ``ray``: the address of a cluster. ``output``: a directory that keeps every finished replay, from which the
    same study goes on. A replay that cannot be is a row with its ``problem``. Raises ConfigError for what no replay
    could take.
    """
    if jobs is not None:
        require_int("jobs", jobs, 1, MOST_PROCESSES)
    kept = None if output is None else given_path("output", output)
    require_several(loads, seeds)
    named = _by_name(deployments)
    if metrics is not None and not (isinstance(metrics, Mapping) and all(map(callable, metrics.values()))):
        fix = 'give functions of a RunResult by name, {"jain": fairness}; all figures of reports are there besides'
        raise ConfigError("metrics", metrics, fix)
    policy_choices(policies)
    if isinstance(router, Router):
        raise ConfigError("router", router, "an object serves one replay: give the class, a function, or a name")
    if not isinstance(observers or {}, Mapping) or not all(map(callable, (observers or {}).values())):
        raise ConfigError("observers", observers, 'give classes by name, {"gaps": Gaps}: every replay makes its own')
    traffic_by_name(arrivals)
    Extent.of(warmup, until)
    read_slos(slo_texts(slo))
    replayer = _Replayer(
        workload=workload,
        deployments=named,
        policies=policy_labels(policies),
        measures=dict(metrics or {}),
        router=router,
        observers=dict(observers or {}),
        by=by,
        slo=slo_texts(slo),
        warmup=warmup,
        until=until,
        arrivals=arrivals,
    )
    tasks = replayer.tasks(loads, seeds)
    if jobs != 1 or ray is not None:
        replayer.require_pickled()
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="tokenyard-study-")) if kept is None else kept
        journal = stack.enter_context(Journal(Path(folder), replayer.identity(seeds[0])))
        complete(journal, tasks, replayer, counting_of(progress, "replays"), processes=jobs, ray=ray)
        rows = [row for row in map(journal.get, tasks) if row is not None]
    return Study(
        workload=replayer.scenario(seeds[0]).name,
        deployments=tuple(replayer.deployments),
        policies=tuple(replayer.policies),
        loads=tuple(map(float, loads)),
        seeds=tuple(seeds),
        measures=tuple(replayer.measures),
        rows=rows,
    )


def _by_class(classes: Classes) -> dict[str, float]:
    """The figures of each class, by class and name."""
    return {
        f"{row['class']}:{name}": float(value)
        for row in classes.as_table()
        for name, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _by_name(deployments: Deployment | Mapping[str, Deployment]) -> dict[str, Deployment]:
    """Deployments by what they are called; one alone by the empty text. Raises ConfigError."""
    if isinstance(deployments, list | tuple) or (isinstance(deployments, Mapping) and not deployments):
        fix = 'give one Deployment, or several by what each is called: {"auto": one, "fp8": other}'
        raise ConfigError("deployments", deployments, fix)
    named = dict(deployments) if isinstance(deployments, Mapping) else {"": deployments}
    for each in named.values():
        deployment_settings(each)
    return named


@dataclass(frozen=True, kw_only=True)
class _Replayer:
    """Replays one cell with one seed; it can be pickled if what it was given can."""

    workload: WorkloadChoice | Callable[[int], Workload]
    deployments: Mapping[str, Deployment]
    policies: Mapping[str, PolicyChoice]
    measures: Mapping[str, Measure]
    router: RouterChoice | None
    observers: Mapping[str, Callable[[], StepObserver]]
    by: str | None
    slo: tuple[tuple[str, ...], ...]
    warmup: float
    until: float | None
    arrivals: Mapping[str, Any] = field(default_factory=dict)

    def tasks(self, loads: Sequence[float], seeds: Sequence[int]) -> list[Settings]:
        """A task for every replay."""
        return [
            {"deployment": deployment, "policy": policy, "load": float(load), "seed": seed}
            for load, deployment, policy, seed in product(loads, self.deployments, self.policies, seeds)
        ]

    def __call__(self, settings: Settings) -> Row:
        load, seed = float(settings["load"] or 0.0), int(settings["seed"] or 0)
        scale = float(self.arrivals.get("rate_scale") or 1.0) * load
        try:
            found = run(
                self._workload(seed),
                self.deployments[str(settings["deployment"])],
                policy=self.policies[str(settings["policy"])],
                router=self.router,
                observer=self.observers or None,
                rows=bool(self.measures) or self.by is not None,
                warmup=self.warmup,
                until=self.until,
                slo=self.slo,
                **{**self.arrivals, "seed": seed, "rate_scale": scale},
            )
        except TokenyardError as error:
            return Row(settings=dict(settings), load=load, problem=str(error))
        own = {name: Basis(name, measure, found) for name, measure in self.measures.items()}
        result, people = found.result, found.report.outcomes
        return Row(
            settings=dict(settings),
            load=load,
            requests=result.num_finished if people is None else people.served,
            refused=result.num_left_out + (len(result.refused) if people is None else people.refused),
            cancelled=0 if people is None else people.cancelled,
            unfinished=0 if people is None else people.unfinished,
            censored=[*(name for name, each in own.items() if each.is_at_least), *found.report.censored],
            parts={name: each.part for name, each in own.items() if each.part is not None},
            figures={
                **{name: each.value for name, each in own.items()},
                **({} if self.by is None else _by_class(found.by(self.by))),
                **figures_of(found.report),
            },
            drafts=None if found.report.speculation is None else found.report.speculation.assumed,
        )

    def _workload(self, seed: int) -> WorkloadChoice:
        return self.workload(seed) if callable(self.workload) else self.workload

    def scenario(self, seed: int) -> Scenario:
        """The workload on the first deployment. Raises ConfigError for what is neither."""
        return Scenario.of(deployment_settings(next(iter(self.deployments.values()))), self._workload(seed))

    def require_pickled(self) -> None:
        """Raise ConfigError for what cannot be sent to another process, by its name."""
        given_code: dict[str, object] = {"policies": self.policies, "metrics": self.measures, "router": self.router}
        given_code |= {"observers": self.observers, "workload": self.workload, "deployments": self.deployments}
        for where, given in given_code.items():
            try:
                pickle.dumps(given)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                fix = f"cannot be sent to another process ({error}): define it at the top of a module, or use jobs=1"
                raise ConfigError(where, given, fix) from None

    def identity(self, seed: int) -> dict[str, Any]:
        """All that rows depend on, apart from their own settings, as far as a program knows; JSON can hold it."""
        scenario = self.scenario(seed)
        return {
            "tokenyard": __version__,
            "study": scenario.name,
            "contents": contents_of(scenario.workload),
            **{f"contents of {each}": contents_of(each) for each in scenario.more},
            "deployments": {name: each.described() for name, each in self.deployments.items()},
            "policies": sorted(self.policies),
            "metrics": sorted(self.measures),
            **({} if self.router is None else {"router": getattr(self.router, "__name__", str(self.router))}),
            **({"observers": sorted(self.observers)} if self.observers else {}),
            **({} if self.by is None else {"by": self.by}),
            "slo": [list(each) for each in self.slo],
            "warmup": self.warmup,
            "until": self.until,
            "arrivals": {name: str(value) for name, value in sorted(self.arrivals.items())},
        }
