"""A workload on a deployment: replayed on a virtual clock, reported, with what would have helped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from tokenyard.core.sched.policy import Policy
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.given import changed, names_of, nearest, with_values
from tokenyard.deploy.settings import DeploymentSettings, SplitSettings, TraceSettings
from tokenyard.deploy.spec import ReplaySpec, open_trace, prepare, resolve
from tokenyard.errors import ConfigError, TokenyardError
from tokenyard.explain.advice.rules import Advice, Cost, Trial
from tokenyard.explain.advice.trials import Change, changes_for, cost_of, gain_of, price_of, trial_of, worth_their_cost
from tokenyard.explain.render.units import duration
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.slo import read_slos
from tokenyard.explain.report.summary import EnginePart, joined_report
from tokenyard.policies.named import PolicyMaker
from tokenyard.questions.settings import TrafficSettings
from tokenyard.questions.traffic import applied, workload_from
from tokenyard.record.recorder import TraceRecorder, TurnOrder
from tokenyard.record.writer import TraceWriter
from tokenyard.sim.engines import RankUse
from tokenyard.sim.replay import ReplayResult, replay_engines
from tokenyard.sim.traffic import Progress
from tokenyard.trace.start import Deployment as Header
from tokenyard.workload.load import busiest_part, turn_orders
from tokenyard.workload.record import Workload

__all__ = [
    "STEPS_TRIED",
    "Bars",
    "Engines",
    "OnProgress",
    "Recordings",
    "RunResult",
    "SLOs",
    "Say",
    "Scenario",
    "ask",
    "bars_of",
    "engines_of",
    "nothing",
    "prepared",
    "run",
    "slo_texts",
    "traffic_by_name",
    "with_trials",
    "without_trace",
]


# ---------------------------------------------------------------------------------------------------------------------
# Who is told how far a question has come, and what is to be said beside its answer.

OnProgress = Callable[[Progress], None]
"""Called with the state of a replay, now and then."""
Bars = Callable[[int, str], AbstractContextManager[OnProgress | None]]
"""Number of requests, and what is replayed, if it is not the run itself -> whom to tell, as long as that lasts."""
Say = Callable[[str], None]
"""Called with a sentence that somebody should read."""


def nothing(_: str) -> None:
    """Nobody reads it."""


def bars_of(progress: OnProgress | None) -> Bars:
    """The same function for every replay."""

    @contextmanager
    def bar(_: int, __: str) -> Iterator[OnProgress | None]:
        yield progress

    return bar


# ---------------------------------------------------------------------------------------------------------------------
# What is asked about: a workload, the deployment that it is sent to, and how that is recorded and judged.


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(DeploymentSettings):
    """Settings of a deployment and of all that is around it. Variants of it differ in settings by name."""

    workload: str | Workload
    """Built-in, a file, or a workload."""
    more: tuple[str, ...] = ()
    """Further logs."""
    arrivals: TrafficSettings = field(default_factory=TrafficSettings)
    apart: SplitSettings = field(default_factory=SplitSettings)
    trace: TraceSettings = field(default_factory=TraceSettings)
    slo: tuple[tuple[str, ...], ...] = ()
    """Bounds on latencies, as texts."""

    @property
    def deployment(self) -> DeploymentSettings:
        """Those of the deployment alone."""
        return DeploymentSettings(**{each.name: getattr(self, each.name) for each in fields(DeploymentSettings)})

    @property
    def name(self) -> str:
        """Of the workload."""
        return self.workload if isinstance(self.workload, str) else self.workload.name

    def read(self) -> Workload:
        """The workload, with its clients and delays. Raises TokenyardError."""
        if isinstance(self.workload, Workload):
            return applied(self.workload, self.arrivals)
        return workload_from(self.workload, self.arrivals, self.more)

    @classmethod
    def of(cls, deployment: DeploymentSettings, workload: str | Workload, **around: Any) -> Scenario:
        """``workload`` on ``deployment``."""
        own = {each.name: getattr(deployment, each.name) for each in fields(DeploymentSettings)}
        return cls(workload=workload, **own, **around)


def prepared(scenario: Scenario, workload: Workload | None = None) -> ReplaySpec:
    """Check every setting, then read the workload, unless it is given. Raises TokenyardError."""
    deployment = scenario.deployment
    if not deployment.launch.ignore_unmodelled:
        deployment.launch.asked.require_modelled()
    slos = read_slos(scenario.slo)
    resolved = resolve(deployment, seed=scenario.arrivals.seed)
    return prepare(
        resolved,
        scenario.read if workload is None else workload,
        arrivals=asdict(scenario.arrivals),
        trace=scenario.trace,
        slos=slos,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traffic:
    arrivals: TrafficSettings = field(default_factory=TrafficSettings)


def traffic_by_name(given: dict[str, Any]) -> TrafficSettings:
    """Settings of what arrives, by name. Raises ConfigError for a name that there is not, with the nearest."""
    known = names_of(_Traffic)
    for name, value in given.items():
        if name not in known:
            meant = nearest(name, known)
            fix = f"nothing that arrives has such a setting{': ' + meant if meant else ''}"
            raise ConfigError(name, value, fix, code="unknown_setting")
    return with_values(_Traffic(), {name: value for name, value in given.items() if value is not None}).arrivals


def without_trace(scenario: Scenario) -> Scenario:
    """The same, for a replay beside the one that was asked for."""
    return replace(scenario, trace=TraceSettings())


# ---------------------------------------------------------------------------------------------------------------------
# Who watches each engine of a replay, where its trace goes, and one report of them all.


class Recordings:
    """Of the engines of one replay, or of one side of it."""

    def __init__(
        self,
        setup: ReplaySpec,
        stack: ExitStack | None = None,
        turns: Mapping[str, TurnOrder] | None = None,
        on_overwritten: Callable[[Path], None] | None = None,
    ) -> None:
        """With ``stack`` they write the traces that ``setup`` asks for, which it closes.

        ``on_overwritten`` is called with the directory of a trace that was there.
        """
        engines = engines_of(setup)
        self._builders = [ReportBuilder(setup.slos) for _ in engines]
        self._writers: list[TraceWriter] = []
        """One for each engine, if traces are wanted."""
        self.recorders: list[TraceRecorder] = []
        for one, builder in zip(engines, self._builders, strict=True):
            writer = stack.enter_context(TraceWriter(one.trace)) if stack is not None else None
            if writer is not None and open_trace(writer, on_overwritten):
                self._writers.append(writer)
            else:
                writer = None
            self.recorders.append(TraceRecorder(writer, builder, start=one.start, turns=turns))

    @property
    def problem(self) -> str | None:
        """Why a trace is not whole; None if all are, or none is wanted."""
        return next((writer.problem for writer in self._writers if writer.problem is not None), None)

    @property
    def is_trace_whole(self) -> bool:
        """Whether traces are wanted, and everything so far is in them."""
        for writer in self._writers:
            writer.flush()
        return bool(self._writers) and self.problem is None

    def report(self, uses: Sequence[RankUse] = (), seconds: float | None = None) -> Report:
        """The report; of several engines together, with the share of each by its use, in a run of so many
        seconds.
        """
        sources = [str(each.config.steps_path) if each.is_whole else None for each in self._writers]
        named = zip_longest(self._builders, sources)
        reports = [builder.report(source=source) for builder, source in named]
        if len(reports) == 1:
            return reports[0]
        dummies: list[int | None] = [None] * len(reports)
        dummies[: len(uses)] = [use.dummy_batches for use in uses]
        each = zip(self._builders, reports, dummies, strict=True)
        parts = [EnginePart(rank, builder, one, dummy) for rank, (builder, one, dummy) in enumerate(each)]
        return joined_report(parts, seconds=seconds)


def engines_of(setup: ReplaySpec) -> list[ReplaySpec]:
    """The settings of each engine; of several, with a trace directory and a first record of its own."""
    size = setup.num_engines
    return [setup] if size == 1 else [_rank_of(setup, rank) for rank in range(size)]


def _rank_of(setup: ReplaySpec, rank: int) -> ReplaySpec:
    """The settings of one engine: a trace directory and a first record of its own."""
    path = setup.trace.path
    return replace(
        setup,
        trace=replace(setup.trace, path=None if path is None else path / f"rank-{rank}"),
        start=msgspec.structs.replace(setup.start, config={**(setup.start.config or {}), "data_parallel_rank": rank}),
    )


# ---------------------------------------------------------------------------------------------------------------------
# One engine or several: a replay of a setup, who watches it, and its report.


class Engines:
    """The engines of one replay. With ``stack`` they write the traces that ``setup`` asks for, which it closes."""

    def __init__(
        self,
        setup: ReplaySpec,
        stack: ExitStack | None = None,
        turns: Mapping[str, TurnOrder] | None = None,
        on_overwritten: Callable[[Path], None] | None = None,
    ) -> None:
        self._setup = setup
        self._recordings = Recordings(setup, stack, turns, on_overwritten)
        self._result: ReplayResult | None = None

    @property
    def problem(self) -> str | None:
        """Why a trace is not whole; None if all are, or none is wanted."""
        return self._recordings.problem

    @property
    def is_trace_whole(self) -> bool:
        """Whether traces are wanted, and everything so far is in them."""
        return self._recordings.is_trace_whole

    def replay(self, *, skip_refused: bool, on_progress: Callable[[Progress], None] | None) -> ReplayResult:
        """Run the workload to its end."""
        setup, recorders = self._setup, self._recordings.recorders
        result = replay_engines(
            setup.workload,
            setup.replays(skip_refused=skip_refused),
            observers=recorders,
            policy=setup.policy,
            on_progress=on_progress,
        )
        self._result = result
        return result

    def report(self) -> Report:
        """The report; of several engines together, with the share of each."""
        result = self._result
        if result is None:
            return self._recordings.report()
        report = self._recordings.report(result.ranks, result.seconds)
        if result.clients is not None:
            report = msgspec.structs.replace(report, clients=result.clients)
        if result.replicas is not None:
            replicas = msgspec.structs.replace(result.replicas, gpus=self._setup.gpus_per_replica)
            report = msgspec.structs.replace(report, replicas=replicas)
        return report


# ---------------------------------------------------------------------------------------------------------------------
# Replays what a report proposes, on the same workload, and keeps what helps.

Replayer = Callable[[ReplaySpec, Scenario, str], Report]
"""Replays a setup and makes its report; the text says what for."""


def with_trials(
    flags: Scenario, setup: ReplaySpec, report: Report, replay: Replayer, *, most_steps: int | None = None
) -> Report:
    """The report, each advice with the trials that are worth their cost, the cheapest first.

    Advice that nothing came of is left out.

    ``most_steps`` bounds the steps of all trials: beyond it they are replays of the busiest part of the workload, and
    of as few trials as have room where it cannot be parted; advice whose changes were not reached stays as it is.
    """
    settings = _settings(flags, setup)
    changes = [changes_for(each, settings, report) for each in report.advice]
    wanted = list(dict.fromkeys(_in_turns(changes)))
    ground = _ground(flags, setup, report, replay, len(wanted), most_steps)
    known = {change: _tried(flags, ground, change, replay) for change in wanted[: ground.most]}
    advice: list[Advice] = []
    for each, wanted in zip(report.advice, changes, strict=True):
        trials = [known[change] for change in wanted if change in known]
        shown = [other.trial for other in advice]
        advice += [_with_trial(each, trial) for trial in worth_their_cost(each.rule, trials) if trial not in shown]
        if wanted and not trials:
            advice.append(each)
    kept = [each.trial for each in advice]
    tried = [trial for trial in known.values() if trial not in kept and not _is_beaten(trial, advice)]
    words = ground.words if known else None
    return msgspec.structs.replace(report, advice=sorted(advice, key=_by_cost), tried=tried, tried_on=words)


def _settings(flags: Scenario, setup: ReplaySpec) -> dict[str, Any]:
    """What proposals look at."""
    settled, deployment = setup.settled, setup.deployment
    given = asdict(settled.hardware) | asdict(settled.scheduler) | asdict(flags.transfer)
    return given | {"kv_dtype": deployment.kv_dtype, "kv_gib": deployment.kv_gib}


def _with_trial(advice: Advice, trial: Trial) -> Advice:
    is_the_rules = trial.setting == advice.setting and trial.cost is Cost.SETTING
    price = advice.price if is_the_rules else price_of(trial.setting) or advice.price
    return msgspec.structs.replace(advice, setting=trial.setting, now=trial.now, price=price, trial=trial)


def _by_cost(advice: Advice) -> tuple[int, float]:
    """What costs nothing first, then memory, then GPUs, last a scheduler of ours; of the same cost what helps most."""
    if advice.trial is None:
        return cost_of(advice.setting).rank, 0.0
    return advice.trial.cost.rank, -gain_of(advice.rule, advice.trial)


def _is_beaten(trial: Trial, advice: Sequence[Advice]) -> bool:
    """Whether another value of its setting, or another setting of its cost, is shown."""
    return any(each.trial is not None and each.trial.cost is trial.cost for each in advice)


class _Ground(NamedTuple):
    """What trials are compared on."""

    setup: ReplaySpec
    report: Report
    """Of the run as it is, on the same requests as the trials."""
    words: str | None
    """Which requests those are; None: all."""
    most: int | None
    """Trials at most; None: all."""


def _ground(
    flags: Scenario, setup: ReplaySpec, report: Report, replay: Replayer, num_trials: int, most_steps: int | None
) -> _Ground:
    """The whole workload if all trials on it have room, else a part, on which the run is replayed as it is as well."""
    steps = max(report.steps, 1)
    if most_steps is None or num_trials * steps <= most_steps:
        return _Ground(setup, report, None, None)
    share = most_steps / ((num_trials + 1) * steps)
    count = max(1, int(share * len(setup.workload)))
    part = busiest_part(setup.workload, count) if count < len(setup.workload) else None
    if part is None:
        return _Ground(setup, report, None, most_steps // steps)
    smaller = replace(setup, workload=part.workload)
    words = (
        f"{len(part.workload):,} of {len(setup.workload):,} requests, the busiest stretch "
        f"({duration(part.first)} to {duration(part.last)})"
    )
    return _Ground(smaller, replay(smaller, flags, f"the run on {words}"), words, None)


def _in_turns(changes: Sequence[Sequence[Change]]) -> Iterator[Change]:
    """The first change of each advice, then the second of each ..."""
    for round_of_changes in zip_longest(*changes):
        yield from (change for change in round_of_changes if change is not None)


def _tried(flags: Scenario, ground: _Ground, change: Change, replay: Replayer) -> Trial:
    setup, report = ground.setup, ground.report
    try:
        after_change = prepared(_with(flags, change), setup.workload)
        if change.also and _kv_bytes(after_change) > _kv_bytes(setup):
            return trial_of(change, report, None, "its blocks take more memory than those of the run")
        after = replay(after_change, flags, f"{change.setting} {change.then}")
    except TokenyardError as error:
        return trial_of(change, report, None, str(error))
    if after.requests_finished != report.requests_finished:
        return trial_of(change, report, None, "another number of requests is served")
    return trial_of(change, report, after)


def _kv_bytes(setup: ReplaySpec) -> int:
    return setup.cache.num_gpu_blocks * (setup.start.bytes_per_block or 0)


def _with(flags: Scenario, change: Change) -> Scenario:
    """The same run with one setting changed, and what changes with it, and without a trace."""
    scenario: Scenario = changed(without_trace(flags), dict([(change.setting, change.then), *change.also]))
    return scenario


# ---------------------------------------------------------------------------------------------------------------------
# A workload on a deployment: replayed on a virtual clock, reported, with what would have helped.

STEPS_TRIED = 60_000
"""Steps that proposals are replayed for unasked, all together: some twenty seconds."""
SLOs = Mapping[str, str | float] | str | None
"""Bounds: ``{"ttft_p90": "500ms", "tpot": 40}`` (in ms; the second one of each request), or a text as for ``--slo``."""
_INTERRUPTED = "interrupted while proposals were tried: the report is without advice"


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What came of a run."""

    report: Report
    """What held requests back, latencies, throughput; with advice where that was asked for."""
    result: ReplayResult
    """Counts of the replay, and whom it refused."""
    deployment: Header
    """What was served, on what, and how far that is known."""
    workload: Workload
    trace: Path | None = None
    """The directory of the trace; None if none was wanted."""
    problem: str | None = None
    """Why the trace is not whole; None if it is."""

    def to_dict(self) -> dict[str, Any]:
        """The report, as ``tokenyard run --json`` prints it."""
        found: dict[str, Any] = msgspec.to_builtins(self.report)
        return found

    def __repr__(self) -> str:
        held = f", {len(self.result.refused):,} refused" if self.result.refused else ""
        done = f"{self.report.requests_finished:,} of {len(self.workload):,} requests finished{held}"
        return f"<RunResult {self.workload.name}: {done}, in {self.result.seconds:,.1f} simulated seconds>"


