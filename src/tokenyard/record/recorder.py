"""The recorder: watches a scheduler and turns what it sees into records for the trace and numbers for statistics.

Both are optional. Statistics need counts only and never cause an id list to be made; the trace embeds lists that are
made anew only when a queue has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2s
from typing import Protocol, cast

import msgspec
from msgspec.structs import replace

from tokenyard.arguments import given_kind
from tokenyard.core.config import PauseState
from tokenyard.core.request import BlockHash, FinishReason
from tokenyard.core.sched.observer import RepeatedSteps, StepObserver
from tokenyard.core.sched.outcomes import EndedPin, StepOutcomes
from tokenyard.record.facts import FactEmitter, StepEffects
from tokenyard.record.recordable import (
    RecordableItem,
    RecordableOutputs,
    RecordableRequest,
    RecordableState,
    RecordableStep,
)
from tokenyard.record.request_records import STATUS_TEXT, BlockIds, Decoder, HashedBlocks
from tokenyard.record.step_records import StepRecords
from tokenyard.record.writer import TraceWriter
from tokenyard.trace.facts import STEADY, FactSink, Streams
from tokenyard.trace.schema import (
    REFUSED,
    AdmissionOutcome,
    CacheReset,
    HostEvent,
    MultiModalSpan,
    PauseChanged,
    PinEnded,
    PrefixCacheLookup,
    RequestArrived,
    RequestFinished,
    TraceEnd,
    TraceStart,
)

# ---------------------------------------------------------------------------------------------------------------------
# Flows of tokens to answers: what a step changes in them, so that every pause between two tokens is on record.


class TokenStreams:
    """Follows the flows of tokens of one engine; a step that changes none of them costs a comparison."""

    def __init__(self) -> None:
        self._last: Sequence[str] = ()
        """Requests that got tokens in the last step that sampled any."""
        self._flowing: set[str] = set()
        """The same, without those that have ended."""
        self._paused: set[str] = set()
        self._ended: set[str] = set()
        """Requests that ended since then."""

    def step_completed(self, req_ids: Sequence[str]) -> Streams:
        """A step gave tokens to these requests; it changes nothing if there are none."""
        if not req_ids or (req_ids == self._last and not self._ended):
            return STEADY
        now, before, ended = set(req_ids), self._flowing, self._ended
        paused = [each for each in self._last if each in before and each not in now and each not in ended]
        fresh = [each for each in req_ids if each not in before]
        resumed = [each for each in fresh if each in self._paused]
        began = [each for each in fresh if each not in self._paused] if len(resumed) < len(fresh) else []
        self._paused.difference_update(resumed, ended)
        self._paused.update(paused)
        self._last, self._flowing, self._ended = req_ids, now - ended, set()
        return Streams(began, paused, resumed) if fresh or paused else STEADY

    def request_arrived(self, request_id: str) -> None:
        """A request came; one that was called so before is another one."""
        if request_id in self._ended:
            for each in (self._flowing, self._paused, self._ended):
                each.discard(request_id)

    def request_ended(self, request_id: str) -> None:
        """It gets no token after those of the step that is being taken in."""
        self._ended.add(request_id)


# ---------------------------------------------------------------------------------------------------------------------

_REFUSED_STATUS = "RequestStatus.REFUSED"


class TurnOrder(msgspec.Struct, frozen=True):
    """When a request is sent that follows others."""

    after: Sequence[str]
    """Requests that must have ended."""
    gap: float
    """Seconds from the last of these ends."""
    spacing: float = 0.0
    """Seconds, at least, from the arrival of the last one that ended."""


class _StepWatcher(Protocol):
    """The part of a ``StepObserver`` that is called on every step."""

    step: int
    """Number of the last step that was begun; -1 before the first."""

    def step_started(self, ts: float, step: int, state: RecordableState) -> None: ...

    def step_decided(
        self, ts: float, output: RecordableStep, outcomes: StepOutcomes, state: RecordableState
    ) -> None: ...

    def step_completed(
        self, ts: float, output: RecordableStep, outputs: RecordableOutputs, streams: Streams
    ) -> None: ...


class TraceRecorder(StepObserver):
    """A ``StepObserver`` that feeds a trace writer, statistics, or both.

    ``start`` describes the run (see ``describe_run``); ``decoder`` turns token ids into text and is made from the
    writer's settings unless given; ``turns`` says which requests follow which others, as far as the host knows. The
    writer stays the caller's to close.
    """

    def __init__(
        self,
        writer: TraceWriter | None = None,
        *sinks: FactSink,
        start: TraceStart | None = None,
        decoder: Decoder | None = None,
        turns: Mapping[str, TurnOrder] | None = None,
    ) -> None:
        for field, value, kind in (("writer", writer, TraceWriter), ("start", start, TraceStart)):
            if value is not None:
                given_kind(field, value, kind, f"give a {kind.__name__}, or leave it out")
        self._writer = writer
        self.reads_tokens = writer is not None
        self._sinks = sinks
        self._turns = turns or {}
        self._streams = TokenStreams()
        self._block_ids = BlockIds()
        self._prompt_blocks: dict[str, int] = {}
        """Request that is running -> blocks of its prompt that the trace has named."""
        self._policy = start.policy if start is not None else None
        self._connector = ((start.config or {}) if start is not None else {}).get("kv_transfer", {}).get("kv_connector")
        self._records: StepRecords | None = None
        if writer is None:
            self._effects = StepEffects(self._policy, limit=0)  # statistics need counts, and no names
        else:
            self._policy = writer.config.policy
            self._effects = StepEffects(self._policy, writer.config.max_ids_per_step)
            self._records = StepRecords(writer, decoder or Decoder(writer.config.tokenizer), self._effects)
            if start is not None:
                writer.begin(start)
        if start is not None:
            for sink in sinks:
                sink.trace_started(start)
        self._statistics = FactEmitter(sinks, self._policy, self._effects)
        watchers: tuple[_StepWatcher | None, ...] = (self._records, self._statistics if sinks or not writer else None)
        self._watchers = tuple(each for each in watchers if each is not None)
        """The trace and the statistics, in this order, if they are wanted."""
        self._steps = self._watchers[0]

    # ---- steps

    @property
    def sees_repeats(self) -> bool:
        """A trace has each step."""
        return self._records is None

    def step_started(self, ts: float, step: int, state: RecordableState) -> None:
        """A step is about to be decided."""
        for each in self._watchers:
            each.step_started(ts, step, state)

    def step_decided(self, ts: float, output: RecordableStep, outcomes: StepOutcomes, state: RecordableState) -> None:
        """Record what was decided."""
        for each in self._watchers:
            each.step_decided(ts, output, outcomes, state)

    def step_completed(self, ts: float, output: RecordableStep, outputs: RecordableOutputs) -> None:
        """Record that the model ran."""
        streams = self._streams.step_completed(outputs.streamed_req_ids)
        for each in self._watchers:
            each.step_completed(ts, output, outputs, streams)

    def steps_repeated(self, steps: RepeatedSteps) -> None:
        """Hand several steps alike to the statistics."""
        self._statistics.steps_repeated(steps, self._streams.step_completed(steps.like.req_ids))

    def refusals(self, ts: float, output: RecordableStep, outcomes: StepOutcomes) -> AdmissionOutcome | None:
        """What a step held back, as it is recorded, whether the step is wanted or not; None if that is no request."""
        refused = self._effects.of(ts, output, outcomes)[1]
        return None if refused is None else refused.record

    # ---- requests

    def request_arrived(self, ts: float, request: RecordableRequest) -> None:
        """Record an arrival."""
        if self._records is not None:
            self._records.queues_changed()
        self._streams.request_arrived(request.request_id)
        limits, turn = request.sampling_params, self._turns.get(request.request_id)
        record = RequestArrived(
            step=self._steps.step + 1,
            ts=float(ts),
            policy=self._policy,
            req_id=request.request_id,
            job_id=request.job_id,
            arrival_time=request.arrival_time,
            priority=request.priority,
            num_prompt_tokens=request.num_prompt_tokens,
            max_tokens=request.max_tokens,
            min_tokens=limits.min_tokens or None,
            ignore_eos=limits.ignore_eos or None,
            lora_name=request.lora_name,
            cache_salt_hash=_hash_of(request.cache_salt) if request.cache_salt else None,
            mm_items=[_span(item) for item in request.mm_features] or None,
            is_last_step=request.is_last_step or None,
            this_func_call=request.this_func_call,
        )
        if turn is not None:
            record.after, record.gap, record.spacing = list(turn.after), turn.gap, turn.spacing or None
        for sink in self._sinks:
            sink.request_arrived(record)
        if self._writer is not None and self._writer.wants_events(self._steps.step):
            self._writer.append_event(record)

    def request_finished(self, ts: float, request: RecordableRequest) -> None:
        """Record an end, and forget the request."""
        reason = FinishReason.of(request.status)
        self._finished(ts, request, STATUS_TEXT[request.status], reason.value if reason is not None else None)

    def request_refused(self, ts: float, request: RecordableRequest) -> None:
        """Record a request that came and was turned away at once."""
        self.request_arrived(ts, request)
        self._finished(ts, request, _REFUSED_STATUS, REFUSED)

    def _finished(self, ts: float, request: RecordableRequest, status: str, reason: str | None) -> None:
        request_id = request.request_id
        self._streams.request_ended(request_id)
        record = RequestFinished(
            step=max(self._steps.step, 0),
            ts=float(ts),
            policy=self._policy,
            req_id=request_id,
            job_id=request.job_id,
            status=status,
            finish_reason=reason,
            arrival_time=request.arrival_time,
            first_scheduled_time=request.times.first_scheduled,
            first_token_time=request.times.first_token,
            finished_time=request.times.finished,
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=request.num_output_tokens,
            num_cached_tokens=max(request.num_cached_tokens, 0),
            num_external_computed_tokens=request.num_external_computed_tokens,
            num_preemptions=request.num_preemptions,
            recomputed_tokens=self._effects.forget(request_id),
        )
        if self._sinks:
            for sink in self._sinks:
                sink.request_finished(record)
            record = replace(record)  # the trace says more, in a record of its own
        if self._records is not None:
            self._records.forget(request_id)
        num_prompt_blocks = self._prompt_blocks.pop(request_id, None)
        if self._writer is not None and self._writer.wants_events(self._steps.step):
            if num_prompt_blocks is not None:
                record.output_hash_runs = self._runs(request.block_hashes, num_prompt_blocks)
            self._writer.append_event(record)

    def pin_ended(self, ts: float, pin: EndedPin) -> None:
        """Record that blocks which a policy kept are free."""
        record = PinEnded(
            step=self._steps.step + 1,
            ts=float(ts),
            policy=self._policy,
            req_id=pin.request.request_id,
            job_id=pin.request.job_id,
            why=pin.why,
            pinned_time=pin.since,
            pinned_blocks=pin.num_blocks,
        )
        for sink in self._sinks:
            sink.pin_ended(record)
        if self._writer is not None and self._writer.wants_events(self._steps.step):
            self._writer.append_event(record)

    def prefix_looked_up(self, ts: float, step: int, request: RecordableRequest, local: int, external: int) -> None:
        """Record the hits of a request's first admission."""
        record = PrefixCacheLookup(
            step=step,
            ts=float(ts),
            policy=self._policy,
            req_id=request.request_id,
            job_id=request.job_id,
            local_hit_tokens=local,
            external_hit_tokens=external,
            total_hit_tokens=local + external,
            total_prompt_tokens=request.num_prompt_tokens,
            num_tokens=request.num_tokens,
            connector=self._connector,
            load_kv_async=self._effects.is_loaded(request.request_id),
        )
        if self._sinks:
            for sink in self._sinks:
                sink.prefix_looked_up(record)
            record = replace(record)  # the trace says more, in a record of its own
        if self._writer is not None and self._writer.wants_events(step):
            self._prompt_blocks[request.request_id] = len(request.block_hashes)
            record.prompt_hash_runs = self._runs(request.block_hashes)
            self._writer.append_event(record)

    # ---- what the host does

    def pause_changed(self, ts: float, state: PauseState) -> None:
        """Record a pause, or its end."""
        self._append(
            PauseChanged(step=self._steps.step + 1, ts=float(ts), policy=self._policy, state=state.name.lower())
        )

    def cache_reset(self, ts: float, cache: str, *, done: bool) -> None:
        """Record that a cache was to be forgotten."""
        self._append(CacheReset(step=self._steps.step + 1, ts=float(ts), policy=self._policy, cache=cache, done=done))

    def run_ended(self, ts: float) -> None:
        """Record that the run was ended, with whatever is unfinished. An engine without a step has no end."""
        if self._steps.step >= 0:
            self._append(TraceEnd(ts=float(ts), policy=self._policy))

    def _append(self, record: HostEvent) -> None:
        if self._records is not None:
            self._records.queues_changed()
        if self._writer is not None and self._writer.wants_events(self._steps.step):
            self._writer.append_event(record)

    def _runs(self, hashes: Sequence[BlockHash], start: int = 0) -> list[int] | None:
        """The ids of blocks from ``start`` on, numbered when the record is written; None for no blocks."""
        stop = len(hashes)
        return cast("list[int]", HashedBlocks(self._block_ids, hashes, start, stop)) if stop > start else None


def _span(item: RecordableItem) -> MultiModalSpan:
    return MultiModalSpan(mm_hash=item.mm_hash, offset=item.offset, length=item.length)


def _hash_of(salt: str) -> str:
    return blake2s(salt.encode(errors="surrogatepass"), digest_size=8).hexdigest()
