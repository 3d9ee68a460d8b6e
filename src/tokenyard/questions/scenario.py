"""The question: a workload, the deployment that it is sent to, and how that is recorded and judged."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, field, fields, replace
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from tokenyard.arguments import given_function, given_text, suggests_keywords
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.setting_values import group_of, names_of, with_values
from tokenyard.deploy.settings import DeploymentSettings, SplitSettings, TraceSettings
from tokenyard.deploy.spec import ReplaySpec, build_replay, resolve
from tokenyard.errors import ConfigError, OverwrittenTraceWarning
from tokenyard.questions.by_class import read_bounds
from tokenyard.questions.settings import TrafficSettings
from tokenyard.questions.traffic import applied, workload_from
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.traffic import Progress, shown_progress
from tokenyard.workload.load import files_named
from tokenyard.workload.record import Workload

if TYPE_CHECKING:
    from tokenyard.questions.keywords import TrafficKeywords

# ---------------------------------------------------------------------------------------------------------------------
# Callbacks: how far a question has come, and warnings beside its answer.

OnProgress = Callable[[Progress], object]
"""Called with the state of a replay, now and then; what returns "stop" ends it."""
Bars = Callable[[int, str], AbstractContextManager[OnProgress | None]]
"""Number of requests, and what is replayed, if it is not the run itself -> what to call while it lasts."""
Say = Callable[[str], None]
"""Called with a sentence that the user should read."""


def warn_overwritten(directory: object) -> None:
    """Warn a program of a trace that is about to be written where another one is, in the line that calls us."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("tokenyard."):
        frame, level = frame.f_back, level + 1
    text = f"trace = {str(directory)!r}: the trace that is there is overwritten: name another directory to keep both"
    warnings.warn(text, OverwrittenTraceWarning, stacklevel=level)


def nothing(_: str) -> None:
    """Drop the sentence."""


_CALLED = "give a function, True for a line on standard error, or leave it out"


def bars_of(progress: OnProgress | bool | None) -> Bars:
    """The same function for every replay; True: a line on standard error. Raises ConfigError for anything else."""
    told = None if isinstance(progress, bool) else progress
    given_function("progress", told, _CALLED)

    @contextmanager
    def bar(total: int, _: str) -> Iterator[OnProgress | None]:
        with shown_progress(told, total, shown=progress is True) as tells:
            yield tells

    return bar


OnCount = Callable[[int, int], object]
"""Called with the number of variants that are done, and how many there are."""
Counting = Callable[[int, int], AbstractContextManager[Callable[[], None]]]
"""Number of variants, and of those that are done -> what to call with each that was finished."""


def counting_of(progress: OnCount | bool | None, what: str = "variants") -> Counting:
    """Counts for ``progress``; True: for a line on standard error. Raises ConfigError for anything else."""
    given_function("progress", None if isinstance(progress, bool) else progress, _CALLED)

    @contextmanager
    def bar(total: int, done: int) -> Iterator[Callable[[], None]]:
        finished = done

        def advance() -> None:
            nonlocal finished
            finished += 1
            if callable(progress):
                progress(finished, total)
            elif progress:
                sys.stderr.write(f"\r{finished:,} of {total:,} {what}\x1b[K")
                sys.stderr.flush()

        yield advance
        if progress is True and finished > done:
            sys.stderr.write("\n")

    return bar


# ---------------------------------------------------------------------------------------------------------------------
# The question: a workload, the deployment that it is sent to, and how that is recorded and judged.

WorkloadChoice: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]] | Workload
"""A built-in workload by its name, a file, several logs, or a workload that was made or read."""


def deployment_settings(deployment: object, field: str = "deployment") -> DeploymentSettings:
    """The settings of a deployment. Raises ConfigError, which names ``field``, for anything else."""
    if isinstance(deployment, Deployment):
        return deployment.settings
    where = ", behind the workload" if field == "deployment" else ""
    raise ConfigError(field, deployment, f'give a Deployment{where}: Deployment("vllm serve MODEL ...", gpu="h100")')