def run(
    workload: str | Workload,
    deployment: Deployment,
    *,
    policy: str | type[Policy] | Policy | Callable[[], Policy] | None = None,
    progress: OnProgress | None = None,
    trace: str | PathLike[str] | None = None,
    advice: bool | Literal["all"] = False,
    slo: SLOs = None,
    **arrivals: Any,
) -> RunResult:
    """Replay a workload on a deployment, on a virtual clock.

    ``workload``: one that was made or read, a built-in one by its name, or a file. ``policy``: a name, a class, what
    makes one, or for a single engine one itself; None is the deployment's. ``progress`` is called now and then.
    ``trace``: a directory for the trace. ``advice``: replay what the report proposes, too (some 60,000 steps of the
    busiest part; ``"all"``: whole runs). ``arrivals``: settings of what arrives, by the names of the flags
    (``limit=40``, ``seed=1``, ``rate_scale=2``, ``skip_refused=True``). Raises TokenyardError.
    """
    settings, maker = _with_policy(deployment.settings, policy)
    if advice and isinstance(policy, Policy):
        raise ConfigError("policy", policy, "proposals are replayed too, each with a new one: give the class")
    scenario = Scenario.of(
        settings,
        workload,
        arrivals=traffic_by_name(arrivals),
        trace=TraceSettings(trace=None if trace is None else Path(trace)),
        slo=slo_texts(slo),
    )
    most = STEPS_TRIED if advice is True else None
    return ask(scenario, bars=bars_of(progress), policy=maker, advice=bool(advice), most_steps=most)


