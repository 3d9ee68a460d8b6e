"""A workload with prefill and decode apart: on two fleets of engines, of which the first sends KV to the second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec

from tokenyard.arguments import given_path
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.given import changed
from tokenyard.deploy.settings import TraceSettings
from tokenyard.explain.report.report import Report
from tokenyard.explain.slo import SLOs, slo_texts
from tokenyard.explain.table import Printable, RowTable
from tokenyard.questions.replaying import Recordings, Watching
from tokenyard.questions.scenario import (
    Bars,
    OnProgress,
    Scenario,
    WorkloadChoice,
    bars_of,
    deployment_settings,
    split_by_name,
    takes_arrivals,
    traffic_by_name,
    warn_overwritten,
)
from tokenyard.questions.variants import sides_of
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.choices import ObserverChoice, PolicyChoice, RouterChoice
from tokenyard.sim.replay import ReplayResult, replay_engines
from tokenyard.trace.start import DeploymentHeader as Header
from tokenyard.workload.record import Workload

if TYPE_CHECKING:
    from tokenyard.questions.keywords import TrafficKeywords


class BusyShares(msgspec.Struct, frozen=True, kw_only=True):
    """How busy engines and links were, each on average, as shares of the run."""

    prefill: float
    decode: float
    link: float
    kv_bytes: int
    """Sent from one GPU of each prefill engine, added up."""


class SplitReport(Printable, msgspec.Struct, frozen=True, kw_only=True):
    """Prefill and decode apart. ``decode`` holds the latencies that clients see: both sides know the true arrivals."""

    printer = "tokenyard.questions.printing.split:print_split"

    header: Header
    """The header of the decode engines; those that prefill are alike, but for how many they are."""
    prefill_engines: int
    decode_engines: int
    prefill: Report
    decode: Report
    use: BusyShares

    def summary(self) -> str:
        sides = f"{self.prefill_engines} + {self.decode_engines} engines"
        return f"{sides}; {self.decode.summary()}"

    def as_table(self) -> RowTable:
        """The latencies that clients see: see :meth:`Report.as_table`."""
        return self.decode.as_table()


@dataclass(frozen=True, kw_only=True)
class SplitRun:
    """A split's report, and what it came with."""

    report: SplitReport
    result: ReplayResult
    workload: Workload
    traces: Path | None
    """The directory of both sides' traces; None if none were wanted."""
    problem: str | None
    """Why they are not whole."""


@takes_arrivals
def split(
    workload: WorkloadChoice,
    deployment: Deployment,
    shape: str | None = None,
    *,
    kv_link_gb_per_s: float = 50.0,
    policy: PolicyChoice | None = None,
    router: RouterChoice | None = None,
    observer: ObserverChoice | Sequence[ObserverChoice] | None = None,
    trace: str | PathLike[str] | None = None,
    slo: SLOs = None,
    progress: OnProgress | bool | None = None,
    **arrivals: Unpack[TrafficKeywords],
) -> SplitReport:
    """Replay a workload with engines that prefill and engines that decode, all of them as ``deployment`` says.

    ``shape``: how many of each, ``"2+1"``; None: as many as it has on each side. ``kv_link_gb_per_s``: of the network
    between two of their GPUs. ``policy`` of each engine and ``router`` of each side: as for :func:`tokenyard.run`.
    ``observer`` watches all engines. ``trace``: a directory for the traces. The rest is as for :func:`tokenyard.run`.
    Raises TokenyardError.
    """
    objects = {name: each for name, each in (("scheduling_policy", policy), ("router", router)) if each is not None}
    scenario = Scenario.of(
        changed(deployment_settings(deployment), objects),
        workload,
        arrivals=traffic_by_name(arrivals),
        split_settings=split_by_name(split=shape, kv_link_gb_per_s=kv_link_gb_per_s),
        trace=TraceSettings(trace=None if trace is None else given_path("trace", trace)),
        slo=slo_texts(slo),
    )
    watching = Watching(observer=observer)
    return ask(scenario, bars=bars_of(progress), on_overwritten=warn_overwritten, watching=watching).report


def ask(
    scenario: Scenario,
    *,
    bars: Bars,
    on_read: Callable[[Workload], None] | None = None,
    on_overwritten: Callable[[Path], None] | None = None,
    watching: Watching | None = None,
) -> SplitRun:
    """The same for a scenario. Raises TokenyardError."""
    sides = sides_of(scenario, scenario.split_settings)
    setup = sides.prefill
    if on_read is not None:
        on_read(setup.workload)
    with ExitStack() as stack:
        prefill, decode = (Recordings(each, stack, None, on_overwritten, watching) for each in sides.recorded)
        on_progress = stack.enter_context(bars(len(setup.workload), ""))
        settings = setup.replays(skip_refused=scenario.arrivals.skip_refused)
        result = replay_engines(
            setup.workload,
            settings,
            decode=sides.decode_side(skip_refused=settings.skip_refused),
            observers=[*prefill.observers(sides.prefill), *decode.observers(sides.decode)],
            policy=setup.policy,
            on_progress=on_progress,
        )
    report = SplitReport(
        header=sides.decode.deployment,
        prefill_engines=sides.prefill.num_engines,
        decode_engines=sides.decode.num_engines,
        prefill=prefill.side_report(result.prefill.ranks, result.seconds),
        decode=decode.side_report(result.decode.ranks, result.seconds),
        use=_use(result),
    )
    problem = prefill.problem or decode.problem
    return SplitRun(report=report, result=result, workload=setup.workload, traces=setup.trace.path, problem=problem)


def _use(result: ReplayResult) -> BusyShares:
    seconds = result.seconds or 1.0
    return BusyShares(
        prefill=result.prefill.busy_seconds / seconds,
        decode=result.decode.busy_seconds / seconds,
        link=result.link_busy_seconds / seconds,
        kv_bytes=result.kv_bytes,
    )
