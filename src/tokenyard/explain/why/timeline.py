"""Steps of any trace with arrivals and ends in them, recorded or pieced together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

from tokenyard.explain.why.waits import CauseWatcher, WaitTracker, WaitWatcher
from tokenyard.trace.export.perfetto import PerfettoWriter
from tokenyard.trace.export.spans import SpanSender, send_spans
from tokenyard.trace.export.timeline import ChromeWriter, emit_timeline
from tokenyard.trace.facts import CLASSIFIER_BLOCK_SIZE, RequestTimeline, micros
from tokenyard.trace.reader import Partial, RankTrace, TraceFiles, TraceReader, find_ranks, is_at_step_limit, partial_of
from tokenyard.trace.schema import RequestArrived, RequestFinished, TraceStart
from tokenyard.trace.steps import Step

# ---------------------------------------------------------------------------------------------------------------------
# Traces as spans of OpenTelemetry: a request, and what it waited for.

_EARLIEST_UNIX = 946_684_800.0
"""The year 2000: a clock that shows less is a virtual one."""


def send_traces(traces: Sequence[RankTrace], url: str, name: str) -> int:
    """Send the requests of the engines of one run; how many spans. Raises TokenyardError for a wrong address."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what it would say comes as our one message
    SpanSender(url, name).close()  # a wrong address raises before the trace is read
    busy = [trace for trace in traces if not trace.is_idle]
    offset = offset_us(busy)
    sent = 0
    for trace in busy:
        timelines = TimelineReader(trace.files).timelines()
        sent += send_spans(timelines, url, name, offset_us=offset, rank=trace.rank)
    return sent


def offset_us(traces: Sequence[RankTrace]) -> int:
    """Microseconds from the traces' clock to Unix time.

    An emulation says when its clock was 0. A replay's begins at 0: its spans end when the trace was written then.
    """
    last = written = 0.0
    for trace in traces:
        reader = TraceReader(trace.files, requests=False)
        for step in reader.steps():
            if reader.start is not None and reader.start.clock_zero is not None:
                return int(reader.start.clock_zero * 1e6)
            if step.ts is not None:
                if step.ts >= _EARLIEST_UNIX:
                    return 0
                last = max(last, step.ts)
        written = max(written, trace.files.source.stat().st_mtime)
    return int((written - last) * 1e6)


# ---------------------------------------------------------------------------------------------------------------------
# The timelines of a trace, drawn for Perfetto or Chrome.

_Writer = TypeVar("_Writer", PerfettoWriter, ChromeWriter)


def draw(traces: Sequence[RankTrace], writer_of: Callable[[str], _Writer]) -> _Writer:
    """Draw the traces of one run's engines for Perfetto or Chrome; ``writer_of`` makes the writer of the first's name.

    An engine without steps is its name alone. Raises TraceError if a trace cannot be read.
    """
    writer: _Writer | None = None
    for trace in traces:
        name = trace.files.name if trace.rank is None else f"{trace.files.name} rank {trace.rank}"
        if writer is None:
            writer = writer_of(name)
        else:
            writer.next_engine(name)
        if not trace.is_idle:
            emit_timeline(TimelineReader(trace.files).with_timelines(), writer)
    assert writer is not None, "there is one trace at least"
    return writer


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# Arrivals and ends in a trace that does not record them: pieced together from who is in which queue at which step.
#
# What comes out are the same records that our own traces carry, exact to a step: a request arrives when it is first
# seen, has its first token when the step that finishes its prompt is over, and ends when it is in no queue any more
# (an abort looks the same). Sampled traces, and traces without id lists, do not show this.

_UNKNOWN_END = "unknown"


class _QueuedRequest:
    """A request that is in a queue: the record of its end, as far as it is known, and the tokens until it samples."""

    __slots__ = ("computed", "end", "to_compute")

    def __init__(self, end: RequestFinished) -> None:
        self.end = end
        self.to_compute: int | None = None
        """Prompt tokens less prefix hits: once so many are computed, every step samples. None if not known."""
        self.computed = 0

    def compute(self, tokens: int) -> bool:
        """Count ``tokens`` that were scheduled; True if the step samples a token."""
        self.computed += tokens
        return self.to_compute is not None and self.computed >= self.to_compute

    def sample(self, ts: float | None) -> None:
        """Count a token: the step that sampled it is over at ``ts``."""
        if self.end.first_token_time is None:
            self.end.first_token_time = ts
        if self.end.num_output_tokens is not None:
            self.end.num_output_tokens += 1

    def preempt(self) -> None:
        """It starts again, from hits that the format does not record: from here on its tokens cannot be counted."""
        self.to_compute = None
        self.end.num_output_tokens = None


