"""A workload on a deployment: replayed on a virtual clock, reported, with what would have helped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import msgspec

from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.given import changed
from tokenyard.deploy.settings import TraceSettings
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.errors import ConfigError
from tokenyard.explain.report.report import Report
from tokenyard.policies.named import PolicyMaker
from tokenyard.questions.bars import Bars, OnProgress, Say, bars_of, nothing
from tokenyard.questions.engines import Engines
from tokenyard.questions.scenario import Scenario, prepared, traffic_by_name
from tokenyard.questions.trials import with_trials
from tokenyard.sched.policy import Policy
from tokenyard.sim.parallel.replay import ParallelResult
from tokenyard.sim.replay import ReplayResult
from tokenyard.sim.workload.record import Workload
from tokenyard.sim.workload.turns import turn_orders
from tokenyard.trace.format.deployment import Deployment as Header

__all__ = ["STEPS_TRIED", "RunResult", "SLOs", "ask", "run", "slo_texts"]

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
    result: ReplayResult | ParallelResult
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
