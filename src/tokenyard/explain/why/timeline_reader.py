"""Steps of any trace with arrivals and ends in them, and the timelines of requests that follow from them.

Our own traces record who arrived and who ended. In those of other emitters it is pieced together
(``explain/why/reconstruction.py``), so that whatever is made of timelines works on both.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from tokenyard.explain.why.reconstruction import Reconstruction
from tokenyard.explain.why.wait_tracker import WaitTracker, WaitWatcher
from tokenyard.trace.format.request_timeline import RequestTimeline
from tokenyard.trace.format.schema import TraceStart
from tokenyard.trace.format.step_facts import CLASSIFIER_BLOCK_SIZE
from tokenyard.trace.read.files import TraceFiles
from tokenyard.trace.read.partial import Partial, is_at_step_limit, partial_of
from tokenyard.trace.read.ranks import find_ranks
from tokenyard.trace.read.reader import TraceReader
from tokenyard.trace.read.step_joiner import Step

__all__ = ["StepReader", "TimelineReader", "timeline_readers"]


class StepReader:
    """One pass over the steps of a trace. Raises TraceError if there is no trace at ``path``."""

    def __init__(self, path: Path | str | TraceFiles, *, requests: bool = True) -> None:
        """``requests=False`` leaves a requests file unread."""
        self.reader = TraceReader(path, requests=requests)
        self.reconstructed = False
        """The trace does not record arrivals and ends."""
        self.jobs: set[str] = set()
        """Jobs that a trace names which does not record arrivals."""

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
        if self.reconstructed:
            reconstruction = Reconstruction()
            self.jobs = reconstruction.jobs
            yield from reconstruction.of(chain([first], steps))
        else:
            yield first
            yield from steps


class TimelineReader(StepReader):
    """One pass over a trace: its steps, and the timelines of requests as they end."""

    def __init__(self, path: Path | str | TraceFiles, *, watcher: WaitWatcher | None = None) -> None:
        # The requests file serves the classifier alone, which is asked only where no reason is recorded.
        super().__init__(path, requests=not _starts_with_ours(path))
        self._watcher = watcher
        self._requests = self._finished = 0
        self._first_step: int | None = None
        self._last_step: int | None = None
        self._ended: list[RequestTimeline] = []

    def with_timelines(self) -> Iterator[tuple[Step, list[RequestTimeline]]]:
        """Each step with the requests that ended by then; the last one also with those that the trace does not end."""
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
            self._first_step = step.number if self._first_step is None else self._first_step
            self._last_step = step.number
        if waits is not None and last is not None:
            waits.end()
            yield last, self._take()

    def timelines(self) -> Iterator[RequestTimeline]:
        """The timeline of every request, as it ends."""
        for _, ended in self.with_timelines():
            yield from ended

    def _take(self) -> list[RequestTimeline]:
        ended, self._ended[:] = self._ended.copy(), []
        self._requests += len(ended)
        self._finished += sum(timeline.finished_us is not None for timeline in ended)
        return ended

    @property
    def partial(self) -> Partial | None:
        """How the trace shows that the run went on after it, once it has been read to its end."""
        return partial_of(
            cut_off=self.reader.notes.cut_off,
            at_step_limit=is_at_step_limit(self.start, self._first_step, self._last_step),
            requests=0 if self.reconstructed else self._requests,
            finished=self._finished,
        )


def timeline_readers(
    path: Path | str, *, watcher: WaitWatcher | None = None
) -> Iterator[tuple[int | None, TimelineReader]]:
    """A reader for each engine that has scheduled anything, with its rank; None where there is only one trace.

    Raises TraceError if there is no trace at ``path``, or traces of different runs.
    """
    for trace in find_ranks(path):
        if not trace.is_idle:
            yield trace.rank, TimelineReader(trace.files, watcher=watcher)


def _starts_with_ours(path: Path | str | TraceFiles) -> bool:
    """The trace begins with ``trace_start``: it records reasons, arrivals and ends."""
    reader = TraceReader(path, requests=False)
    return reader.files.steps is not None and next(reader.steps(), None) is not None and reader.start is not None