class Reconstruction:
    """Puts arrivals and ends into steps."""

    def __init__(self) -> None:
        self.jobs: set[str] = set()
        """Jobs that were named so far."""
        self._seen: dict[str, _QueuedRequest] = {}
        self._sampling: list[_QueuedRequest] = []
        """Sampled in the last step; their tokens are there when the next one begins."""
        self._last_step: int | None = None
        self._gaps = False
        """Steps are missing between recorded ones: times would be wrong, so ends carry none."""

    def of(self, steps: Iterator[Step]) -> Iterator[Step]:
        """The steps with who arrived before each and who ended after it: an end is noticed when the next one begins."""
        before: Step | None = None
        for step in steps:
            ended = self._look_at_queues(step)
            if before is not None:
                before.finished += ended
                yield before
            self._look_at_decision(step)
            before = step
        if before is not None:
            yield before

    def unfinished(self) -> list[RequestFinished]:
        """Return what is known of those who are in a queue in the end; no moments where steps are missing."""
        ends = [seen.end for seen in self._seen.values()]
        return [RequestFinished(req_id=end.req_id, job_id=end.job_id) for end in ends] if self._gaps else ends

    def _look_at_queues(self, step: Step) -> list[RequestFinished]:
        """Note who has arrived; returns who has ended."""
        present = self._present(step)
        if present is None:
            return []
        if self._last_step is not None and step.number != self._last_step + 1:
            self._gaps = True
        self._last_step = step.number
        for seen in self._sampling:
            seen.sample(step.ts)
        self._sampling.clear()
        ended = [self._end(request_id, step) for request_id in [known for known in self._seen if known not in present]]
        for request_id, job_id in present.items():
            if request_id not in self._seen:
                self._begin(request_id, job_id, step)
        return ended

    def _look_at_decision(self, step: Step) -> None:
        for lookup in step.lookups:
            seen = self._seen.get(lookup.req_id or "")
            if seen is not None and lookup.total_prompt_tokens is not None:
                hits = (lookup.local_hit_tokens or 0) + (lookup.external_hit_tokens or 0)
                seen.to_compute = lookup.total_prompt_tokens - hits
        if step.decision is None:
            return
        for request_id in step.decision.preempted_req_ids or ():
            if request_id in self._seen:
                self._seen[request_id].preempt()
        for request_id, tokens in (step.decision.num_scheduled_tokens or {}).items():
            seen = self._seen.get(request_id)
            if seen is not None:
                if seen.end.first_scheduled_time is None:
                    seen.end.first_scheduled_time = step.ts
                if seen.compute(tokens):
                    self._sampling.append(seen)

    def _present(self, step: Step) -> dict[str, str | None] | None:
        """Request id -> job id of everyone in a queue; None if the step does not say."""
        snapshot = step.snapshot
        if snapshot is None or snapshot.running_req_ids is None or snapshot.waiting_req_ids is None:
            if not step.requests:
                return None
            found = {record.req_id: record.job_id for record in step.requests if record.req_id is not None}
            self.jobs.update(job for job in found.values() if job)
            return found
        present: dict[str, str | None] = {}
        for ids, jobs in (
            (snapshot.running_req_ids, snapshot.running_job_ids or []),
            (snapshot.waiting_req_ids, snapshot.waiting_job_ids or []),
        ):
            self.jobs.update(job for job in jobs if job)
            present.update(zip(ids, jobs, strict=True) if len(ids) == len(jobs) else dict.fromkeys(ids))
        return present

    def _begin(self, request_id: str, job_id: str | None, step: Step) -> None:
        self._seen[request_id] = _QueuedRequest(
            RequestFinished(
                req_id=request_id,
                job_id=job_id,
                finish_reason=_UNKNOWN_END,
                arrival_time=step.ts,
                num_output_tokens=0,
            )
        )
        step.arrived.append(
            RequestArrived(step=step.number, ts=step.ts, req_id=request_id, job_id=job_id, arrival_time=step.ts)
        )

    def _end(self, request_id: str, step: Step) -> RequestFinished:
        end = self._seen.pop(request_id).end
        if self._gaps:
            end = RequestFinished(req_id=request_id, job_id=end.job_id, finish_reason=_UNKNOWN_END)
        else:
            end.finished_time = step.ts
        end.step, end.ts = step.number, step.ts
        return end


# ---------------------------------------------------------------------------------------------------------------------
# Steps of any trace with arrivals and ends in them, and the timelines of requests that follow from them.
#
# Our own traces record who arrived and who ended. In those of other emitters it is pieced together
# (``Reconstruction``), so that whatever is made of timelines works on both.


class StepReader:
    """One pass over the steps of a trace. Raises TraceError if there is no trace at ``path``."""

    def __init__(self, path: Path | str | TraceFiles, *, requests: bool = True) -> None:
        """``requests=False`` leaves a requests file unread."""
        self.reader = TraceReader(path, requests=requests)
        self.reconstructed = False
        """The trace does not record arrivals and ends."""
        self.jobs: set[str] = set()
        """Jobs that a trace names which does not record arrivals."""
        self._reconstruction: Reconstruction | None = None

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
            self._reconstruction = Reconstruction()
            self.jobs = self._reconstruction.jobs
            yield from self._reconstruction.of(chain([first], steps))
        else:
            yield first
            yield from steps

    @property
    def warmup(self) -> float:
        """The moment before which requests and steps do not count in figures, once the first step has been read."""
        return (self.start.warmup if self.start is not None else None) or 0.0

    def unfinished(self) -> list[RequestFinished]:
        """Return what a trace without arrivals shows of the requests that it leaves in a queue, once all is read."""
        return [] if self._reconstruction is None else self._reconstruction.unfinished()


class TimelineReader(StepReader):
    """One pass over a trace: its steps, and the timelines of requests as they end."""

    def __init__(
        self, path: Path | str | TraceFiles, *, watcher: WaitWatcher | None = None, causes: CauseWatcher | None = None
    ) -> None:
        # The requests file serves the classifier alone, which is asked only where no reason is recorded.
        super().__init__(path, requests=not _starts_with_ours(path))
        self._watcher = watcher
        self._causes = causes
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
                waits = WaitTracker(
                    self._ended.append,
                    block_size=size or CLASSIFIER_BLOCK_SIZE,
                    watcher=self._watcher,
                    causes=self._causes,
                )
            if last is not None:
                yield last, self._take()
            waits.step(step)
            last = step
            self._first_step = step.number if self._first_step is None else self._first_step
            self._last_step = step.number
        if waits is not None and last is not None:
            waits.end(micros(self.reader.ended_at or 0.0))
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
            requests=0 if self.reconstructed or self.reader.ended_at is not None else self._requests,
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
