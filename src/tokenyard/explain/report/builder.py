# cython: auto_pickle=True
"""The builder: takes facts as they come, live or from a trace, and makes the report."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tokenyard.errors import ConfigError
from tokenyard.explain.advice.rule_reader import advise
from tokenyard.explain.advice.rules import Advice
from tokenyard.explain.advice.symptoms import SymptomCounter, Symptoms, missed_bounds
from tokenyard.explain.answer.progress import ProgressCounter
from tokenyard.explain.classifier import Agreement, Bucket, Classification, StepReason, classify
from tokenyard.explain.figures import STEPS_KEPT, ArrivalsCounter, LatencyFigures, Series
from tokenyard.explain.jobs import JobCounter, PinCounter
from tokenyard.explain.population import LATENCIES, LatencyCounter
from tokenyard.explain.recorded_reasons import RecordedReasonCounter
from tokenyard.explain.report.report import (
    Header,
    HitRate,
    ReadingGaps,
    Report,
    SpeculationCounter,
    Throughput,
    header_of,
)
from tokenyard.explain.slo import SLO, SLO_FIGURES, Bounded, goodput_of
from tokenyard.explain.steady import LoadCounter
from tokenyard.trace.facts import STEADY, Drafts, RepeatedFacts, StepFacts, Streams, micros
from tokenyard.trace.reader import is_at_step_limit, partial_of
from tokenyard.trace.schema import (
    AdmissionOutcome,
    PinEnded,
    PrefixCacheLookup,
    RequestArrived,
    RequestFinished,
    TraceStart,
)
from tokenyard.trace.steps import ReadNotes

_ADDED_AT_ONCE = 512
"""Facts; a fifth of a megabyte of them, and some megabytes where most of them are leaps of many steps."""


class _Totals:
    """Counts that several engines' are added up to; None: no trace records them."""

    def __init__(self) -> None:
        self.steps = self.omitted_ids = 0
        self.buckets: Counter[Bucket] = Counter()
        self.reasons: Counter[StepReason] = Counter()
        self.lookups = self.prompt_tokens = self.local_hits = self.external_hits = 0
        self.preemptions: int | None = None
        self.recomputed: int | None = None
        self.sampled: int | None = None

    def join(self, other: _Totals) -> None:
        """Add another engine's."""
        self.steps += other.steps
        self.omitted_ids += other.omitted_ids
        self.buckets += other.buckets
        self.reasons += other.reasons
        self.lookups += other.lookups
        self.prompt_tokens += other.prompt_tokens
        self.local_hits += other.local_hits
        self.external_hits += other.external_hits
        self.preemptions = _sum(self.preemptions, other.preemptions)
        self.recomputed = _sum(self.recomputed, other.recomputed)
        self.sampled = _sum(self.sampled, other.sampled)


class _Peaks:
    """The largest shares that were in use; None: no trace records them."""

    def __init__(self) -> None:
        self.kv_use: float | None = None
        self.dram_use: float | None = None

    def join(self, other: _Peaks) -> None:
        """Take another engine's where they are larger."""
        self.kv_use = _larger(self.kv_use, other.kv_use)
        self.dram_use = _larger(self.dram_use, other.dram_use)


def _sum(mine: int | None, theirs: int | None) -> int | None:
    return theirs if mine is None else mine if theirs is None else mine + theirs


def _larger(mine: float | None, theirs: float | None) -> float | None:
    return theirs if mine is None else mine if theirs is None else max(mine, theirs)