def ask(
    scenario: Scenario,
    *,
    bars: Bars,
    say: Say = nothing,
    on_read: Callable[[Workload], None] | None = None,
    on_overwritten: Callable[[Path], None] | None = None,
    policy: PolicyMaker | None = None,
    advice: bool = False,
    most_steps: int | None = None,
) -> RunResult:
    """The same for a scenario: ``bars`` are told of every replay, ``say`` gets what goes wrong on the way.

    ``on_read`` is called with the workload before it is replayed. Raises TokenyardError.
    """
    spec = prepared(scenario)
    if policy is not None:
        spec = replace(spec, policy=policy)
    if on_read is not None:
        on_read(spec.workload)
    skip_refused = scenario.arrivals.skip_refused
    with ExitStack() as stack:
        engines = Engines(spec, stack, turn_orders(spec.workload), on_overwritten)
        try:
            with bars(len(spec.workload), "") as on_progress:
                result = engines.replay(skip_refused=skip_refused, on_progress=on_progress)
        except KeyboardInterrupt:
            if engines.is_trace_whole:
                say(f"the trace so far is in {spec.trace.path}")
            raise

    def tried(other: ReplaySpec, of: Scenario, what: str) -> Report:
        """The report of a replay that is not the one asked for."""
        if policy is not None and other.scheduler.policy == spec.scheduler.policy:
            other = replace(other, policy=policy)
        beside = Engines(other)
        with bars(len(other.workload), f"trying {what}") as on_progress:
            beside.replay(skip_refused=of.arrivals.skip_refused, on_progress=on_progress)
        return beside.report()

    report = msgspec.structs.replace(engines.report(), advice=[]) if not advice else engines.report()
    if advice:
        try:
            report = with_trials(scenario, spec, report, tried, most_steps=most_steps)
        except KeyboardInterrupt:
            say(_INTERRUPTED)
            report = msgspec.structs.replace(report, advice=[])
    return RunResult(
        report=report,
        result=result,
        deployment=spec.deployment,
        workload=spec.workload,
        trace=spec.trace.path,
        problem=engines.problem,
    )


def slo_texts(slo: SLOs) -> tuple[tuple[str, ...], ...]:
    """Bounds as texts. ConfigError for what is none comes when they are read."""
    if slo is None:
        return ()
    if isinstance(slo, str):
        return (tuple(slo.split()),)
    return (tuple(f"{name}{'=' if '_' in name else ':'}{_time(value)}" for name, value in slo.items()),)


def _time(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value}ms"


def _with_policy(settings: Any, policy: Any) -> tuple[Any, PolicyMaker | None]:
    """The settings with the name of a policy, or what makes one of a class."""
    if policy is None:
        return settings, None
    if isinstance(policy, str):
        return changed(settings, {"scheduling_policy": policy}), None
    if isinstance(policy, Policy):
        if settings.parallel.data_parallel_size > 1 or settings.parallel.replicas is not None:
            raise ConfigError("policy", policy, "several engines need one each: give the class, or what makes one")
        return settings, lambda: policy
    if callable(policy):
        return settings, policy
    raise ConfigError("policy", policy, "give a name, a class of Policy, or what makes one")
