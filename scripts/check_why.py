"""Check on whole workloads that every waiting time is divided without rest: `tokenyard why` against a stop-watch.

    scripts/check_why.py WORKLOAD [flags of `tokenyard run`] [-- WORKLOAD ...]

Each workload is replayed into a trace in a temporary directory. While it runs, an observer of the live scheduler
measures how long every request waited. Then the waits are read from the trace, and for each request the parts of its
waits, added up, must equal what was measured, to the microsecond of the virtual clock; and the time lost to each
reason, added up over all requests, must equal that of `tokenyard report`.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.core.request import Request
from tokenyard.core.sched.observer import Observers, SchedulerState, StepObserver
from tokenyard.core.sched.outcomes import StepOutcomes
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.deploy.spec import open_trace
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.why.timeline import TimelineReader
from tokenyard.questions.scenario import replay_spec
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.sim.replay import replay
from tokenyard.trace.facts import micros
from tokenyard.vocabulary import Place, WaitState

__all__ = ["StopWatch", "check", "main"]


class StopWatch(StepObserver):
    """An observer that measures, per request, how long it was in a waiting queue."""

    def __init__(self) -> None:
        self.waited: dict[str, int] = {}
        """Request that has finished -> microseconds."""
        self._so_far: Counter[str] = Counter()
        self._since: dict[str, int] = {}

    def request_arrived(self, ts: float, request: Request) -> None:
        self._since[request.request_id] = micros(request.arrival_time)

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        """Nothing to measure."""

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
        """Nothing to measure."""

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        now = micros(ts)
        for request_id in output.req_ids[output.num_running :]:
            since = self._since.pop(request_id)
            self._so_far[request_id] += now - since
        for victim in outcomes.preemptions:
            self._since[victim.request_id] = now

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        """Nothing to measure."""

    def request_finished(self, ts: float, request: Request) -> None:
        since = self._since.pop(request.request_id, None)
        left = 0 if since is None else micros(ts) - since
        self.waited[request.request_id] = self._so_far.pop(request.request_id, 0) + left


def check(arguments: list[str]) -> list[str]:
    """Replay a workload and compare; returns what is wrong, prints one line."""
    flags = parse(["run", *arguments])
    assert isinstance(flags, RunCommand)
    with tempfile.TemporaryDirectory() as folder:
        setup = replay_spec(scenario_of(replace(flags, output=replace(flags.output, trace=Path(folder)))))
        watch = StopWatch()
        with TraceWriter(setup.trace) as writer:
            open_trace(writer)
            observer = Observers(watch, TraceRecorder(writer, start=setup.start))
            skip = flags.arrivals.skip_refused
            replay(setup.workload, setup.scheduler, setup.cache, setup.latency, observer=observer, skip_refused=skip)
        return _compare(arguments, Path(folder), watch)


def _compare(arguments: list[str], folder: Path, watch: StopWatch) -> list[str]:
    wrong: list[str] = []
    lost: Counter[str] = Counter()
    causes: set[tuple[str, str]] = set()
    for timeline in TimelineReader(folder).timelines():
        measured = watch.waited.pop(timeline.request_id, None)
        parts = 0
        for wait in timeline.waits:
            for part in wait.parts:
                parts += 0 if wait.state is WaitState.STALLED else part.us
                lost[part.reason] += 0 if part.place is Place.OUTSIDE else part.us
                causes.add((part.reason, part.place.value))
        if parts != measured:
            wrong.append(f"{timeline.request_id}: its parts are {parts} us, measured were {measured} us")
    wrong += [f"{request_id}: not in the trace" for request_id in watch.waited]
    report = summarize(folder, requests=False)
    for reason, recorded in report.recorded_reasons.items():
        if round(recorded.seconds * 1e6) != lost[reason]:
            wrong.append(f"{reason}: {recorded.seconds} s in the report, {lost[reason]} us over the requests")
    print(
        f"{' '.join(arguments)}: {report.steps:,} steps, {report.requests:,} requests, "
        f"{sum(lost.values()) / 1e6:,.6f} s lost to {len(lost)} reasons, {len(causes)} causes, {len(wrong)} wrong"
    )
    return wrong


def main(arguments: list[str]) -> int:
    """Check all that are named; 1 if anything is wrong."""
    workloads = [list(words) for is_rule, words in groupby(arguments, lambda word: word == "--") if not is_rule]
    if not workloads:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = [each for words in workloads for each in check(words)]
    for line in wrong[:20]:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
