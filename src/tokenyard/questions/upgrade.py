"""Another version of vLLM for the same traffic: what it decides, takes for granted and refuses, and what that costs.

The workload is replayed three times: by the older version, by the older version's settings with the newer one's
decisions, and by the newer version. Where the first two part, switches are turned one by one up to that moment: the one
that makes the same step differ is the cause.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import msgspec

from tokenyard.core.config import MambaCacheMode
from tokenyard.core.outside import outside_features
from tokenyard.core.profiles import PROFILES, DecisionProfile, decision_profile, turned_between
from tokenyard.core.sched.observer import SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import StepOutcomes
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.setting_values import names_of, value_of
from tokenyard.deploy.settings import DeploymentSettings
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.deploy.vllm_serve.defaults import known_version
from tokenyard.errors import ConfigError
from tokenyard.explain.compare.comparison import figures
from tokenyard.explain.report.report import Report
from tokenyard.explain.table import Printable, RowTable, table_from
from tokenyard.questions.recorded.answer import FIGURES
from tokenyard.questions.recorded.recorded_run import read_run
from tokenyard.questions.replaying import Engines, Watching
from tokenyard.questions.scenario import (
    Bars,
    OnProgress,
    Scenario,
    WorkloadChoice,
    bars_of,
    deployment_settings,
    replay_spec,
    takes_arrivals,
    traffic_by_name,
    without_trace,
)
from tokenyard.questions.variant_sources import is_trace
from tokenyard.questions.variants import variant_of_text
from tokenyard.questions.whatif import read_recorded

if TYPE_CHECKING:
    from tokenyard.questions.keywords import TrafficKeywords


class VersionDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The first step that the two versions decide differently, with the same settings."""

    step: int
    """Number among the steps that schedule anything, from 0."""
    at_s: float
    """Seconds since the start of the replay."""
    older: dict[str, int] | None
    """Request id -> tokens; None: there is no such step."""
    newer: dict[str, int] | None
    switch: str | None
    """What causes it; None: no switch alone does."""
    since: str | None
    """The version that turned it."""