def _names_of_files(workload: object) -> list[str]:
    """A name, a file or several logs as texts. Raises ConfigError for anything else."""
    named = [workload] if isinstance(workload, str | PathLike) else workload
    if isinstance(named, list | tuple) and named and all(isinstance(each, str | PathLike) for each in named):
        return [str(fspath(each)) for each in named]
    fix = "give the name of a built-in one (chat), a file, or a Workload: WorkloadBuilder(...).build() makes one"
    raise ConfigError("workload", workload, fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(DeploymentSettings):
    """Settings of a deployment and of all that is around it. Variants of it differ in settings by name."""

    workload: str | Workload
    """Built-in, a file, or a workload."""
    more: tuple[str, ...] = ()
    """Further logs."""
    arrivals: TrafficSettings = field(default_factory=TrafficSettings)
    split_settings: SplitSettings = field(default_factory=SplitSettings)
    trace: TraceSettings = field(default_factory=TraceSettings)
    slo: tuple[tuple[str, ...], ...] = ()
    """Bounds on latencies, as texts."""
    by: str | None = None
    """Column that says of which class a request is; bounds may then be of one."""

    @property
    def deployment(self) -> DeploymentSettings:
        """The settings of the deployment alone."""
        return DeploymentSettings(**{each.name: getattr(self, each.name) for each in fields(DeploymentSettings)})

    @property
    def name(self) -> str:
        """The workload's name."""
        return self.workload if isinstance(self.workload, str) else self.workload.name

    def read(self) -> Workload:
        """The workload, with its clients and delays. Raises TokenyardError."""
        if isinstance(self.workload, Workload):
            return applied(self.workload, self.arrivals)
        return workload_from(self.workload, self.arrivals, self.more)

    @classmethod
    def of(cls, deployment: DeploymentSettings, workload: WorkloadChoice, **around: Any) -> Scenario:
        """``workload`` on ``deployment``. Raises ConfigError for what is no workload."""
        own = {each.name: getattr(deployment, each.name) for each in fields(DeploymentSettings)}
        if around.get("by") is not None:
            given_text("by", around["by"], "give the name of a column, as a text")
        if isinstance(workload, Workload):
            return cls(workload=workload, **own, **around)
        first, *more = _names_of_files(workload)
        return cls(workload=first, more=tuple(more), **own, **around)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """What sets up a split, as a question takes it."""

    apart: SplitSettings = field(default_factory=SplitSettings)


def split_by_name(**given: object) -> SplitSettings:
    """Settings of a split, by name. Raises ConfigError for a value of another kind."""
    return with_values(_Split(), given).apart


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traffic:
    """What sets up arrivals, as a question takes it."""

    arrivals: TrafficSettings = field(default_factory=TrafficSettings)


def _of_a_deployment(name: str) -> str | None:
    """Where a setting is said that a question does not take."""
    if group_of(DeploymentSettings, name) is None:
        return None
    return f"it is a setting of the deployment, Deployment(..., {name}=...) or with_({name}=...)"


takes_arrivals = suggests_keywords(others=partial(names_of, _Traffic), elsewhere=_of_a_deployment)
"""A decorator of questions whose ``**arrivals`` are settings of what arrives, by name.

UnknownArgumentError for a name that there is not, with the nearest.
"""


@takes_arrivals
def load_workload(
    workload: str | PathLike[str] | Sequence[str | PathLike[str]], **arrivals: Unpack[TrafficKeywords]
) -> Workload:
    """A built-in workload by name, or one read from a file (plain or gzipped).

    Several logs are merged by time; a pattern (``logs/*.jsonl``) names them, too. ``arrivals``: settings of what
    arrives, by the names of the flags, as :func:`tokenyard.run` takes them: ``format="openai"`` overrides what the
    file's beginning shows, ``limit`` counts sessions where the workload has them, else requests; ``rate_scale`` makes
    arrivals so many times as fast, ``request_rate`` draws them; ``columns="arrival_time=at"`` names those of a log.
    Raises WorkloadError naming file and line, or ConfigError naming the setting.
    """
    if arrivals.get("skip_refused"):
        raise ConfigError("skip_refused", True, "says what a replay does: give it to run(), or leave it out")
    first, *more = _names_of_files(workload)
    return workload_from(first, traffic_by_name(arrivals), more)


def replay_spec(scenario: Scenario, workload: Workload | None = None) -> ReplaySpec:
    """Check that there is a workload, then every setting, then read it, unless it is given. Raises TokenyardError."""
    deployment = scenario.deployment
    if workload is None and isinstance(scenario.workload, str):
        files_named(
            (scenario.workload, *scenario.more) if scenario.more else scenario.workload, format=scenario.arrivals.format
        )
    if not deployment.launch.ignore_unmodelled:
        deployment.launch.asked.require_modelled()
    slos = [slo for slo in read_bounds(scenario.slo, scenario.by) if not slo.of]
    resolved = resolve(deployment, seed=scenario.arrivals.seed)
    return build_replay(
        resolved,
        scenario.read if workload is None else workload,
        arrivals=asdict(scenario.arrivals),
        trace=scenario.trace,
        slos=slos,
    )


def traffic_by_name(given: Mapping[str, Any]) -> TrafficSettings:
    """Settings of what arrives, by name: of a function that :func:`takes_arrivals`."""
    return with_values(_Traffic(), {name: value for name, value in given.items() if value is not None}).arrivals


def without_trace(scenario: Scenario) -> Scenario:
    """The same, for a replay beside the one that was requested."""
    return replace(scenario, trace=TraceSettings())
