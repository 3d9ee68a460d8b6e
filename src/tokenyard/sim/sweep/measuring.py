"""The worker of ``plan`` and ``sweep``: one variant in, one row out, in this process or in another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from tokenyard.errors import TokenyardError
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.slo import SLO
from tokenyard.policies.named import PolicyMaker
from tokenyard.sched.observer import Observers
from tokenyard.sim.parallel.replay import ParallelResult
from tokenyard.sim.replay import Progress
from tokenyard.sim.settings import ReplaySettings, replay_engines
from tokenyard.sim.sweep.deciding import Decided, Rival, SLOWatch
from tokenyard.sim.sweep.row import Row, Settings, figures_of
from tokenyard.sim.workload.record import Workload
from tokenyard.trace.emit.recorder import TraceRecorder

__all__ = ["Measuring", "Prepared", "Subject"]


class Prepared(NamedTuple):
    """A variant that can be replayed."""

    workload: Workload
    replays: ReplaySettings
    policy: PolicyMaker
    gpu: str | None
    gpus: int | None
    """How many GPUs all engines have; None if nobody knows, or that changes."""
    gpus_per_replica: int | None = None
    """GPUs of one of several replicas that come and go."""


class Subject(Protocol):
    """What variants are made of: a workload and a deployment, or a recorded run. It can be pickled."""

    def prepared(self, settings: Settings) -> Prepared:
        """The variant. Raises TokenyardError where vLLM would not start with it, or it cannot be asked about."""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """Measures variants of one subject. It can be pickled, and called in any process."""

    subject: Subject
    slos: tuple[SLO, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    """GPU -> price of an hour."""

    def __call__(
        self,
        settings: Settings,
        *,
        load: float = 1.0,
        stops: bool = False,
        rivals: Sequence[Rival] = (),
        one_at_a_time: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Row:
        """Replay one variant, its requests arriving ``load`` times as fast, or ``one_at_a_time``.

        With ``stops`` the replay ends as soon as it is certain that a bound is missed, or that it cannot beat one of
        ``rivals`` at the same cost or less.
        """
        try:
            variant = self.subject.prepared(settings)
            workload = variant.workload.with_rate(load)
            if one_at_a_time:
                workload = workload.with_max_concurrency(1)
        except TokenyardError as error:
            return Row(settings=dict(settings), load=load, problem=str(error))
        watch = SLOWatch(self.slos, workload) if stops else None
        price = None if variant.gpu is None else self.prices.get(variant.gpu)
        cost = None if price is None or variant.gpus is None else price * variant.gpus
        try:
            if any(rival.makes_pointless(cost, variant.gpus) for rival in rivals):
                raise Decided("costs more than one that is within every bound: not replayed", was_replayed=False)
            beaten = [rival for rival in rivals if rival.costs_no_more_than(cost, variant.gpus)]
            report, refused = _replayed(
                variant._replace(workload=workload), self.slos, watch, _listener(watch, beaten, on_progress)
            )
        except TokenyardError as error:
            return Row(settings=dict(settings), load=load, problem=str(error))
        except Decided as decided:
            return Row(
                settings=dict(settings),
                load=load,
                stopped=decided.why,
                met=decided.met,
                requests=len(workload) if decided.was_replayed else 0,
                gpu=variant.gpu,
                gpus=variant.gpus,
                cost_per_hour=cost,
                tightness=decided.tightness,
                tightest=decided.bound,
            )
        gpus = variant.gpus
        if gpus is None and report.replicas is not None and variant.gpus_per_replica is not None:
            gpus = report.replicas.max_held * variant.gpus_per_replica
            cost = None if price is None else price * report.replicas.mean_held * variant.gpus_per_replica
        return _row(settings, load, variant._replace(gpus=gpus), report, refused, cost, len(workload))


def _listener(
    watch: SLOWatch | None, rivals: Sequence[Rival], on_progress: Callable[[Progress], None] | None
) -> Callable[[Progress], None] | None:
    if watch is None:
        return on_progress

    def listen(progress: Progress) -> None:
        if on_progress is not None:
            on_progress(progress)
        watch.decide(progress.now, rivals)

    return listen


def _replayed(
    variant: Prepared,
    slos: Sequence[SLO],
    watch: SLOWatch | None,
    on_progress: Callable[[Progress], None] | None,
) -> tuple[Report, int]:
    """The report, and how many requests were not served."""
    builders = [ReportBuilder(slos) for _ in range(variant.replays.fleet.num_engines)]
    recorders = [TraceRecorder(None, builder) for builder in builders]
    result = replay_engines(
        variant.workload,
        variant.replays,
        observers=[each if watch is None else Observers(each, watch) for each in recorders],
        policies=[variant.policy() for _ in builders],
        on_progress=on_progress,
    )
    whole = builders[0] if len(builders) == 1 else ReportBuilder.joined(builders)
    replicas = result.replicas if isinstance(result, ParallelResult) else None
    report = msgspec.structs.replace(whole.report(), clients=result.clients, replicas=replicas)
    return report, len(result.refused) + result.num_left_out


def _row(
    settings: Settings,
    load: float,
    variant: Prepared,
    report: Report,
    refused: int,
    cost: float | None,
    requests: int,
) -> Row:
    held = max(report.recorded_reasons.items(), key=lambda each: each[1].seconds, default=None)
    tokens, seconds = report.output_tokens, report.duration_s
    goodput = report.goodput
    tight = max(
        ((each.value_ms / each.bound_ms, each.name) for each in goodput.objectives if each.value_ms is not None)
        if goodput is not None
        else (),
        default=(None, None),
    )
    return Row(
        settings=dict(settings),
        load=load,
        requests=requests,
        refused=refused,
        met=None if goodput is None else goodput.met,
        tightness=tight[0],
        tightest=tight[1],
        figures=figures_of(report),
        held_by=held[0] if held is not None and held[1].seconds > 0 else None,
        held_s=held[1].seconds if held is not None else 0.0,
        gpu=variant.gpu,
        gpus=variant.gpus,
        cost_per_hour=cost,
        cost_per_million_tokens=cost * seconds / 3600 / tokens * 1e6
        if cost is not None and tokens and seconds
        else None,
    )