class SwitchTurned(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between what two versions decide."""

    name: str
    since: str
    meaning: str
    older: bool | int | None
    newer: bool | int | None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is another with the newer version."""

    name: str
    older: Any
    newer: Any


class Upgrade(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """What changes for a workload with another version."""

    printer = "tokenyard.questions.printing.upgrade:print_upgrade"

    older: str
    newer: str
    workload: str
    requests: int
    equal_steps: int
    """Steps before the first difference."""
    first_difference: VersionDifference | None
    switches: list[SwitchTurned]
    """All differences between the decisions of the two, whether this workload meets them or not."""
    defaults: list[Moved]
    """Settings that were not given, and that differ."""
    missing_flags: list[str]
    """Flags that were given, and that the newer version does not have."""
    memory: list[Moved]
    latencies: list[Moved]
    outside: dict[str, str]
    """Features in use that one of the profiles does not model as its version has them, and what it does."""

    def summary(self) -> str:
        first = self.first_difference
        decisions = "the same in every step" if first is None else f"others from step {first.step:,} on"
        return f"vLLM {self.newer} instead of {self.older} for {self.workload}: decisions are {decisions}"

    def as_table(self) -> RowTable:
        """One row per latency and figure of memory: ``figure``, ``older`` and ``newer``."""
        rows = [{"figure": each.name, "older": each.older, "newer": each.newer} for each in self.figures]
        return table_from("upgrade", rows, numbers=("older", "newer"))

    @property
    def figures(self) -> list[Moved]:
        """Latencies, whether they differ or not, and the memory that does."""
        return [*self.latencies, *self.memory]


# ---------------------------------------------------------------------------------------------------------------------
# Which step is the first to differ.


class _Step(msgspec.Struct, frozen=True):
    at: float
    tokens: dict[str, int]


class _Watch(StepObserver):
    """Keeps a hash of what each step schedules, and the whole of one of them."""

    reads_tokens = False

    def __init__(self, kept: int | None = None) -> None:
        self._number_kept = kept
        self.hashes: list[int] = []
        self.step: _Step | None = None

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        if not output.total_num_scheduled_tokens:
            return
        tokens = output.num_scheduled_tokens
        if len(self.hashes) == self._number_kept:
            self.step = _Step(ts, dict(tokens))
        self.hashes.append(hash(tuple(tokens.items())))


def _watched(spec: ReplaySpec, watch: _Watch, bars: Bars, what: str, *, until: float | None = None) -> Report:
    engines = Engines(spec, watching=Watching(until=until, observer=watch))
    with bars(len(spec.workload), what) as on_progress:
        engines.replay(skip_refused=True, on_progress=on_progress)
    return engines.report()


def _with_profile(spec: ReplaySpec, profile: DecisionProfile) -> ReplaySpec:
    return replace(spec, scheduler=replace(spec.scheduler, profile=profile))


def _cause(
    spec: ReplaySpec, turned: Mapping[str, str], newer: DecisionProfile, place: int, found: _Step | None, until: float
) -> str | None:
    """The switch that makes step number ``place`` what it is in the newer version, or at least another."""
    profile, fallback = spec.scheduler.profile, None
    base = _Watch(place)
    _watched(spec, base, bars_of(None), "", until=until)
    for switch in turned:
        watch = _Watch(place)
        try:
            one = _with_profile(spec, replace(profile, **{switch: getattr(newer, switch)}))
        except ConfigError:
            continue
        _watched(one, watch, bars_of(None), "", until=until)
        same_before = watch.hashes[:place] == base.hashes[:place]
        if same_before and (watch.step and watch.step.tokens) == (found and found.tokens):
            return switch
        if fallback is None and watch.hashes != base.hashes:
            fallback = switch
    return fallback


def _first_difference(
    spec: ReplaySpec, older: _Watch, newer: _Watch, profile: DecisionProfile, turned: Mapping[str, str]
) -> VersionDifference | None:
    if older.hashes == newer.hashes:
        return None
    both = zip(older.hashes, newer.hashes, strict=False)
    place = next((i for i, (one, other) in enumerate(both) if one != other), min(len(older.hashes), len(newer.hashes)))
    kept = _Watch(place), _Watch(place)
    _watched(spec, kept[0], bars_of(None), "")
    _watched(_with_profile(spec, profile), kept[1], bars_of(None), "")
    moments = [watch.step.at for watch in kept if watch.step is not None]
    start = spec.workload.requests[0].arrival_time if len(spec.workload) else 0.0
    until = max(moments) - start + 1e-3
    switch = _cause(spec, turned, profile, place, kept[1].step, until)
    return VersionDifference(
        step=place,
        at_s=min(moments),
        older=kept[0].step.tokens if kept[0].step else None,
        newer=kept[1].step.tokens if kept[1].step else None,
        switch=switch,
        since=None if switch is None else turned[switch],
    )


# ---------------------------------------------------------------------------------------------------------------------
# What is taken where nothing is given, and what it costs.

_MEMORY = ("num_blocks", "block_size", "bytes_per_block", "max_concurrency")


def _comparable(value: Any) -> Any:
    if is_dataclass(value) or isinstance(value, tuple | list):
        return repr(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _moved(older: Any, newer: Any, names: Iterator[str] | tuple[str, ...]) -> list[Moved]:
    both = [(name, _comparable(getattr(older, name, None)), _comparable(getattr(newer, name, None))) for name in names]
    return [Moved(name=name, older=one, newer=other) for name, one, other in both if one != other]


def _defaults(older: ReplaySpec, newer: ReplaySpec) -> list[Moved]:
    names = (each.name for each in fields(older.scheduler) if each.name != "profile")
    cache = (each.name for each in fields(older.cache) if each.name != "num_gpu_blocks")
    graphs = ("capture_size", "kv_cache_dtype")
    return [
        *_moved(older.scheduler, newer.scheduler, names),
        *_moved(older.cache, newer.cache, cache),
        *_moved(older.settled, newer.settled, graphs),
    ]


def _latencies(older: Report, newer: Report) -> list[Moved]:
    known = {figure.name: figure for figure in figures(older, newer)}
    return [Moved(name=name, older=known[name].a, newer=known[name].b) for name in FIGURES if name in known]


@cache
def meanings() -> dict[str, str]:
    """What each switch does, by its name: what stands under it in the profile."""
    source = files("tokenyard.core").joinpath("profiles.py").read_text(encoding="utf-8")
    found = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == DecisionProfile.__name__
    )
    told: dict[str, str] = {}
    for switch, text in zip(found.body, found.body[1:], strict=False):
        is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if is_text and isinstance(switch, ast.AnnAssign) and isinstance(switch.target, ast.Name):
            told[switch.target.id] = " ".join(str(text.value.value).split())  # type: ignore[attr-defined]
    return told


# ---------------------------------------------------------------------------------------------------------------------
# Asking.


def _of_version(scenario: Scenario, version: str) -> Scenario:
    return replace(without_trace(scenario), launch=replace(scenario.launch, vllm_version=version))


def _outside(spec: ReplaySpec) -> dict[str, str]:
    return outside_features(spec.scheduler, spec.cache)


class _Traffic(NamedTuple):
    """A scenario, and what its two versions replay."""

    scenario: Scenario
    before: ReplaySpec
    after: ReplaySpec


def _replayed(scenario: Scenario, older: str, newer: str) -> _Traffic:
    before = replay_spec(_of_version(scenario, older))
    return _Traffic(scenario, before, replay_spec(_of_version(scenario, newer), before.workload))


def _recorded(scenario: Scenario, trace: str, older: str, newer: str) -> _Traffic:
    """The requests of a trace on the deployment that is named, else on its own, with its blocks and step times."""
    named = scenario.launch.asked.named.intersection(names_of(DeploymentSettings))
    if "model" in named:
        return _replayed(replace(scenario, workload=read_run(trace).workload), older, newer)
    for name in sorted(named):
        fix = (
            "a trace is replayed with the settings that it was recorded with: leave it out, or name a whole deployment"
        )
        raise ConfigError(name, value_of(scenario, name), f"{fix} with §serve")
    run, recorded = read_recorded(trace)
    flags, _ = recorded.known
    traffic = _replayed(Scenario.of(flags, run.workload, arrivals=scenario.arrivals), older, newer)
    before, after = (
        replace(spec, scheduler=variant.scheduler, cache=variant.cache, latency=variant.latency)
        for spec, version in ((traffic.before, older), (traffic.after, newer))
        for variant in (variant_of_text(run, recorded, f"vllm_version={version}"),)
    )
    return traffic._replace(before=before, after=after)


def ask(scenario: Scenario, older: str, newer: str, *, bars: Bars | None = None) -> Upgrade:
    """What version ``newer`` changes for a scenario that version ``older`` serves. Raises TokenyardError.

    A workload that names a trace is its requests, on the deployment that it was recorded on.
    """
    bars = bars or bars_of(None)
    for name, version in (("older", older), ("newer", newer)):
        if not isinstance(version, str):
            raise ConfigError(name, version, "give it as a text: a number has no last 0")
    older, newer = (known_version(each, or_nearest=False) for each in (older, newer))
    if older == newer:
        raise ConfigError("newer", newer, f"is the version that it comes from: use another of {', '.join(PROFILES)}")
    if isinstance(scenario.workload, str) and is_trace(scenario.workload):
        scenario, before, after = _recorded(scenario, scenario.workload, older, newer)
    else:
        scenario, before, after = _replayed(scenario, older, newer)
    turned = {
        switch: since
        for switch, since in turned_between(older, newer).items()
        if getattr(before.scheduler.profile, switch) != getattr(after.scheduler.profile, switch)
    }
    # A mode that only the older version has belongs to its settings.
    met = set(turned) - ({"mamba_mode_all"} if before.cache.mamba_cache_mode is MambaCacheMode.ALL else set())
    profile = replace(before.scheduler.profile, **{name: getattr(after.scheduler.profile, name) for name in met})
    watches = _Watch(), _Watch()
    report = _watched(before, watches[0], bars, f"vLLM {older}")
    _watched(_with_profile(before, profile), watches[1], bars, f"decisions of {newer}")
    then = _watched(after, _Watch(), bars, f"vLLM {newer}")
    first = _first_difference(before, *watches, profile, turned)
    told = meanings()
    one, other = decision_profile(older), decision_profile(newer)
    return Upgrade(
        older=older,
        newer=newer,
        workload=before.workload.name,
        requests=len(before.workload),
        equal_steps=len(watches[0].hashes) if first is None else first.step,
        first_difference=first,
        switches=[
            SwitchTurned(
                name=name, since=since, meaning=told.get(name, ""), older=getattr(one, name), newer=getattr(other, name)
            )
            for name, since in turned.items()
        ],
        defaults=_defaults(before, after),
        missing_flags=[str(each) for each in scenario.launch.asked.missing_in(newer)],
        memory=_moved(before.settled.plan, after.settled.plan, _MEMORY),
        latencies=_latencies(report, then),
        outside=_outside(before) | _outside(after),
    )


@takes_arrivals
def upgrade(
    workload: WorkloadChoice,
    deployment: Deployment,
    older: str,
    newer: str,
    *,
    progress: OnProgress | bool | None = None,
    **arrivals: Unpack[TrafficKeywords],
) -> Upgrade:
    """What another version of vLLM changes for a workload on a deployment, whose own version does not count.

    ``workload``, ``progress`` and ``arrivals`` are given as for :func:`tokenyard.run`. Raises TokenyardError.
    """
    scenario = Scenario.of(deployment_settings(deployment), workload, arrivals=traffic_by_name(arrivals))
    return ask(scenario, older, newer, bars=bars_of(progress))
