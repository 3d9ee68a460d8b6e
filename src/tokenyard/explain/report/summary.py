"""A trace read into a report; the reports of several engines as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.report import RankShare, ReadingGaps, Report
from tokenyard.explain.slo import SLO, Bounded
from tokenyard.explain.why.timeline import StepReader
from tokenyard.trace.facts import CLASSIFIER_BLOCK_SIZE, STEADY, Drafts, FactSink, RepeatedFacts, StepFacts, Streams
from tokenyard.trace.reader import Partial, RankTrace, find_ranks
from tokenyard.trace.schema import PinEnded, PrefixCacheLookup, RequestArrived, RequestFinished, TraceStart
from tokenyard.trace.steps import BAD_LINES_KEPT, Step, facts_of, streams_of

# ---------------------------------------------------------------------------------------------------------------------
# Figures of a run without its beginning: what arrives, and what is decided, before a moment is not counted.


class AfterWarmup:
    """A ``FactSink`` that hands on the requests that arrive from ``warmup`` seconds on, and the steps from then on.

    Requests of the beginning that still wait or run afterwards count in the steps, as they did there.
    """

    def __init__(self, sink: FactSink, warmup: float) -> None:
        self._sink = sink
        self._warmup = warmup
        self._left_out: set[str | None] = set()
        """Requests that arrived too early and have not ended."""
        self._ended: set[str | None] = set()
        """Requests of ``_left_out`` that ended, perhaps with a token of the step that is being taken in."""
        self._last: StepFacts | None = None
        """The last step that was left out."""
        self._first_step: int | None = None
        """The first one that was passed on."""
        self._told = False
        """The last step that has completed was passed on."""

    def trace_started(self, start: TraceStart) -> None:
        """Hand on what runs."""
        self._sink.trace_started(start)

    def request_arrived(self, record: RequestArrived) -> None:
        """Hand on, or leave out for good."""
        moment = record.arrival_time if record.arrival_time is not None else record.ts
        if moment is not None and moment < self._warmup:
            self._left_out.add(record.req_id)
        else:
            self._sink.request_arrived(record)

    def prefix_looked_up(self, record: PrefixCacheLookup) -> None:
        """Hand on the hits of a request that counts."""
        if record.req_id not in self._left_out:
            self._sink.prefix_looked_up(record)

    def step_decided(self, facts: StepFacts) -> None:
        """Pass on a step that is late enough."""
        if facts.ts is not None and facts.ts < self._warmup:
            self._last = facts
            return
        if self._first_step is None:
            self._first_step = facts.step
        self._sink.step_decided(facts)

    def step_repeated(self, step: int, ts: float, free_blocks: int) -> None:
        """Pass on a step like the last one; the first that counts is passed on as a step of its own."""
        if self._first_step is not None:
            self._sink.step_repeated(step, ts, free_blocks)
        elif ts >= self._warmup:
            assert self._last is not None, "a step was decided before"
            self.step_decided(msgspec.structs.replace(self._last, step=step, ts=ts, free_blocks=free_blocks))

    def steps_repeated(self, steps: RepeatedFacts) -> None:
        """Hand on those that count."""
        if self._first_step is not None and steps.completed >= self._first_step:
            self._told = True
            self._sink.steps_repeated(msgspec.structs.replace(steps, streams=self._counted(steps.streams)))
            return
        for i, moment in enumerate(steps.moments):
            streams = STEADY if i else steps.streams
            self.step_completed(steps.completed + i, moment, steps.seconds[i], steps.sampled, streams)
            self.step_decided(steps.step(i))

    def step_completed(
        self, step: int, ts: float | None, seconds: float | None, sampled: int | None, streams: Streams | None
    ) -> None:
        """Hand on the end of a step that counts."""
        self._told = self._first_step is not None and step >= self._first_step
        if self._told:
            counted = None if streams is None else self._counted(streams)
            self._sink.step_completed(step, ts, seconds, sampled, counted)
        elif self._first_step is not None:  # it was in flight: until here the engine was not idle
            self._sink.step_completed(step, ts, 0.0, 0, None)
        self._ended.clear()

    def _counted(self, streams: Streams) -> Streams:
        """Return the changes of requests that count."""
        others = self._left_out | self._ended if streams is not STEADY else ()
        return Streams(*([each for each in ids if each not in others] for ids in streams)) if others else streams

    def drafts_verified(self, drafts: Drafts) -> None:
        """Hand on the drafts of a step that counts."""
        if self._told:
            self._sink.drafts_verified(drafts)

    def request_finished(self, record: RequestFinished) -> None:
        """Hand on the end of a request that counts."""
        if record.req_id in self._left_out:
            self._left_out.discard(record.req_id)
            self._ended.add(record.req_id)
        else:
            self._sink.request_finished(record)

    def pin_ended(self, record: PinEnded) -> None:
        """Hand on the end of a pin, if steps count by now."""
        if self._told:
            self._sink.pin_ended(record)


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# One report of several engines, and what each of them had of the run.


class EnginePart(msgspec.Struct, frozen=True):
    """What one engine did."""

    rank: int
    builder: ReportBuilder
    """Holds what happened to it."""
    report: Report
    """The report of this engine alone."""
    dummy_batches: int | None = None
    """Steps in which it only kept step with the others; None: not known."""


def joined_report(parts: Sequence[EnginePart], *, source: str | None = None, seconds: float | None = None) -> Report:
    """Counts added up, distributions over all requests and steps; ``ranks`` has the part of each.

    ``seconds`` is the length of the run; None: from the first step of all to the last moment.
    """
    whole = ReportBuilder.joined([part.builder for part in parts]).report(source=source)
    reports = [part.report for part in parts]
    whole = msgspec.structs.replace(
        whole,
        header=msgspec.structs.replace(
            whole.header,
            request_records=_sum(r.header.request_records for r in reports),
            partial=_joined_partial([r.header.partial for r in reports], whole.requests or 0),
        ),
        times=next((r.times for r in reports if r.times == "reconstructed"), whole.times),
        reading=_joined_gaps(parts, whole),
    )
    length = seconds if seconds is not None else whole.duration_s
    return msgspec.structs.replace(whole, ranks=[_share(part, whole, length or 1.0) for part in parts])


def _share(part: EnginePart, whole: Report, seconds: float) -> RankShare:
    report, busy = part.report, part.builder.busy_seconds
    return RankShare(
        rank=part.rank,
        requests=report.requests,
        requests_share=_part_of(report.requests, whole.requests),
        requests_finished=report.requests_finished,
        output_tokens=report.output_tokens,
        output_tokens_share=_part_of(report.output_tokens, whole.output_tokens),
        steps=report.steps,
        dummy_batches=part.dummy_batches,
        busy_share=None if busy is None else busy / seconds,
        preemptions=report.preemptions,
        prefix_hit_rate=report.prefix_hit_rate.local,
        peak_kv_use=report.peak_kv_use,
        waiting_mean=report.waiting.mean,
        waited_s=sum(report.progress.waited_for.values()),
        ttft_ms=report.ttft_ms,
        tpot_ms=report.tpot_ms,
        source=report.header.source,
    )


def _part_of(part: int | None, whole: int | None) -> float | None:
    if part is None or whole is None:
        return None
    return part / whole if whole else 0.0


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _joined_gaps(parts: Sequence[EnginePart], whole: Report) -> ReadingGaps:
    gaps = [part.report.reading for part in parts]
    bad = [line for each in gaps for line in each.first_bad_lines]
    missing = set(range(whole.header.data_parallel_size or 0)) - {part.rank for part in parts}
    return ReadingGaps(
        bad_lines=sum(each.bad_lines for each in gaps),
        first_bad_lines=bad[:BAD_LINES_KEPT],
        unknown_events=_added(each.unknown_events for each in gaps),
        dropped_fields=_added(each.dropped_fields for each in gaps),
        duplicate_records=sum(each.duplicate_records for each in gaps),
        late_records=sum(each.late_records for each in gaps),
        unmatched_request_records=sum(each.unmatched_request_records for each in gaps),
        clock_back_s=max((each.clock_back_s for each in gaps), default=0.0),
        omitted_ids=whole.reading.omitted_ids,
        sampled_every=whole.reading.sampled_every,
        step_limit_reached=any(each.step_limit_reached for each in gaps),
        missing_ranks=sorted(missing),
    )


def _joined_partial(parts: Sequence[Partial | None], requests: int) -> Partial | None:
    partial = [each for each in parts if each is not None]
    if not partial:
        return None
    return Partial(
        cut_off=any(each.cut_off for each in partial),
        at_step_limit=any(each.at_step_limit for each in partial),
        unfinished=sum(each.unfinished for each in partial),
        requests=requests,
    )


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


# ---------------------------------------------------------------------------------------------------------------------
# A trace read into a report: the traces of all engines, where there are several, into one.


Between = tuple[int | None, int | None]
"""First and last step that are looked at; None: from the beginning, or to the end."""


def summarize(
    path: Path | str, *, requests: bool = True, slos: Sequence[SLO] = (), between: Between = (None, None)
) -> Report:
    """The report on a trace: a file of the pair, the directory that holds it, or that of the engines of one run.

    ``slos`` are what goodput is counted by. ``requests=False`` leaves a requests file unread, which is faster; the
    classifier then knows no ``minNeed``. Raises TraceError if there is no trace, no step in it, or traces of
    different runs. ``between``: steps that are looked at, with the requests that are there in them.
    """
    return summarized(path, requests=requests, slos=slos, between=between)[0]


def summarized(
    path: Path | str, *, requests: bool = True, slos: Sequence[SLO] = (), between: Between = (None, None)
) -> tuple[Report, list[ReportBuilder]]:
    """The same, with what it is made of: a builder for each engine."""
    traces = find_ranks(path)
    parts = [EnginePart(each.rank or 0, *_summarized(each, slos, between, requests=requests)) for each in traces]
    report = parts[0].report if len(parts) == 1 else joined_report(parts, source=str(path))
    return report, [part.builder for part in parts]


def advised(report: Report, builders: Sequence[ReportBuilder], of_classes: Sequence[Bounded]) -> Report:
    """The report on these engines with advice that counts the bounds of classes, too."""
    if not any(each.slos for each in of_classes):
        return report
    whole = builders[0] if len(builders) == 1 else ReportBuilder.joined(builders)
    return msgspec.structs.replace(report, advice=whole.advice(report, of_classes))


def _summarized(
    trace: RankTrace, slos: Sequence[SLO], between: Between, *, requests: bool
) -> tuple[ReportBuilder, Report]:
    builder = ReportBuilder(slos)
    source = str(trace.files.source)
    if trace.is_idle:
        return builder, builder.report(source=source)
    reader = StepReader(trace.files, requests=requests)
    sink: FactSink = builder
    first, last = between
    before = _Before()
    for step in reader.steps():
        if first is not None and step.number < first:
            before.note(step)
            continue
        if last is not None and step.number > last:
            break
        if builder.start is None and reader.start is not None:
            builder.trace_started(reader.start)
            sink = AfterWarmup(builder, reader.start.warmup) if reader.start.warmup else builder
        before.hand_on(sink, builder)
        _feed(sink, step, reader.start, builder if reader.reconstructed else None)
    for each in reader.unfinished():
        builder.request_unfinished(each)
    if reader.reader.ended_at is not None and last is None:
        builder.run_ended(reader.reader.ended_at)
    builder.jobs |= reader.jobs
    report = builder.report(source=source, notes=reader.reader.notes, reconstructed=reader.reconstructed)
    return builder, report


class _Before:
    """The requests that came before the steps that are looked at, and have not ended."""

    def __init__(self) -> None:
        self._origin: float | None = None
        self._here: dict[str | None, list[RequestArrived | PrefixCacheLookup]] = {}

    def note(self, step: Step) -> None:
        """A step that is not looked at."""
        self._origin = step.ts if self._origin is None else self._origin
        for arrived in (*step.arrived, *step.arrived_after):
            self._here[arrived.req_id] = [arrived]
        for lookup in step.lookups:
            self._here.setdefault(lookup.req_id, []).append(lookup)
        for finished in step.finished:
            self._here.pop(finished.req_id, None)

    def hand_on(self, sink: FactSink, builder: ReportBuilder) -> None:
        """Hand on what is known of them, once."""
        if self._origin is not None:
            builder.begin_at(self._origin)
        here, self._here, self._origin = self._here, {}, None
        for record in (each for records in here.values() for each in records):
            if isinstance(record, RequestArrived):
                sink.request_arrived(record)
            else:
                sink.prefix_looked_up(record)


def _feed(sink: FactSink, step: Step, start: TraceStart | None, builder: ReportBuilder | None) -> None:
    """Hand on one step, in the order in which things happened; ``builder`` of a trace without lengths of requests."""
    for arrived in step.arrived:
        sink.request_arrived(arrived)
    for lookup in step.lookups:
        sink.prefix_looked_up(lookup)
    block_size = start.block_size if start is not None else None
    sink.step_decided(facts_of(step, block_size or CLASSIFIER_BLOCK_SIZE))
    if builder is not None and step.decision is not None:
        builder.computed(step.ts, step.decision.num_scheduled_tokens or {})
    if step.completed is not None:
        done = step.completed
        sink.step_completed(done.step, done.ts, done.step_seconds, done.num_sampled_tokens, streams_of(done))
        if done.num_drafts and done.num_draft_tokens is not None and done.num_accepted_tokens_per_pos is not None:
            sink.drafts_verified(Drafts(done.num_drafts, done.num_draft_tokens, done.num_accepted_tokens_per_pos))
    for finished in step.finished:
        sink.request_finished(finished)
    for pin in step.pins:
        sink.pin_ended(pin)
    for arrived in step.arrived_after:
        sink.request_arrived(arrived)