class ReportBuilder:
    """A ``FactSink`` that adds up. Costs a few microseconds a step, however long the queues are.

    What it is told is kept, and added many facts at a time: code that takes turns with a scheduler finds nothing of its
    own in the processor's caches, and takes three times as long. Steps that repeat the last one are counted, and added
    together when they end.
    """

    def __init__(self, slos: Sequence[SLO] = ()) -> None:
        if not isinstance(slos, Sequence) or not all(isinstance(each, SLO) for each in slos):
            raise ConfigError("slos", slos, "give a list of tokenyard.sim.SLO")
        self.slos = slos
        """What goodput is counted by."""
        self.start: TraceStart | None = None
        self.jobs: set[str] = set()
        self._told: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        """What is not added yet: the method that adds it, and the facts."""
        self._first: StepFacts | None = None
        self._last: StepFacts | None = None
        self._repeats = 0
        """Steps like ``_last`` that followed it and are not added yet."""
        self._last_repeat: tuple[int, float] = (0, 0.0)
        """Number and moment of the last of them."""
        self._least_free = 0
        """Fewest free blocks before any of them."""
        self._apart = STEPS_KEPT
        """Repeated steps that are taken one by one all the same, because the report shows them."""
        self._bucket = Bucket.UNKNOWN
        """Bucket of ``_last``."""
        self._totals = _Totals()
        self._peaks = _Peaks()
        self._agreement = Agreement()
        self._recorded = RecordedReasonCounter()
        self._open: StepFacts | None = None
        """The last step, until the next one tells how long it took."""
        self._symptoms = SymptomCounter()
        self._progress = ProgressCounter()
        self._arrivals = ArrivalsCounter()
        self._load = LoadCounter()
        self._latencies = LatencyCounter()
        self._job_times = JobCounter()
        self._pins = PinCounter()
        self._speculation = SpeculationCounter()
        self._budget_use, self._running, self._waiting = Series(), Series(), Series()
        self._busy_seconds = self._longest_idle = 0.0
        self._end: float | None = None
        """Latest moment seen."""
        self._is_ended = self._is_joined = False
        """The run was ended, with whatever was unfinished: a trace of it is whole. Facts of several engines were joined
        here."""

    @classmethod
    def joined(cls, builders: Sequence[ReportBuilder]) -> ReportBuilder:
        """The facts of several engines on one clock, as one: what is counted is added up, steps are those of each."""
        whole = cls(builders[0].slos if builders else ())
        whole._is_joined = True
        for each in builders:
            whole._join(each)
        return whole

    def _join(self, other: ReportBuilder) -> None:
        other._close()
        self.start = self.start or other.start
        self.jobs |= other.jobs
        self._note_moment(other._end)
        self._is_ended |= other._is_ended
        first, last = other._first, other._last
        if first is not None and (self._first is None or (first.ts or 0.0) < (self._first.ts or 0.0)):
            self._first = first
        if last is not None and (self._last is None or (last.ts or 0.0) > (self._last.ts or 0.0)):
            self._last = last
        for mine, theirs in zip(self._counters, other._counters, strict=True):
            mine.join(theirs)

    @property
    def _counters(self) -> tuple[Any, ...]:
        """Everything that several engines' are joined to, by ``join``."""
        return (
            *(self._totals, self._peaks, self._agreement, self._recorded, self._symptoms, self._progress),
            self._load,
            *(self._arrivals, self._latencies, self._job_times, self._pins, self._speculation),
            *(self._budget_use, self._running, self._waiting),
        )

    # ---- facts, as they come

    def trace_started(self, start: TraceStart) -> None:
        """Note what runs."""
        self.start = start

    def request_arrived(self, record: RequestArrived) -> None:
        """Count an arrival."""
        if record.job_id:
            self.jobs.add(record.job_id)
        self._later(self._add_arrival, record)

    def prefix_looked_up(self, record: PrefixCacheLookup) -> None:
        """Add a request's hits."""
        self._later(self._add_hits, record)

    def step_decided(self, facts: StepFacts) -> None:
        """Add a step."""
        self._later(self._add_step, facts)

    def step_repeated(self, step: int, ts: float, free_blocks: int) -> None:
        """Count a step like the last one."""
        self._later(self._add_repeated, step, ts, free_blocks)

    def steps_repeated(self, steps: RepeatedFacts) -> None:
        """Add steps like the last one, all at once: of those that wait, and why, nothing changes."""
        self._later(self._add_steps, steps)

    def step_completed(
        self, step: int, ts: float | None, seconds: float | None, sampled: int | None, streams: Streams | None
    ) -> None:
        """Add what a step produced."""
        self._later(self._add_completed, step, ts, seconds, sampled, streams)

    def drafts_verified(self, drafts: Drafts) -> None:
        """Add the draft tokens of the step that has just completed."""
        self._later(self._add_drafts, drafts)

    def request_finished(self, record: RequestFinished) -> None:
        """Add a finished request."""
        self._later(self._add_finished, record)

    def pin_ended(self, record: PinEnded) -> None:
        """Add a pin that is over."""
        self._later(self._pins.ended, record)

    def _later(self, add: Callable[..., None], *facts: Any) -> None:
        self._told.append((add, facts))
        if len(self._told) >= _ADDED_AT_ONCE:
            self._catch_up()

    def _catch_up(self) -> None:
        """Add what it was told, in order."""
        told = self._told
        while told:  # what is interrupted here goes on with the next one
            add, facts = told.popleft()
            add(*facts)

    # ---- facts, added up

    def _add_arrival(self, record: RequestArrived) -> None:
        self._apart = max(self._apart, 1)
        self._arrivals.arrive(record)
        self._latencies.arrived(record)
        self._job_times.arrived(record)
        self._load.arrive(record)
        self._symptoms.arrived(record.req_id, record.lora_name)
        self._progress.arrived(record)

    def _add_hits(self, record: PrefixCacheLookup) -> None:
        self._latencies.looked_up(record)
        self._progress.looked_up(record)
        if record.total_prompt_tokens is not None:
            self._totals.lookups += 1
            self._totals.prompt_tokens += record.total_prompt_tokens
            self._totals.local_hits += record.local_hit_tokens or 0
            self._totals.external_hits += record.external_hit_tokens or 0

    def _add_step(self, facts: StepFacts) -> None:
        self._add_repeats()
        self._end_step(facts.ts)
        self._totals.steps += 1
        self._first = self._first or facts
        self._last = self._open = facts
        if facts.ts is not None and self._end is not None:
            self._longest_idle = max(self._longest_idle, facts.ts - self._end)
        self._note_moment(facts.ts)
        verdict = classify(facts)
        self._count(verdict, facts.outcome)
        self._arrivals.step(facts, verdict.unadmitted)
        self._symptoms.step(facts, verdict)
        self._progress.step(facts, verdict)
        self._pins.stepped(facts)
        self._add_gauges(facts)
        self._note_free(facts.free_blocks, facts.total_blocks)

    def _count(self, verdict: Classification, outcome: AdmissionOutcome | None, times: int = 1) -> None:
        """Steps were classified alike."""
        self._bucket = verdict.bucket
        self._totals.buckets[verdict.bucket] += times
        if verdict.reason is not None:
            self._totals.reasons[verdict.reason] += times
            self._agreement.add(verdict, outcome, times)

    def _add_repeated(self, step: int, ts: float, free_blocks: int) -> None:
        if self._apart:
            self._apart -= 1
            self._add_repeats()
            assert self._last is not None
            self._add_step(msgspec.structs.replace(self._last, step=step, ts=ts, free_blocks=free_blocks))
            return
        if not self._repeats or free_blocks < self._least_free:
            self._least_free = free_blocks
        self._repeats += 1
        self._last_repeat = step, ts
        self._symptoms.repeated(step)

    def _add_steps(self, steps: RepeatedFacts) -> None:
        apart = len(steps.moments)
        if steps.like.outcome is not None or not steps.like.num_waiting:
            apart = min(apart, max(self._arrivals.rows_left, 0))
        for i in range(apart):
            streams = STEADY if i else steps.streams
            self._add_completed(steps.completed + i, steps.moments[i], steps.seconds[i], steps.sampled, streams)
            self._add_step(steps.step(i))
        if apart < len(steps.moments):
            self._add_run(steps.since(apart) if apart else steps)

    def _add_run(self, steps: RepeatedFacts) -> None:
        """Steps of which every one counts alike, but for free blocks and moments."""
        count, moments = len(steps.moments), steps.moments
        self._add_repeats()
        self._totals.sampled = (self._totals.sampled or 0) + count * steps.sampled
        for seconds in steps.seconds:
            self._busy_seconds += seconds
        self._latencies.step_completed(moments[0], steps.sampled, steps.streams)
        self._latencies.steps_completed(moments[1:], steps.sampled)
        self._end_step(moments[0])
        lasted = micros(moments[-1]) - micros(moments[0])
        self._recorded.add_repeated(steps, lasted)
        self._symptoms.steps_repeated(steps)
        self._progress.steps_repeated(steps.like, moments[0], lasted)
        self._count_verdicts(steps, 0, count - 1)
        self._totals.steps += count
        self._note_moment(moments[-1])
        self._add_gauges(steps.like, count)
        self._note_free(min(steps.free_blocks), steps.like.total_blocks)
        self._last = self._open = steps.step(count - 1)

    def _count_verdicts(self, steps: RepeatedFacts, first: int, last: int) -> None:
        """Classify steps whose free blocks grow fewer: two that are judged alike have none between them that is not."""
        like, free = steps.like, steps.free_blocks
        verdict = other = classify(msgspec.structs.replace(like, free_blocks=free[first]))
        if free[last] != free[first]:
            other = classify(msgspec.structs.replace(like, free_blocks=free[last]))
        if (verdict.bucket, verdict.reason) == (other.bucket, other.reason):
            self._count(verdict, like.outcome, last - first + 1)
        else:
            middle = (first + last) // 2
            self._count_verdicts(steps, first, middle)
            self._count_verdicts(steps, middle + 1, last)

    def _add_repeats(self) -> None:
        """Add the steps that were counted."""
        times, self._repeats = self._repeats, 0
        if times and self._last is not None:
            step, ts = self._last_repeat
            self._totals.steps += times
            self._totals.buckets[self._bucket] += times
            self._last = msgspec.structs.replace(self._last, step=step, ts=ts, free_blocks=self._least_free)
            self._note_moment(ts)
            self._add_gauges(self._last, times)
            self._note_free(self._least_free, self._last.total_blocks)

    def _add_gauges(self, facts: StepFacts, times: int = 1) -> None:
        if facts.token_sum is not None and facts.token_budget:
            self._budget_use.add(facts.token_sum / facts.token_budget, times)
        if facts.num_running is not None:
            self._running.add(facts.num_running, times)
        if facts.num_waiting is not None:
            self._waiting.add(facts.num_waiting, times)
        if facts.cpu_free_blocks is not None and facts.cpu_total_blocks:
            self._peaks.dram_use = max(self._peaks.dram_use or 0.0, 1 - facts.cpu_free_blocks / facts.cpu_total_blocks)
        if facts.num_preempted is not None:
            self._totals.preemptions = (self._totals.preemptions or 0) + facts.num_preempted * times
        if facts.recomputed_tokens is not None:
            self._totals.recomputed = (self._totals.recomputed or 0) + facts.recomputed_tokens * times
        self._totals.omitted_ids += facts.omitted_ids * times

    def _note_free(self, free: int | None, total: int | None) -> None:
        if free is not None and total:
            self._peaks.kv_use = max(self._peaks.kv_use or 0.0, 1 - free / total)

    def _add_completed(
        self, step: int, ts: float | None, seconds: float | None, sampled: int | None, streams: Streams | None
    ) -> None:
        if sampled is not None:
            self._totals.sampled = (self._totals.sampled or 0) + sampled
        self._busy_seconds += seconds or 0.0
        self._latencies.step_completed(ts, sampled, streams if self._every_n == 1 else None)
        self._symptoms.completed(step, seconds)
        self._note_moment(ts)

    def _add_drafts(self, drafts: Drafts) -> None:
        self._speculation.add(drafts)
        self._symptoms.drafts_verified(drafts)

    def computed(self, ts: float | None, scheduled: Mapping[str, int]) -> None:
        """Take what a step computed, of a trace that does not record how long requests are."""
        self._later(self._progress.computed, ts, scheduled)

    def begin_at(self, origin: float | None) -> None:
        """Note when the run began of which only a part is taken."""
        self._progress.origin = origin

    def run_ended(self, ts: float) -> None:
        """Note that the run was ended at this moment, with whatever is unfinished."""
        self._is_ended = True
        self._later(self._note_moment, ts)

    def request_unfinished(self, record: RequestFinished) -> None:
        """Take what a trace without arrivals and ends shows of a request that is there when it ends."""
        self._later(self._latencies.still_here, record)

    def _add_finished(self, record: RequestFinished) -> None:
        self._latencies.ended(record)
        self._job_times.ended(record)
        self._arrivals.finish(record)
        self._load.finish(record)
        self._symptoms.finished(record.req_id)
        self._progress.finished(record)
        self._note_moment(record.ts)

    def _note_moment(self, ts: float | None) -> None:
        if ts is not None and (self._end is None or ts > self._end):
            self._end = ts

    def _end_step(self, now: float | None) -> None:
        """The last step is over: its requests spent the time until now in it, and whom it held back lost that."""
        facts, self._open = self._open, None
        if facts is None:
            return
        passed = None if now is None or facts.ts is None else max(micros(now) - micros(facts.ts), 0)
        if facts.outcome is not None:
            self._recorded.add(facts.outcome, passed or 0, facts)
        if passed is not None:
            self._symptoms.step_ended(facts, passed)
            self._progress.step_ended(facts, passed)

    def _close(self) -> None:
        """Add what is known so far, also of steps that go on."""
        self._catch_up()
        self._add_repeats()
        self._apart = max(self._apart, 1)
        self._end_step(self._end)
        self._symptoms.settle()
        self._progress.seen_until(self._end)

    # ---- the report

    def report(
        self,
        *,
        source: str | None = None,
        notes: ReadNotes | None = None,
        reconstructed: bool = False,
    ) -> Report:
        """The report so far. ``notes`` are the reader's."""
        self._close()
        latencies = self._latencies
        duration = self._duration()
        itl, itl_requests = latencies.itl_ms(self._end) if self._every_n == 1 else (LatencyFigures(), 0)
        people = latencies.population(self._end)
        attempts = people.attempts
        of_requests = {name: people.figures(name) for name in LATENCIES}
        job = self._job_times.figures(self._end)
        output_tokens = self._output_tokens(reconstructed)
        output_tokens = None if output_tokens is None else output_tokens - attempts.lost_tokens
        known = not reconstructed or self._arrivals.arrived > 0
        arrived, finished = self._arrivals.arrived - attempts.again, latencies.finished - attempts.again
        served = people.outcomes.served if known else None
        reasons = latencies.finish_reasons - Counter(abort=attempts.again)
        timed = any(of_requests[name].mean is not None for name in ("queue", "ttft"))
        report = Report(
            header=self._header(source, notes, requests=arrived if known else 0, finished=finished),
            steps=self._totals.steps,
            requests=arrived if known else None,
            requests_finished=finished if known else None,
            finish_reasons=dict(sorted(reasons.items())),
            buckets={bucket.value: self._totals.buckets[bucket] for bucket in Bucket},
            reasons={reason.value: self._totals.reasons[reason] for reason in StepReason},
            recorded_reasons=self._recorded.result(),
            progress=self._progress.result(),
            unseen_s=self._arrivals.unseen_micros / 1e6 if not reconstructed and self._every_n == 1 else None,
            disagreements=self._agreement.result(),
            arrivals=self._arrivals.result() if known and not self._is_joined else None,
            times=None if not timed else "reconstructed" if reconstructed else "recorded",
            outcomes=people.outcomes if known else None,
            attempts=attempts if attempts.again else None,
            queue_ms=of_requests["queue"],
            ttft_ms=of_requests["ttft"],
            tpot_ms=of_requests["tpot"],
            e2e_ms=of_requests["e2e"],
            itl_ms=itl,
            itl_requests=itl_requests,
            job_ms=job,
            pins=self._pins.result(self._policies, duration),
            tpot_requests=people.num_with("tpot"),
            prefix_hit_rate=HitRate(
                self._hit_rate(self._totals.local_hits), self._hit_rate(self._totals.external_hits)
            ),
            prefix_lookups=self._totals.lookups,
            preemptions=self._totals.preemptions,
            recomputed_tokens=self._totals.recomputed if reconstructed else self._totals.recomputed or 0,
            token_budget_use=self._budget_use.spread(),
            running=self._running.spread(),
            waiting=self._waiting.spread(),
            peak_kv_use=self._peaks.kv_use,
            peak_dram_use=self._peaks.dram_use,
            output_tokens=output_tokens,
            duration_s=duration,
            longest_idle_s=None if duration is None or self._is_joined or self._every_n > 1 else self._longest_idle,
            throughput=Throughput(_per(served, duration), _per(output_tokens, duration)),
            load=self._load.result(),
            goodput=goodput_of(self.slos, people, of_requests | {"itl": itl, "job": job}, duration),
            speculation=self._speculation.result(self.start, of_requests["tpot"].mean),
            reading=self._reading_gaps(notes),
        )
        return msgspec.structs.replace(report, advice=self.advice(report))

    def advice(self, report: Report, of_classes: Sequence[Bounded] = ()) -> list[Advice]:
        """What to change, for a report that was made here; ``of_classes``: bounds of classes that count, too."""
        return advise(self._symptoms_of(report, of_classes))

    @property
    def _policies(self) -> list[str]:
        """The policy, as the trace names it: at its start, and in its steps."""
        told = (self.start and self.start.policy, self._first and self._first.policy)
        return [each for each in told if each]

    def _header(self, source: str | None, notes: ReadNotes | None, *, requests: int, finished: int) -> Header:
        return header_of(
            self.start,
            self._first,
            self._last,
            steps=self._totals.steps,
            jobs=len(self.jobs),
            max_running=self._running.max,
            request_records=notes.request_records if notes is not None else 0,
            source=source,
            partial=partial_of(
                cut_off=notes is not None and notes.cut_off,
                at_step_limit=notes is not None and self._is_at_step_limit,
                requests=0 if self._is_ended else requests,
                finished=finished,
            ),
        )

    @property
    def busy_seconds(self) -> float | None:
        """Time in steps; None where the trace does not hold every step, or does not record how long they took."""
        self._catch_up()
        if self._every_n > 1 or (self._totals.sampled is None and self._totals.steps):
            return None
        return self._busy_seconds

    def _symptoms_of(self, report: Report, of_classes: Sequence[Bounded]) -> Symptoms:
        last = self._last
        ttft, queue = report.ttft_ms.mean, report.queue_ms.mean
        latencies = {name: getattr(report, f"{name}_ms") for name in SLO_FIGURES}
        return self._symptoms.result(
            self.start,
            report.recorded_reasons,
            missed=missed_bounds([Bounded(self.slos, latencies), *of_classes]),
            request_seconds=report.progress.request_s,
            ttft_ms=ttft,
            prefill_ms=None if ttft is None or queue is None else ttft - queue,
            unseen_ms=1e3 * report.unseen_s / report.requests if report.unseen_s and report.requests else None,
            steps=report.steps,
            requests=report.requests,
            jobs=report.header.jobs,
            token_budget=last.token_budget if last is not None else None,
            max_running=last.max_running if last is not None else None,
            peak_running=report.header.max_running,
            preemptions=report.preemptions,
            recomputed_tokens=report.recomputed_tokens,
            local_hit_rate=report.prefix_hit_rate.local,
            peak_kv_use=report.peak_kv_use,
            tpot_p50_ms=report.tpot_ms.p50,
            tpot_p99_ms=report.tpot_ms.p99,
        )

    def _duration(self) -> float | None:
        if self._first is None or self._first.ts is None or self._end is None:
            return None
        return self._end - self._first.ts

    def _output_tokens(self, reconstructed: bool) -> int | None:
        if self._totals.sampled is not None and self._every_n == 1:
            return self._totals.sampled
        return None if reconstructed or not self._latencies.finished else self._latencies.output_tokens

    @property
    def _every_n(self) -> int:
        return (self.start.every_n if self.start is not None else None) or 1

    @property
    def _is_at_step_limit(self) -> bool:
        first, last = (None if facts is None else facts.step for facts in (self._first, self._last))
        return is_at_step_limit(self.start, first, last)

    def _hit_rate(self, hits: int) -> float | None:
        return hits / self._totals.prompt_tokens if self._totals.prompt_tokens else None

    def _reading_gaps(self, notes: ReadNotes | None) -> ReadingGaps:
        limited = notes is not None and self._is_at_step_limit
        notes = notes or ReadNotes()
        return ReadingGaps(
            bad_lines=notes.bad_lines,
            first_bad_lines=notes.first_bad_lines,
            unknown_events=notes.unknown_events,
            dropped_fields=notes.dropped_fields,
            duplicate_records=notes.duplicate_records,
            late_records=notes.late_records,
            unmatched_request_records=notes.unmatched_request_records,
            clock_back_s=notes.clock_back_s,
            omitted_ids=self._totals.omitted_ids,
            sampled_every=self._every_n,
            step_limit_reached=limited,
        )


def _per(count: int | None, seconds: float | None) -> float | None:
    return count / seconds if count is not None and seconds else None
