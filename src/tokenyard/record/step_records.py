"""Snapshot, decision and completion records from a live scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from math import inf
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from tokenyard.core.arrays import IntArray
from tokenyard.core.sched.outcomes import StepOutcomes
from tokenyard.record.facts import STEPS_IN_FLIGHT, Refusals, StepEffects, verified_drafts
from tokenyard.record.recordable import RecordableOutputs, RecordableRequest, RecordableState, RecordableStep
from tokenyard.record.request_records import Decoder, RequestRecords
from tokenyard.record.templates import (
    GAP,
    NUMBER,
    completion_template,
    decision_template,
    merge_gaps,
    more_fields,
    snapshot_template,
)
from tokenyard.record.writer import Lines, Piece, TraceWriter
from tokenyard.redaction import valid_text
from tokenyard.trace.facts import STEADY, Streams, running_consumed

# ---------------------------------------------------------------------------------------------------------------------
# The lists of request ids that make up most of a trace: what a step keeps of them, and the JSON that they become.
#
# A step has to pay for taking the ids only. The thread that writes makes the lists, once for all steps that have the
# same: in steady decode the running list stays for long.

_NO_FIELDS = more_fields()


def names_json(names: Sequence[str | None]) -> bytes:
    """A JSON list of ids."""
    try:
        return msgspec.json.encode(names)
    except UnicodeEncodeError:
        return msgspec.json.encode([name if name is None else valid_text(name) for name in names])


def counts_json(names: Sequence[str], counts: Sequence[int]) -> bytes:
    """A JSON object: each id with its number."""
    try:
        return msgspec.json.encode(dict(zip(names, counts, strict=True)))
    except UnicodeEncodeError:
        items = [
            b"%b:%d" % (msgspec.json.encode(valid_text(name)), count) for name, count in zip(names, counts, strict=True)
        ]
        return b"{" + b",".join(items) + b"}"


def _interleave(lists: Sequence[bytes], between: Sequence[bytes]) -> bytes:
    """Lists with what stands between them: one more than that."""
    parts = [b""] * (2 * len(lists) - 1)
    parts[::2], parts[1::2] = lists, between
    return b"".join(parts)


# ---------------------------------------------------------------------------------------------------------------------
# The queues in a snapshot.


class QueueIds(NamedTuple):
    """The ids and jobs of one queue, or of its first requests."""

    total: int
    """Requests in the queue."""
    ids: Sequence[str]
    jobs: Sequence[str | None]
    """Parallel to ``ids``; empty where none belongs to a job."""


EMPTY_QUEUE = QueueIds(0, (), ())
_id_of, _job_of = attrgetter("request_id"), attrgetter("job_id")


def queue_ids(total: int, requests: Iterable[RecordableRequest], limit: int | None) -> QueueIds:
    """The ids of a queue of ``total`` requests, at most ``limit`` of them."""
    kept = list(islice(requests, limit))
    jobs = list(map(_job_of, kept))
    return QueueIds(total, list(map(_id_of, kept)), jobs if any(jobs) else ())


def omitted_fields(running: QueueIds, waiting: QueueIds) -> bytes:
    """The end of a snapshot: how many its lists leave out."""
    left_out, waiting_left_out = running.total - len(running.ids), waiting.total - len(waiting.ids)
    if not (left_out or waiting_left_out):
        return _NO_FIELDS
    return more_fields(running_req_ids_omitted=left_out or None, waiting_req_ids_omitted=waiting_left_out or None)


class QueueLists(Piece):
    """The four lists of a snapshot."""

    running: QueueIds
    waiting: QueueIds
    between: Sequence[bytes]
    """What stands between the lists."""

    def make(self) -> bytes:
        running, waiting = self.running, self.waiting
        return _interleave(
            [names_json(each) for each in (running.ids, waiting.ids, running.jobs, waiting.jobs)], self.between
        )


# ---------------------------------------------------------------------------------------------------------------------
# Who got how many tokens in a decision.


class DecisionForm(NamedTuple):
    """What never changes in a decision, from its first list on."""

    between: Sequence[bytes]
    """What stands between the lists."""
    end: bytes
    """What stands behind them: ``%b`` stands for the tokens of the step."""
    limit: int | None
    """Most requests that a list names."""


class DecisionLists(Piece):
    """A decision from its first list to its end."""

    form: DecisionForm
    req_ids: Sequence[str]
    """All that are scheduled: first those that were running."""
    num_new_tokens: IntArray
    num_running: int
    running_ids: Sequence[str] | None
    """Ids of all running ones, as many as are named; None: some got no tokens."""
    new: Sequence[int]
    """Rows."""
    resumed: Sequence[int]
    """Rows."""
    preempted: Sequence[str]
    recomputed: int
    total: int
    """Tokens of the step."""
    block_size: int

    def make(self) -> bytes:
        limit, tokens, req_ids = self.form.limit, self.num_new_tokens, self.req_ids
        running, counts = self._named_running()
        # All of the resumed, as of the preempted: without them the trace would not show when a wait ended.
        named_new = self.new[:limit]
        new, resumed = [[req_ids[i] for i in rows] for rows in (named_new, self.resumed)]
        if new or resumed:
            counts += tokens[[*named_new, *self.resumed]].tolist()
        lists = [names_json(each) for each in (new, resumed, running, self.preempted)]
        lists.append(counts_json([*running, *new, *resumed], counts))
        num_omitted = self.num_running - len(running)
        more = more_fields(
            recomputed_tokens=self.recomputed if resumed else None,
            running_consumed_blocks=running_consumed(tokens[: self.num_running], self.block_size)
            if num_omitted
            else None,
            scheduled_running_req_ids_omitted=num_omitted or None,
            scheduled_new_req_ids_omitted=len(self.new) - len(new) or None,
        )
        return _interleave(lists, self.form.between) + self.form.end % (b"%d" % self.total) + more

    def _named_running(self) -> tuple[Sequence[str], list[int]]:
        """The running requests that are named, and their tokens."""
        limit, tokens, count = self.form.limit, self.num_new_tokens, self.num_running
        if limit and count > limit and tokens[limit:count].max() > tokens[:limit].min():
            # Who is in prefill took the step's tokens, and stands last among many: those are named that got most.
            chosen = np.sort(np.argsort(-tokens[:count], kind="stable")[:limit])
            return [self.req_ids[i] for i in chosen.tolist()], tokens[chosen].tolist()
        named = self.req_ids[:count][:limit] if self.running_ids is None else self.running_ids
        return named, tokens[: len(named)].tolist()


# ---------------------------------------------------------------------------------------------------------------------

_MOST_STEPS_UNREPORTED = 16
_BYTES_UNREPORTED = 128 * 1024
"""Steps and bytes, about, between two reports to the writer: a call costs a tenth of a step's records."""
_STEP_BYTES = 900
_NAME_BYTES = 24
"""Lengths of a step's records without their lists, and of a name in one, about."""


