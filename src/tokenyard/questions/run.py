"""A workload on a deployment: replayed on a virtual clock, reported, with what would have helped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import msgspec

from tokenyard.arguments import given_path
from tokenyard.core.sched.policy import Policy
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.given import changed
from tokenyard.deploy.settings import TraceSettings
from tokenyard.deploy.spec import Chosen, ReplaySpec
from tokenyard.errors import ConfigError
from tokenyard.explain.measured import Calibration, MeasuredBeside
from tokenyard.explain.report.classes import Classes, classes_of, slos_by_class
from tokenyard.explain.report.report import Report
from tokenyard.explain.slo import SLOs, slo_texts
from tokenyard.explain.table import Printable, RowTable
from tokenyard.explain.why.why import Why
from tokenyard.policies.eviction import EvictionChoice
from tokenyard.questions.by_class import ClassBounds, read_bounds, require_column
from tokenyard.questions.calibrating import calibrated
from tokenyard.questions.measured import ReplayedTimes, has_measured
from tokenyard.questions.plots import plot_requests
from tokenyard.questions.relief import with_relief, with_trials
from tokenyard.questions.replaying import Engines, Watching
from tokenyard.questions.scenario import (
    Bars,
    OnProgress,
    Say,
    Scenario,
    WorkloadChoice,
    bars_of,
    deployment_settings,
    nothing,
    replay_spec,
    takes_arrivals,
    traffic_by_name,
    warn_overwritten,
)
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.choices import (
    ConnectorChoice,
    ObserverChoice,
    PolicyChoice,
    RouterChoice,
    named_observers,
)
from tokenyard.sim.fleet import FleetEvent, FleetPolicy
from tokenyard.sim.replay import ReplayResult
from tokenyard.sim.routers import Router
from tokenyard.sim.rows.recorder import Floats
from tokenyard.sim.rows.rows import ReplayRows
from tokenyard.sim.traffic import Extent
from tokenyard.steptime.model import LatencyModel
from tokenyard.trace.start import DeploymentHeader as Header
from tokenyard.workload.load import turn_orders
from tokenyard.workload.record import Workload

if TYPE_CHECKING:
    from tokenyard.questions.keywords import TrafficKeywords

STEPS_TRIED = 60_000
"""Steps that proposals are replayed for unasked, all together: some twenty seconds."""
_INTERRUPTED = "interrupted while proposals were tried: the report is without advice"


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult(Printable):
    """What came of a run: its report, and, unless ``rows=False``, what it was like row by row.

    ``print`` shows the report; ``repr`` is one line. Tables are made on first use.
    """

    report: Report
    """What held requests back, latencies, throughput; with advice where that was requested."""
    result: ReplayResult
    """Counts of the replay, why it ended, and whom it refused."""
    deployment: Header
    """What was served, on what, and how far that is known."""
    workload: Workload
    trace: Path | None = None
    """The directory of the trace; None if none was wanted."""
    problem: str | None = None
    """Why the trace is not whole; None if it is."""
    observed: Mapping[str, Any] = field(default_factory=dict)
    """The observers that were given by name, as they are at the end."""

    @property
    def rows(self) -> ReplayRows:
        """Tables of requests, steps and waits, of all engines. ConfigError after ``rows=False``."""
        if self.result.rows is None:
            raise ConfigError("rows", False, "the run kept none: run it with rows=True")
        return self.result.rows

    @property
    def requests(self) -> RowTable:
        """One row per request that came: see :attr:`ReplayRows.requests`."""
        return self.rows.requests

    @property
    def steps(self) -> RowTable:
        """One row per step of each engine: see :attr:`ReplayRows.steps`."""
        return self.rows.steps

    @property
    def waits(self) -> RowTable:
        """One row per stretch of waiting, with its reason: see :attr:`ReplayRows.waits`."""
        return self.rows.waits

    def token_gaps(self, request_id: str | None = None) -> Floats:
        """Milliseconds between two tokens of an answer, of all answers or of one: see :meth:`ReplayRows.token_gaps`."""
        return self.rows.token_gaps(request_id)

    def why(self, request_id: str) -> Why:
        """Why one request waited. ConfigError for an id that no request has."""
        return self.rows.why(request_id)

    def by(self, column: str, slo: SLOs = None) -> Classes:
        """The run class by class: by ``priority``, ``lora_name``, ``prompt_tokens`` (in ranges), ``user``, ``tier`` or
        any other column of :attr:`requests`. ``slo``: bounds, of one class as ``interactive:ttft_p95=1s``, or of all.
        ConfigError for a column, or a bound's class, that there is not.
        """
        bounds = slos_by_class(slo_texts(slo))
        column = require_column(column, self.workload)
        return classes_of(self.requests, self.waits, column, slos=bounds, seconds=self.report.duration_s)

    def plot(self, ax: Any = None) -> Any:
        """How many requests ran and waited over time, drawn with matplotlib on ``ax`` or new axes, which are returned.

        MissingExtraError without matplotlib.
        """
        return plot_requests(self.workload.name, self.requests, ax)

    def to_dict(self) -> dict[str, Any]:
        """The report, as ``tokenyard run --json`` prints it."""
        return self.report.to_dict()

    def as_table(self) -> RowTable:
        """The report's latencies: see :meth:`Report.as_table`. :attr:`requests`, :attr:`steps` and :attr:`waits` are
        what it was like row by row.
        """
        return self.report.as_table()

    def summary(self) -> str:
        result = self.result
        said = [f"{result.num_finished:,} of {len(self.workload):,} requests finished"]
        said += [f"{len(result.refused):,} refused"] if result.refused else []
        said += [f"{len(result.unfinished):,} under way"] if result.unfinished else []
        said += [f"{result.num_not_arrived:,} still to come"] if result.num_not_arrived else []
        return f"{', '.join(said)}, in {result.seconds:,.1f} simulated seconds"

    def __repr__(self) -> str:
        return f"<RunResult {self.workload.name}: {self.summary()}>"

    def __str__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


@takes_arrivals
def run(
    workload: WorkloadChoice,
    deployment: Deployment | None = None,
    *,
    policy: PolicyChoice | None = None,
    router: RouterChoice | None = None,
    latency: LatencyModel | str | None = None,
    observer: ObserverChoice | Sequence[ObserverChoice] | Mapping[str, ObserverChoice] | None = None,
    kv_transfer: ConnectorChoice | None = None,
    eviction: EvictionChoice | None = None,
    fleet: FleetPolicy | type[FleetPolicy] | None = None,
    events: Sequence[FleetEvent] = (),
    beside: Sequence[Deployment] = (),
    kv_link_gb_per_s: float | None = 50.0,
    rows: bool = True,
    warmup: float = 0.0,
    until: float | None = None,
    progress: OnProgress | bool | None = None,
    trace: str | PathLike[str] | None = None,
    advice: bool | Literal["all"] = False,
    slo: SLOs = None,
    calibrate: bool = False,
    **arrivals: Unpack[TrafficKeywords],
) -> RunResult:
    """Replay a workload on a deployment, on a virtual clock.

    ``workload``: one that was made or read, a built-in one by its name, or a file. ``deployment``: None is that of
    the command without flags. ``policy``, ``router``, ``observer`` and ``kv_transfer`` are given as for
    :func:`tokenyard.replay`; None is the deployment's. ``latency``: a name, or an object or a class with
    ``step_seconds``. ``observer``: also several by name, which the result has as ``observed``.
    ``eviction``: the order in which cached blocks are given up, a name, a class or an object; None is the policy's, or
    vLLM's (LRU). ``fleet``: decides over several engines (:class:`~tokenyard.FleetPolicy`); ``events``: crashes and the
    like; ``beside``: deployments of further engines; ``kv_link_gb_per_s``: what KV moves over. ``rows``: keep what the
    result's tables are made of, a kilobyte a request and 104 bytes a step. ``warmup``, ``until``: requests of the first
    so many seconds do not count in report and rows; the replay ends at so many seconds. ``progress`` is called now and
    then, and ends the replay by returning ``"stop"``; True shows a line on standard error. ``trace``: a directory for
    the trace; an OverwrittenTraceWarning says that one is there, which is overwritten. ``advice``: replay what the
    report proposes, too (some 60,000 steps of the busiest part; ``"all"``: whole runs). ``slo``: bounds, ``{"ttft_p90":
    "500ms", "tpot": 40}``. ``calibrate``: scale step times to what the workload's input measured, by a few replays
    more; the report's ``measured.calibration`` says by how much. ``arrivals``: settings of what arrives, by the names
    of the flags (``limit=40``, ``seed=1``, ``rate_scale=2``, ``skip_refused=True``). Raises TokenyardError.
    """
    settings = deployment_settings(Deployment() if deployment is None else deployment)
    named = {"scheduling_policy": policy, "router": router}
    said = {name: value for name, value in named.items() if isinstance(value, str)}
    settings = changed(settings, said if latency is None else {**said, "latency": latency})
    watching, observed = named_observers(observer)
    if advice:
        _require_repeatable(policy, router, warmup=warmup, until=until)
    scenario = Scenario.of(
        settings,
        workload,
        arrivals=traffic_by_name(arrivals),
        trace=TraceSettings(trace=None if trace is None else given_path("trace", trace)),
        slo=slo_texts(slo),
    )
    Extent.of(warmup, until)
    return ask(
        scenario,
        bars=bars_of(progress),
        on_overwritten=warn_overwritten,
        chosen=Chosen(
            None if isinstance(policy, str) else policy,
            None if isinstance(router, str) else router,
            kv_transfer,
            eviction,
            fleet=fleet,
            events=events,
            beside=[replay_spec(Scenario.of(deployment_settings(each, "beside"), workload)) for each in beside],
            kv_link_gb_per_s=kv_link_gb_per_s,
        ),
        watching=Watching(rows, warmup, until, watching),
        observed=observed,
        advice=bool(advice),
        most_steps=STEPS_TRIED if advice is True else None,
        calibrate=calibrate,
    )


def _require_repeatable(policy: object, router: object, *, warmup: float, until: float | None) -> None:
    """Raise ConfigError for what would serve one replay, or make others incomparable."""
    for name, choice, kind in (("policy", policy, Policy), ("router", router, Router)):
        if isinstance(choice, kind):
            raise ConfigError(name, choice, "proposals are replayed too, each with a new one: give the class")
    for name, given in (("warmup", warmup), ("until", until)):
        if given:
            raise ConfigError(name, given, "proposals are compared by whole runs: leave out this, or advice")


def _told(report: Report, calibration: Calibration) -> Report:
    """The report with what its step times were scaled by."""
    beside = report.measured or MeasuredBeside(requests=0, measured_requests=0)
    return msgspec.structs.replace(report, measured=msgspec.structs.replace(beside, calibration=calibration))


def _class_bounds(scenario: Scenario) -> ClassBounds | None:
    """The bounds of classes that a scenario asks for; None without any."""
    slos = read_bounds(scenario.slo, scenario.by)
    return ClassBounds(scenario.by, slos) if scenario.by is not None and slos else None


def ask(
    scenario: Scenario,
    *,
    bars: Bars,
    say: Say = nothing,
    on_read: Callable[[Workload], None] | None = None,
    on_overwritten: Callable[[Path], None] | None = None,
    chosen: Chosen | None = None,
    watching: Watching | None = None,
    advice: bool = False,
    most_steps: int | None = None,
    calibrate: bool = False,
    observed: Mapping[str, Any] | None = None,
) -> RunResult:
    """The same for a scenario: ``bars`` are notified of every replay, ``say`` gets what goes wrong on the way.

    ``on_read`` is called with the workload before it is replayed. Raises TokenyardError.
    """
    chosen = chosen or Chosen()
    calibration = None
    if calibrate:
        scenario, calibration = calibrated(scenario, bars)
    spec = chosen.on(replay_spec(scenario))
    if on_read is not None:
        on_read(spec.workload)
    skip_refused = scenario.arrivals.skip_refused
    classes = _class_bounds(scenario) if advice else None
    times = ReplayedTimes(spec.workload) if has_measured(spec.workload) else None
    watching = msgspec.structs.replace(watching or Watching(), classes=classes, times=times)
    with ExitStack() as stack:
        engines = Engines(spec, stack, turn_orders(spec.workload), on_overwritten, watching)
        try:
            with bars(len(spec.workload), "") as on_progress:
                result = engines.replay(skip_refused=skip_refused, on_progress=on_progress)
        except KeyboardInterrupt:
            if engines.is_trace_whole:
                say(f"the trace so far is in {spec.trace.path}")
            raise

    def tried(other: ReplaySpec, of: Scenario, what: str) -> Report:
        """The report of a replay that is not the requested one."""
        same_policy = other.scheduler.policy == spec.scheduler.policy
        changed_spec = (chosen if same_policy else msgspec.structs.replace(chosen, policy=None)).on(other)
        beside = Engines(changed_spec, watching=Watching(rows=classes is not None, classes=classes))
        with bars(len(other.workload), f"trying {what}") as on_progress:
            beside.replay(skip_refused=of.arrivals.skip_refused, on_progress=on_progress)
        return beside.judged()

    report = msgspec.structs.replace(engines.report(), advice=[]) if not advice else engines.report()
    if advice:
        try:
            judged = with_trials(scenario, spec, engines.judged(), tried, most_steps=most_steps)
            judged = with_relief(scenario, spec, judged, tried, most_steps=most_steps)
            report = msgspec.structs.replace(judged, goodput=report.goodput, measured=report.measured)
        except KeyboardInterrupt:
            say(_INTERRUPTED)
            report = msgspec.structs.replace(report, advice=[])
    return RunResult(
        report=report if calibration is None else _told(report, calibration),
        result=result,
        deployment=spec.deployment,
        workload=spec.workload,
        trace=spec.trace.path,
        problem=engines.problem,
        observed=observed or {},
    )
