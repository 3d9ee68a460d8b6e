"""Steps of any trace with arrivals and ends in them, and the lives that they tell.

Our own traces record who arrived and who ended. In those of other emitters it is pieced together
(``explain/why/reconstruction.py``), so that whatever is made of lives works on both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenyard.explain.why.reconstruction import Reconstruction
from tokenyard.explain.why.wait_tracker import WaitTracker, WaitWatcher
from tokenyard.trace.format.request_timeline import RequestTimeline
from tokenyard.trace.format.schema import PrefixCacheLookup, RequestArrived, RequestFinished, TraceStart
from tokenyard.trace.format.step_facts import CLASSIFIER_BLOCK_SIZE, Drafts, StepFacts
from tokenyard.trace.read.reader import TraceReader
from tokenyard.trace.read.step_joiner import Step

__all__ = ["TimelineReader"]


class TimelineReader:
    """One pass over a trace: its steps, and lives as they end. Raises TraceError if there is no trace at ``path``."""

    def __init__(self, path: Path | str, *, watcher: WaitWatcher | None = None) -> None:
        # The requests file serves the classifier alone, which is asked only where no reason is recorded.
        self.reader = TraceReader(path, requests=not _starts_with_ours(path))
        self.reconstructed = False
        """The trace does not record arrivals and ends."""
        self._watcher = watcher
        self._ended: list[RequestTimeline] = []

    @property
    def start(self) -> TraceStart | None:
        """What ran, once the first step has been read."""
        return self.reader.start

    def steps(self) -> Iterator[Step]:
        """All steps, each with who arrived before it and who ended after it."""
        steps = self.reader.steps()
        first = next(steps, None)
        if first is None:
            return
        self.reconstructed = self.reader.start is None and not first.arrived and not first.finished
        told = _told(first, steps) if self.reconstructed else _joined(first, steps)
        yield from told

    def with_lives(self) -> Iterator[tuple[Step, list[RequestTimeline]]]:
        """Each step with the lives that ended by then; the last one also with those that the trace does not end."""
        waits: WaitTracker | None = None
        last: Step | None = None
        for step in self.steps():
            if waits is None:
                size = self.start.block_size if self.start is not None else None
                waits = WaitTracker(self._ended.append, block_size=size or CLASSIFIER_BLOCK_SIZE, watcher=self._watcher)
            if last is not None:
                yield last, self._take()
            waits.step(step)
            last = step
        if waits is not None and last is not None:
            waits.end()
            yield last, self._take()

    def lives(self) -> Iterator[RequestTimeline]:
        """Every life, as it ends."""
        for _, ended in self.with_lives():
            yield from ended

    def _take(self) -> list[RequestTimeline]:
        ended, self._ended[:] = self._ended.copy(), []
        return ended


def _starts_with_ours(path: Path | str) -> bool:
    """The trace begins with ``trace_start``: it records reasons, arrivals and ends."""
    reader = TraceReader(path, requests=False)
    return reader.files.steps is not None and next(reader.steps(), None) is not None and reader.start is not None


def _joined(first: Step, rest: Iterator[Step]) -> Iterator[Step]:
    yield first
    yield from rest


def _told(first: Step, rest: Iterator[Step]) -> Iterator[Step]:
    """Put what is pieced together into the steps: an end is noticed when the next step begins."""
    noticed = _Noticed()
    lives = Reconstruction(noticed)
    before: Step | None = None
    for step in _joined(first, rest):
        lives.before(step)
        step.arrived += noticed.take_arrived()
        if before is not None:
            before.finished += noticed.take_finished()
            yield before
        lives.after(step)
        before = step
    if before is not None:
        yield before


class _Noticed:
    """A sink that keeps who came and who went."""

    def __init__(self) -> None:
        self._arrived: list[RequestArrived] = []
        self._finished: list[RequestFinished] = []

    def take_arrived(self) -> list[RequestArrived]:
        taken, self._arrived = self._arrived, []
        return taken

    def take_finished(self) -> list[RequestFinished]:
        taken, self._finished = self._finished, []
        return taken

    def request_arrived(self, record: RequestArrived) -> None:
        self._arrived.append(record)

    def request_finished(self, record: RequestFinished) -> None:
        self._finished.append(record)

    def trace_started(self, start: TraceStart) -> None:
        """Not asked for."""

    def prefix_looked_up(self, record: PrefixCacheLookup) -> None:
        """Not asked for."""

    def step_decided(self, facts: StepFacts) -> None:
        """Not asked for."""

    def step_repeated(self, step: int, ts: float, free_blocks: int) -> None:
        """Not asked for."""

    def step_completed(self, step: int, ts: float | None, seconds: float | None, sampled: int | None) -> None:
        """Not asked for."""

    def drafts_verified(self, drafts: Drafts) -> None:
        """Not asked for."""
