"""What a live scheduler does to requests and statistics, in numbers and in the words of the trace."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tokenyard.core.kv.allocation import KVShortage
from tokenyard.core.sched.observer import Counts, RepeatedSteps
from tokenyard.core.sched.outcomes import Outcome, Preemption, Reason, StepOutcomes
from tokenyard.core.sched.step_rows import Rows
from tokenyard.record.recordable import RecordableDrafts, RecordableOutputs, RecordableState, RecordableStep
from tokenyard.record.writer import RECORD_BYTES, Piece, encoded
from tokenyard.trace.facts import Drafts, FactSink, RepeatedFacts, StepFacts, Streams, running_consumed
from tokenyard.trace.schema import AdmissionOutcome, KVNumbers, PreemptionNumbers, Refusal

# ---------------------------------------------------------------------------------------------------------------------
# A step's refusals as a record: the scheduler's own values, put into the words of the trace.


def outcome_record(
    step: int, ts: float, policy: str | None, outcomes: StepOutcomes, limit: int | None
) -> AdmissionOutcome | None:
    """The ``admission_outcome`` of a step, or None when nothing was held back, skipped or preempted.

    Lists name at most ``limit`` requests; the counts beside them are exact.
    """
    return _outcome_record(step, ts, policy, outcomes, limit) if _refuses(outcomes) else None


def _outcome_record(
    step: int, ts: float, policy: str | None, outcomes: StepOutcomes, limit: int | None
) -> AdmissionOutcome:
    ended = outcomes.admission
    record = AdmissionOutcome(step=step, ts=ts, policy=policy)
    if ended is not None:
        record.kind = ended.kind._value_  # which costs a third of ``value``
        record.reason = ended.reason._value_
        record.req_id = ended.request_id
        record.num_requests = ended.num_requests
        record.kv = _numbers(ended.kv)
        record.smallest_need = ended.smallest_need
        record.detail = ended.detail
        record.wanted_tokens = ended.wanted_tokens or None
        record.budget_left = ended.budget_left
    if outcomes.skipped:
        record.skipped_counts = _counts(outcomes.skipped)
        record.skipped = _refusals(outcomes.skipped, limit)
        record.skipped_omitted = _beyond(outcomes.skipped, limit)
    stalled = _still_running(outcomes)
    if stalled:
        record.not_scheduled_counts = _counts(stalled)
        record.not_scheduled = _refusals(stalled, limit)
        record.not_scheduled_omitted = _beyond(stalled, limit)
    if outcomes.preemptions:
        record.preemptions = [_preemption(each) for each in outcomes.preemptions]
    return record


def _refuses(outcomes: StepOutcomes) -> bool:
    """Whether a request was held back, skipped or preempted."""
    ended = outcomes.admission
    held = ended is not None and ended.num_requests
    return bool(held or outcomes.skipped or outcomes.not_scheduled or outcomes.preemptions)


def _still_running(outcomes: StepOutcomes) -> Sequence[Outcome]:
    """The running requests that got no tokens, without those that were preempted later in the step for another."""
    refused = outcomes.not_scheduled
    if not outcomes.preemptions or not refused:
        return refused
    victims = {each.request_id for each in outcomes.preemptions}
    return [each for each in refused if each.reason is Reason.SELF_PREEMPTED or each.request_id not in victims]


def _counts(refused: Sequence[Outcome]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in refused:  # a handful: ``Counter`` would take as long as all else here
        reason = each.reason._value_
        counts[reason] = counts.get(reason, 0) + 1
    return counts


def _beyond(refused: Sequence[Outcome], limit: int | None) -> int | None:
    return len(refused) - limit if limit is not None and len(refused) > limit else None


def _refusals(refused: Sequence[Outcome], limit: int | None) -> list[Refusal]:
    return [
        Refusal(
            reason=each.reason._value_,
            req_id=each.request_id,
            wanted_tokens=each.wanted_tokens or None,
            budget_left=each.budget_left or None,
            kv=_numbers(each.kv),
            detail=each.detail,
        )
        for each in refused[:limit]
    ]


def _preemption(each: Preemption) -> PreemptionNumbers:
    return PreemptionNumbers(
        req_id=each.request_id,
        for_req_id=each.for_request_id,
        num_computed_tokens=each.num_computed_tokens,
        rolled_back_tokens=each.rolled_back_tokens,
        kv=_numbers(each.kv),
    )


def _numbers(kv: KVShortage | None) -> KVNumbers | None:
    if kv is None:
        return None
    return KVNumbers(
        limit=kv.limit._value_,
        needed=kv.needed,
        free=kv.free,
        cached_hits=kv.cached_hits,
        reserved=kv.reserved,
        watermark=kv.watermark,
        pinned=kv.pinned,
    )


class Refusals(Piece):
    """What a step held back, where it did; the record is made when it is asked for, or written.

    ``limit``: most requests named per list.
    """

    step: int
    ts: float
    policy: str | None
    outcomes: StepOutcomes
    limit: int | None
    _record: AdmissionOutcome | None = None

    @property
    def record(self) -> AdmissionOutcome:
        """The record."""
        if self._record is None:
            self._record = _outcome_record(self.step, self.ts, self.policy, self.outcomes, self.limit)
        return self._record

    def make(self) -> bytes:
        return encoded(self.record)

    @property
    def num_bytes(self) -> int:
        """Length of the record, about."""
        return RECORD_BYTES * (1 + len(self.outcomes.skipped) + len(self.outcomes.not_scheduled))


# ---------------------------------------------------------------------------------------------------------------------
# What a step did to single requests: refusals, loads that began, tokens that must be computed again.


class StepEffects:
    """Works out a step's effects once, for the trace and the statistics, and remembers what concerns later steps."""

    def __init__(self, policy: str | None, limit: int | None) -> None:
        """``policy`` is named in the records; ``limit``: most requests named per list of one."""
        self._policy = policy
        self._limit = limit
        self._step: int | None = None
        self._found: tuple[int, Refusals | None] = (0, None)
        self._lost: dict[str, int] = {}
        """Preempted request -> tokens it had computed."""
        self._recomputed: dict[str, int] = {}
        """Request -> tokens computed a second time."""
        self.min_need: int | None = None
        """Least blocks that admit one of those that waited before the step; None unless request records tell it."""
        self._loading: set[str] = set()
        """Requests whose external tokens were, or are being, loaded while they waited."""

    def of(self, ts: float, output: RecordableStep, outcomes: StepOutcomes) -> tuple[int, Refusals | None]:
        """Tokens that the step computes a second time, and its refusals if there are any."""
        if output.step != self._step:
            self._step = output.step
            refused = None
            if _refuses(outcomes):
                refused = Refusals(output.step, float(ts), self._policy, outcomes, self._limit)
            self._found = self._count_recomputed(output, outcomes), refused
            for each in outcomes.skipped:
                if each.reason is Reason.ASYNC_KV_LOAD_STARTED and each.request_id is not None:
                    self._loading.add(each.request_id)
        return self._found

    def _count_recomputed(self, output: RecordableStep, outcomes: StepOutcomes) -> int:
        """Tokens that resumed requests lost in their preemption and did not find in the cache."""
        for victim in outcomes.preemptions:
            self._lost[victim.request_id] = self._lost.get(victim.request_id, 0) + victim.num_computed_tokens
        total = 0
        for i in output.admitted_resumed:
            request_id = output.req_ids[i]
            again = max(self._lost.pop(request_id, 0) - int(output.num_computed[i]), 0)
            self._recomputed[request_id] = self._recomputed.get(request_id, 0) + again
            total += again
        return total

    def is_loaded(self, request_id: str) -> bool:
        """External tokens of the request came, or come, while it waited."""
        return request_id in self._loading

    def forget(self, request_id: str) -> int:
        """The request is gone; returns the tokens it had to compute a second time."""
        self._lost.pop(request_id, None)
        self._loading.discard(request_id)
        return self._recomputed.pop(request_id, 0)


