"""Who watches each engine of a replay, where its trace goes, and one report of them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import zip_longest

import msgspec

from tokenyard.cli.support.setup import Setup, open_trace
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.ranks import RankShare
from tokenyard.explain.report.report import Report
from tokenyard.sim.parallel.rank import RankUse
from tokenyard.trace.emit.recorder import TraceRecorder, TurnOrder
from tokenyard.trace.emit.writer import TraceWriter

__all__ = ["Recordings"]


class Recordings:
    """Of the engines of one replay, or of one side of it."""

    def __init__(
        self, setup: Setup, stack: ExitStack | None = None, turns: Mapping[str, TurnOrder] | None = None
    ) -> None:
        """With ``stack`` they write the traces that ``setup`` asks for, which it closes."""
        size = setup.settled.parallel.data_parallel_size
        self._builders = [ReportBuilder() for _ in range(size)]
        self._writers: list[TraceWriter] = []
        """One for each engine, if traces are wanted."""
        self.recorders: list[TraceRecorder] = []
        for rank, builder in enumerate(self._builders):
            one = setup if size == 1 else _rank_of(setup, rank)
            writer = stack.enter_context(TraceWriter(one.trace)) if stack is not None else None
            if writer is not None and open_trace(writer):
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

    def report(self, uses: Sequence[RankUse] = (), seconds: float = 0.0) -> Report:
        """The report; of several engines together, with the share of each by its use, in a run of so many seconds."""
        sources = [str(each.config.steps_path) if each.is_whole else None for each in self._writers]
        named = zip_longest(self._builders, sources)
        ranks = [builder.report(source=source) for builder, source in named]
        if len(ranks) == 1:
            return ranks[0]
        whole = ReportBuilder.joined(self._builders).report()
        shares = [_share(rank, each, uses, seconds) for rank, each in enumerate(ranks)]
        return msgspec.structs.replace(whole, ranks=shares)


def _rank_of(setup: Setup, rank: int) -> Setup:
    """The settings of one engine: a trace directory and a first record of its own."""
    path = setup.trace.path
    return replace(
        setup,
        trace=replace(setup.trace, path=None if path is None else path / f"rank-{rank}"),
        start=msgspec.structs.replace(setup.start, config={**(setup.start.config or {}), "data_parallel_rank": rank}),
    )


def _share(rank: int, report: Report, uses: Sequence[RankUse], seconds: float) -> RankShare:
    use = uses[rank]
    requests = sum(each.num_requests for each in uses)
    tokens = sum(each.output_tokens for each in uses)
    return RankShare(
        rank=rank,
        requests=use.num_requests,
        requests_share=use.num_requests / requests if requests else 0.0,
        requests_finished=use.num_finished,
        output_tokens=use.output_tokens,
        output_tokens_share=use.output_tokens / tokens if tokens else 0.0,
        steps=use.steps,
        dummy_batches=use.dummy_batches,
        busy_share=use.busy_seconds / (seconds or 1.0),
        preemptions=report.preemptions,
        prefix_hit_rate=report.prefix_hit_rate.local,
        peak_kv_use=report.peak_kv_use,
        waiting_mean=report.waiting.mean,
        ttft_ms=report.ttft_ms,
        tpot_ms=report.tpot_ms,
        source=report.header.source,
    )
