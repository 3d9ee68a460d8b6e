"""The engines of one replay: who watches each, where its trace goes, and one report of them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

import msgspec

from tokenyard.core.sched.observer import StepObserver
from tokenyard.deploy.spec import ReplaySpec, open_trace
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.classes import Classes, bounded_classes
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.summary import AfterWarmup, EnginePart, advised, joined_report
from tokenyard.questions.by_class import ClassBounds, grouped_by_class
from tokenyard.questions.measured import ReplayedTimes, measured_beside
from tokenyard.questions.scenario import (
    OnProgress,
)
from tokenyard.record.recorder import TraceRecorder, TurnOrder
from tokenyard.record.writer import TraceWriter
from tokenyard.sim.choices import (
    ObserverChoice,
    observer_of,
    together,
)
from tokenyard.sim.engines import RankUse
from tokenyard.sim.replay import ReplayResult, replay_engines
from tokenyard.sim.rows.rows import ReplayRows, RowsOfEngine
from tokenyard.sim.traffic import EndedBy

# ---------------------------------------------------------------------------------------------------------------------
# Who watches each engine of a replay, where its trace goes, and one report of them all.


class Watching(msgspec.Struct, frozen=True):
    """What is looked at beside the report."""

    rows: bool = False
    """Keep tables of requests, steps and waits."""
    warmup: float = 0.0
    """Requests that arrive in so many seconds do not count in report and rows, nor do steps of that time."""
    until: float | None = None
    """The replay ends at so many seconds."""
    observer: ObserverChoice | Sequence[ObserverChoice] | None = None
    """The user's own."""
    classes: ClassBounds | None = None
    """Bounds of classes, which the advice is about, too; needs ``rows``."""
    times: ReplayedTimes | None = None
    """Notes the times of single requests, to be held against what the input has measured."""


class Recordings:
    """Recordings of the engines of one replay, or of one side of it."""

    def __init__(
        self,
        setup: ReplaySpec,
        stack: ExitStack | None = None,
        turns: Mapping[str, TurnOrder] | None = None,
        on_overwritten: Callable[[Path], None] | None = None,
        watching: Watching | None = None,
    ) -> None:
        """With ``stack`` they write the traces that ``setup`` names, which it closes.

        ``on_overwritten`` is called with the directory of a trace that was there.
        """
        self.setup = setup
        engines = engines_of(setup)
        self.watching = watching or Watching()
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
            warmup = self.watching.warmup
            sink = AfterWarmup(builder, warmup) if warmup else builder
            start = msgspec.structs.replace(one.start, warmup=warmup or None)
            self.recorders.append(TraceRecorder(writer, sink, start=start, turns=turns))
        made = zip(self._builders, self.recorders, strict=True)
        self._rows = [RowsOfEngine.with_report(*each) for each in made] if self.watching.rows else []

    def observers(self, setup: ReplaySpec) -> list[StepObserver | None]:
        """The observers of each engine: recorders, and those that the user has given."""
        watching = self.watching
        recorded: list[StepObserver] = [each.observer for each in self._rows]
        return [
            together(
                (
                    each,
                    watching.times,
                    observer_of(
                        watching.observer,
                        setup.scheduler,
                        setup.cache,
                        engines=len(self.recorders),
                        warmup=watching.warmup,
                    ),
                )
            )
            for each in recorded or self.recorders
        ]

    def rows(self, ended_at: float | None) -> ReplayRows | None:
        """Return tables of the replay, once it is over; None if none are wanted. ``ended_at``: when it was ended."""
        if ended_at is not None:
            for builder, recorder in zip(self._builders, self.recorders, strict=True):
                builder.run_ended(ended_at)
                recorder.run_ended(ended_at)
        return ReplayRows(self._rows, warmup=self.watching.warmup, ended_at=ended_at) if self._rows else None

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

    def side_report(
        self, uses: Sequence[RankUse] = (), seconds: float | None = None, classes: Classes | None = None
    ) -> Report:
        """The report; of several engines together, with the share of each by its use, in a run of so many
        seconds. ``classes``: those whose bounds the advice is about, too.
        """
        report = self._joined(uses, seconds)
        if classes is None or self.watching.classes is None:
            return report
        bounded = bounded_classes(classes, grouped_by_class(self.watching.classes.slos))
        return advised(report, self._builders, bounded)

    def _joined(self, uses: Sequence[RankUse], seconds: float | None) -> Report:
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
    others = [each for beside in setup.beside for each in [beside] * beside.num_engines]
    kinds = [setup] * (size - len(others)) + others
    return kinds if size == 1 else [_rank_of(each, setup, rank) for rank, each in enumerate(kinds)]


def _rank_of(setup: ReplaySpec, whole: ReplaySpec, rank: int) -> ReplaySpec:
    """The settings of one engine of the ``whole``: a trace directory and a first record of its own."""
    path = whole.trace.path
    return replace(
        setup,
        trace=replace(whole.trace, path=None if path is None else path / f"rank-{rank}"),
        start=msgspec.structs.replace(setup.start, config={**(setup.start.config or {}), "data_parallel_rank": rank}),
    )


# ---------------------------------------------------------------------------------------------------------------------
# One engine or several: a replay of a setup, who watches it, and its report.


class Engines(Recordings):
    """The engines of one replay, and what records them."""

    _result: ReplayResult | None = None

    def replay(self, *, skip_refused: bool, on_progress: OnProgress | None) -> ReplayResult:
        """Run the workload to its end, or as far as is wanted."""
        setup, watching = self.setup, self.watching
        result = replay_engines(
            setup.workload,
            setup.replays(skip_refused=skip_refused),
            observers=self.observers(setup),
            policy=setup.policy,
            on_progress=on_progress,
            warmup=watching.warmup,
            until=watching.until,
        )
        ended_at = None if result.ended_by is EndedBy.WORKLOAD else result.seconds
        self._result = replace(result, rows=self.rows(ended_at))
        return self._result

    @cached_property
    def classes(self) -> Classes | None:
        """The classes whose bounds are judged, once the replay is over; None if none are."""
        result, bounds = self._result, self.watching.classes
        if result is None or result.rows is None or bounds is None:
            return None
        return bounds.classes_of(result.rows, result.rows.report.duration_s)

    def judged(self) -> Report:
        """The report, whose goodput is that of the classes if their bounds are judged."""
        report, classes = self.report(), self.classes
        goodput = None if classes is None else classes.goodput()
        return report if goodput is None else msgspec.structs.replace(report, goodput=goodput)

    def report(self) -> Report:
        """The report; of several engines together, with the share of each."""
        result, watching = self._result, self.watching
        if result is None:
            return self.side_report()
        # Shares are of the time from the first step on, as in a trace: behind a front end that is not the start.
        seconds = None if watching.warmup or self.setup.workload.requests[0].delay else result.seconds
        report = self.side_report(result.ranks, seconds, self.classes)
        if watching.times is not None:
            measured = measured_beside(self.setup, watching.times, warmup=watching.warmup)
            report = msgspec.structs.replace(report, measured=measured)
        if result.clients is not None:
            report = report.with_clients(result.clients)
        if result.replicas is not None:
            replicas = msgspec.structs.replace(result.replicas, gpus=self.setup.gpus_per_replica)
            report = msgspec.structs.replace(report, replicas=replicas)
        return report
