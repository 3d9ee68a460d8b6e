"""One engine or several: a replay of a setup, who watches it, and its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from tokenyard.deploy.spec import ReplaySpec
from tokenyard.explain.report.report import Report
from tokenyard.questions.recordings import Recordings
from tokenyard.sim.parallel.replay import ParallelResult
from tokenyard.sim.replay import ReplayResult
from tokenyard.sim.settings import replay_engines
from tokenyard.sim.traffic import Progress
from tokenyard.trace.emit.recorder import TurnOrder

__all__ = ["Engines"]


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
        self._result: ReplayResult | ParallelResult | None = None

    @property
    def problem(self) -> str | None:
        """Why a trace is not whole; None if all are, or none is wanted."""
        return self._recordings.problem

    @property
    def is_trace_whole(self) -> bool:
        """Whether traces are wanted, and everything so far is in them."""
        return self._recordings.is_trace_whole

    def replay(
        self, *, skip_refused: bool, on_progress: Callable[[Progress], None] | None
    ) -> ReplayResult | ParallelResult:
        """Run the workload to its end."""
        setup, recorders = self._setup, self._recordings.recorders
        result = replay_engines(
            setup.workload,
            setup.replays(skip_refused=skip_refused),
            observers=recorders,
            policies=[setup.policy() for _ in recorders],
            on_progress=on_progress,
        )
        self._result = result
        return result

    def report(self) -> Report:
        """The report; of several engines together, with the share of each."""
        result = self._result
        if isinstance(result, ParallelResult):
            report = self._recordings.report(result.ranks, result.seconds)
        else:
            report = self._recordings.report()
        if result is not None and result.clients is not None:
            report = msgspec.structs.replace(report, clients=result.clients)
        if isinstance(result, ParallelResult) and result.replicas is not None:
            replicas = msgspec.structs.replace(result.replicas, gpus=self._setup.gpus_per_replica)
            report = msgspec.structs.replace(report, replicas=replicas)
        return report