class StepRecords:
    """Writes the step records of one scheduler and, if wanted, its per-request records."""

    def __init__(self, writer: TraceWriter, decoder: Decoder, effects: StepEffects) -> None:
        self._writer = writer
        self._effects = effects
        self.step = -1
        """Number of the last step that was begun."""
        self._limit = writer.config.max_ids_per_step
        self._running = self._waiting = EMPTY_QUEUE
        self._running_version: int | None = None
        self._waiting_changed = True
        self._requests = RequestRecords(writer, decoder) if writer.config.request_records else None
        self._lines: Lines | None = None
        """The writer's; None until something is to be written."""
        self._started: dict[int, float] = {}
        """Step in flight that is written -> when it began."""
        self._last_end = -inf
        """When the last step that has completed did, written or not."""
        self._steps_unreported, self._report_after = 0, 1
        """Steps done since the last report to the writer, and how many there may be before the next."""
        self._snapshot, self._whole_snapshot = b"", b""
        """Templates of a snapshot: where nothing is pinned and there is no tier in CPU memory, and any."""
        self._names_of_lists: list[bytes] = []
        """What stands between the lists of a snapshot."""
        self._omitted = b""
        """What a snapshot says in its end: who is not named."""
        self._queues = QueueLists(EMPTY_QUEUE, EMPTY_QUEUE, ())
        """The queues as they are now."""
        self._step_bytes = 0
        """Length of the records of a step, about."""
        self._steady: DecisionLists | None = None
        """The decision that gives each running request one token; None until it is needed."""
        self._kept: DecisionLists | None = None
        """The last decision that gave each running request its tokens, with drafts among them; None if there was none
        since the running list changed."""
        policy = writer.config.policy
        self._decision, between, end = decision_template(policy)
        self._form = DecisionForm(between, end, self._limit)
        self._completion = completion_template(policy)
        self._verification = completion_template(
            policy, num_drafts=NUMBER, num_draft_tokens=NUMBER, num_accepted_tokens_per_pos=GAP
        )

    def queues_changed(self) -> None:
        """The waiting queues may hold other requests, or another order, though no more and no fewer than before."""
        self._waiting_changed = True

    def forget(self, request_id: str) -> None:
        """The request is gone."""
        if self._requests is not None:
            self._requests.forget(request_id)

    def step_started(self, ts: float, step: int, state: RecordableState) -> None:
        """Write the queues and the pool as they are before any decision, if the step is wanted."""
        self.step = step
        self._effects.min_need = None
        if step >= self._writer.all_before and not self._writer.wants_step(step):
            return
        version, num_free, num_cached, num_waiting, num_skipped, num_pinned, cpu_blocks = state.gauges()
        if (
            version != self._running_version
            or num_waiting != self._waiting.total
            or self._waiting_changed
            or (num_waiting and state.waiting_reorders)
        ):
            self._take_queues(version, num_waiting, state)
        self._started[step] = ts
        num_running = self._running.total
        lines = self._lines
        if lines is None:
            lines = self._lines = self._writer.waiting()
        if lines.is_open:
            lines.drop_unfinished()
        lines.is_open = True
        if not num_pinned and cpu_blocks is None:
            lines.numbers += (step, ts, num_free, num_running, num_waiting, num_cached, num_skipped)
            lines.pieces += (self._queues, self._omitted)
            lines.templates.append(self._snapshot)
        else:
            num_pinned_blocks, pinned_jobs = _pinned(state)
            lines.numbers += (step, ts, num_free, num_running, num_waiting, num_pinned, *(cpu_blocks or ()))
            lines.numbers += (num_pinned_blocks, num_cached, num_skipped)
            lines.pieces += (self._queues, pinned_jobs, self._omitted)
            lines.templates.append(self._whole_snapshot)
        lines.is_open = False
        if self._requests is not None:
            self._effects.min_need = self._requests.write(step, ts, state)

    def _take_queues(self, version: int, num_waiting: int, state: RecordableState) -> None:
        """Name the queues anew."""
        if version != self._running_version:
            self._running = queue_ids(len(state.running), state.running, self._limit)
            self._running_version = version
            self._steady = self._kept = None
        self._waiting = EMPTY_QUEUE
        if num_waiting:
            self._waiting = queue_ids(num_waiting, chain(state.skipped_waiting, state.waiting), self._limit)
        self._waiting_changed = False
        if not self._snapshot:
            self._make_templates(state)
        running, waiting = self._running, self._waiting
        self._queues = QueueLists(running, waiting, self._names_of_lists)
        self._omitted = omitted_fields(running, waiting)
        # The running ones are named three times: in both records of a step, and with their tokens.
        num_names = 3 * len(running.ids) + len(waiting.ids)
        self._step_bytes = _STEP_BYTES + _NAME_BYTES * num_names
        self._report_after = max(1, min(_MOST_STEPS_UNREPORTED, _BYTES_UNREPORTED // self._step_bytes))

    def _make_templates(self, state: RecordableState) -> None:
        policy = self._writer.config.policy
        self._snapshot, self._names_of_lists = merge_gaps(snapshot_template(policy, state, whole=False), 4)
        self._whole_snapshot, _ = merge_gaps(snapshot_template(policy, state, whole=True), 4)

    def step_decided(self, ts: float, output: RecordableStep, outcomes: StepOutcomes, state: RecordableState) -> None:
        """Write what was decided and what was refused, if the step is wanted."""
        step, total, num_running = output.step, output.total_num_scheduled_tokens, output.num_running
        is_wanted, recomputed, refused = step in self._started, 0, None
        # Every running request got one token, no other got any, none was preempted: as in the step before, mostly.
        is_steady = total == num_running == self._running.total and not output.preempted_req_ids
        if self._waiting.total or not (is_wanted and is_steady):
            recomputed, refused = self._look_closer(ts, output, outcomes)
        if not is_wanted:
            return
        if is_steady:
            lists = self._steady
            if lists is None:
                lists = self._steady = self._lists(output, recomputed, state.block_size)
        else:
            lists = self._repeated(output) or self._unsteady(output, recomputed, state.block_size)
        lines = self._lines
        assert lines is not None, "a decision follows its snapshot"
        if lines.is_open:
            lines.drop_unfinished()
        lines.is_open = True
        lines.numbers += (step, ts)
        lines.pieces.append(lists)
        lines.templates.append(self._decision)
        lines.is_open = False
        lines.num_bytes += self._step_bytes
        if refused is not None:
            lines.append(refused, refused.num_bytes)

    def _look_closer(self, ts: float, output: RecordableStep, outcomes: StepOutcomes) -> tuple[int, Refusals | None]:
        """Tokens that the step computes a second time, and its refusals, in a step in which one waits or comes."""
        ended = outcomes.admission
        moved = outcomes.preemptions or outcomes.skipped or output.num_running < len(output.req_ids)
        if moved:
            self._waiting_changed = True
        if moved or outcomes.not_scheduled or (ended is not None and ended.num_requests):
            return self._effects.of(ts, output, outcomes)
        return 0, None

    def _repeated(self, output: RecordableStep) -> DecisionLists | None:
        """The decision before, if it gave the same tokens to the same requests."""
        kept = self._kept
        if kept is None or not self._is_whole(output):
            return None
        return kept if np.array_equal(kept.num_new_tokens, output.num_new_tokens) else None

    def _is_whole(self, output: RecordableStep) -> bool:
        """Whether all that ran got tokens, and no request came or was preempted."""
        count = output.num_running
        return count == len(output.req_ids) == self._running.total and not output.preempted_req_ids

    def _unsteady(self, output: RecordableStep, recomputed: int, block_size: int) -> DecisionLists:
        """The decision of any step."""
        lists = self._lists(output, recomputed, block_size)
        if self._is_whole(output):
            self._kept = lists
        return lists

    def _lists(self, output: RecordableStep, recomputed: int, block_size: int) -> DecisionLists:
        running = self._running
        num_running = output.num_running
        return DecisionLists(
            form=self._form,
            req_ids=output.req_ids,
            num_new_tokens=output.num_new_tokens,
            num_running=num_running,
            running_ids=running.ids if num_running == running.total else None,
            new=output.admitted_new,
            resumed=output.admitted_resumed,
            preempted=output.preempted_req_ids,
            recomputed=recomputed,
            total=output.total_num_scheduled_tokens,
            block_size=block_size,
        )

    def step_completed(self, ts: float, output: RecordableStep, outputs: RecordableOutputs, streams: Streams) -> None:
        """Write that the model ran, if the step is wanted; hand what waits to the disk when it is time."""
        step, stats = output.step, outputs.scheduler_stats
        started = self._started.pop(step, None)
        if started is not None:
            lines = self._lines
            assert lines is not None, "a completion follows its snapshot"
            drafts = None
            if stats.spec_decoding_stats is not None:
                drafts = verified_drafts(stats.spec_decoding_stats)
            if lines.is_open:
                lines.drop_unfinished()
            lines.is_open = True
            lines.numbers += (step, ts, ts - max(started, self._last_end), outputs.num_sampled)
            if drafts is None:
                lines.templates.append(self._completion)
            else:
                lines.numbers += (drafts.num_drafts, drafts.num_draft_tokens)
                lines.pieces.append(msgspec.json.encode(drafts.num_accepted_tokens_per_pos))
                lines.templates.append(self._verification)
            lines.pieces.append(_streams_json(streams))
            lines.is_open = False
            if len(self._started) > STEPS_IN_FLIGHT:
                del self._started[min(self._started)]
        self._last_end = ts
        idle = not (stats.num_running_reqs or stats.num_waiting_reqs or stats.num_skipped_waiting_reqs)
        self._steps_unreported += 1
        if idle or self._steps_unreported >= self._report_after:
            self._writer.steps_done(self._steps_unreported, idle=idle, ts=ts)
            self._steps_unreported = 0


def _pinned(state: RecordableState) -> tuple[int, bytes]:
    """Blocks and jobs of the pinned requests."""
    return sum(map(state.num_blocks_of, state.pinned)), names_json([request.job_id for request in state.pinned])


_STEADY = more_fields()


def _streams_json(streams: Streams) -> bytes:
    """The end of a completion's line: whose tokens began, paused or went on."""
    if streams is STEADY:
        return _STEADY
    began, paused, resumed = (msgspec.Raw(names_json(each)) if each else None for each in streams)
    return more_fields(first_token_req_ids=began, paused_req_ids=paused, resumed_req_ids=resumed)