# ---------------------------------------------------------------------------------------------------------------------
# Reports what a live scheduler does to statistics, in numbers: no list of ids is ever made for them.

STEPS_IN_FLIGHT = 64
"""Starts of steps remembered until they complete; hosts have one or two in flight."""


def verified_drafts(stats: RecordableDrafts) -> Drafts | None:
    """Draft tokens that a step verified; None if there were none."""
    if not stats.num_drafts:
        return None
    return Drafts(stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens_per_pos.tolist())


class FactEmitter:
    """Turns the events of steps into facts."""

    def __init__(self, sinks: Sequence[FactSink], policy: str | None, effects: StepEffects) -> None:
        self._sinks = sinks
        self._policy = policy
        self._effects = effects
        self._before = Counts(0, 0, 0, None)
        """Counts of the step that is being decided, before any decision."""
        self._pinned = (0, 0)
        """Blocks and jobs that are pinned then."""
        self._last: StepFacts | None = None
        """The last step that was reported in full."""
        self._last_quiet: StepFacts | None = None
        """The last step that was reported in full, if it was quiet: the next one may equal it."""
        self._started: dict[int, float] = {}
        """Step in flight -> when it began."""
        self._last_end = -inf
        """When the last step that has completed did."""
        self.step = -1
        """Number of the last step that was begun."""

    def step_started(self, ts: float, step: int, state: RecordableState) -> None:
        """Take the numbers that decisions will change."""
        self.step = step
        self._started[step] = float(ts)  # a clock of numpy's would not add up as fast
        self._before = state.counts()
        pinned = state.pinned
        self._pinned = (sum(map(state.num_blocks_of, pinned)), len(pinned)) if pinned else (0, 0)

    def step_decided(self, ts: float, output: RecordableStep, outcomes: StepOutcomes, state: RecordableState) -> None:
        """Hand the facts of the step to the sinks."""
        free_blocks, running, waiting, cpu_blocks = self._before
        num_scheduled, total = len(output.req_ids), output.total_num_scheduled_tokens
        # Nearly every step: all requests decode, none comes.
        is_quiet = total == num_scheduled == output.num_running == running and not waiting and cpu_blocks is None
        is_quiet = is_quiet and not self._pinned[1]
        last = self._last_quiet
        if is_quiet and last is not None and last.num_running == running:
            for sink in self._sinks:
                sink.step_repeated(output.step, float(ts), free_blocks)
            return
        cpu_free, cpu_total = cpu_blocks or (None, None)
        recomputed, refused = self._effects.of(ts, output, outcomes)
        resumed = len(output.admitted_resumed)
        consumed = 0
        if total > num_scheduled:
            rows: Rows | None = getattr(output, "rows", None)
            if rows is not None:  # a step of ours, in this process
                consumed = rows.prefill_blocks(output.num_running, state.block_size)
            else:
                consumed = running_consumed(output.num_new_tokens[: output.num_running], state.block_size)
        facts = StepFacts(
            step=output.step,
            ts=float(ts),
            policy=self._policy,
            free_blocks=free_blocks,
            total_blocks=state.num_total_blocks,
            cpu_free_blocks=cpu_free,
            cpu_total_blocks=cpu_total,
            pinned_blocks=self._pinned[0],
            num_pinned=self._pinned[1],
            token_budget=state.max_num_scheduled_tokens,
            max_running=state.max_num_running_reqs,
            num_running=running,
            num_waiting=waiting,
            num_new=num_scheduled - output.num_running - resumed,
            num_resumed=resumed,
            num_preempted=len(output.preempted_req_ids),
            token_sum=total,
            running_consumed=consumed,
            min_need=self._effects.min_need,
            recomputed_tokens=recomputed,
            outcome=None if refused is None else refused.record,
        )
        self._last, self._last_quiet = facts, facts if is_quiet else None
        for sink in self._sinks:
            sink.step_decided(facts)

    def steps_repeated(self, steps: RepeatedSteps, streams: Streams) -> None:
        """Hand over the facts of steps that differ from the last one in moments and free blocks only.

        ``streams``: whose tokens began or went on with the first that completed.
        """
        assert self._last is not None, "a step was decided before"
        count, oldest = len(steps.moments), next(iter(self._started))
        moments = [float(moment) for moment in steps.moments]
        began = [*self._started.values(), *moments]
        ended_before = [self._last_end, *moments]
        repeated = RepeatedFacts(
            like=self._last,
            first=steps.first,
            moments=moments,
            free_blocks=list(steps.free_blocks),
            free_after=[*steps.free_blocks[1:], steps.free_in_the_end],
            completed=oldest,
            seconds=[
                moment - max(start, before) for moment, start, before in zip(moments, began, ended_before, strict=False)
            ],
            sampled=len(steps.like.req_ids),
            streams=streams,
        )
        self.step = steps.first + count - 1
        self._started = dict(zip(range(oldest + count, self.step + 1), began[count:], strict=True))
        self._last_end = moments[-1]
        for sink in self._sinks:
            sink.steps_repeated(repeated)

    def step_completed(self, ts: float, output: RecordableStep, outputs: RecordableOutputs, streams: Streams) -> None:
        """Report that the model ran."""
        ts = float(ts)
        sampled = outputs.num_sampled
        stats = outputs.scheduler_stats.spec_decoding_stats
        drafts = verified_drafts(stats) if stats is not None else None
        self._complete(output.step, ts, sampled, streams)
        if drafts is not None:
            for sink in self._sinks:
                sink.drafts_verified(drafts)

    def _complete(self, step: int, ts: float, sampled: int, streams: Streams) -> None:
        seconds = ts - max(self._started.pop(step, ts), self._last_end)
        self._last_end = ts
        if len(self._started) > STEPS_IN_FLIGHT:
            self._started.pop(min(self._started))
        for sink in self._sinks:
            sink.step_completed(step, ts, seconds, sampled, streams)
