"""Who watches each engine of a replay, where its trace goes, and one report of them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import msgspec

from tokenyard.deploy.spec import ReplaySpec, open_trace
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.joined import EnginePart, joined_report
from tokenyard.explain.report.report import Report
from tokenyard.sim.parallel.rank import RankUse
from tokenyard.trace.emit.recorder import TraceRecorder, TurnOrder
from tokenyard.trace.emit.writer import TraceWriter

__all__ = ["Recordings", "engines_of"]


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
