"""The records that every step writes, and the templates they are written by."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import inf
from typing import Any

import msgspec
import numpy as np

from tokenyard.core.columns import IntArray, same
from tokenyard.core.sched.outcomes import StepOutcomes
from tokenyard.record.facts import STEPS_IN_FLIGHT, StepEffects, verified_drafts
from tokenyard.record.recordable import RecordableOutputs, RecordableState, RecordableStep
from tokenyard.record.request_records import Decoder, Names, QueueIds, RequestRecords, json_list, json_map
from tokenyard.record.writer import Lines, TraceWriter
from tokenyard.trace.facts import running_consumed
from tokenyard.trace.schema import AdmissionOutcome, StepCompleted, StepDecision, StepSnapshot

# ---------------------------------------------------------------------------------------------------------------------
# Records as templates, for the three records that every step writes.
#
# A template is the encoding of a schema record with gaps where values will stand: names and order of the fields come
# from the schema alone. Filling in the templates of many steps together costs a fraction of making and encoding their
# records.

_GAP = b"\0"
_NUMBER = b"\1"
_LATER = b"\2"
NUMBER: Any = msgspec.Raw(_NUMBER)
"""Marks the place of a number in a record's field."""
GAP: Any = msgspec.Raw(_GAP)
"""A piece of JSON goes here."""
LATER: Any = msgspec.Raw(_LATER)
"""Something that ``filled`` puts into the template itself, because it seldom changes."""


def template_of(record: msgspec.Struct) -> bytes:
    """The encoding of ``record`` without its closing brace, as ``Lines`` wants it."""
    return msgspec.json.encode(record)[:-1].replace(b"%", b"%%").replace(_NUMBER, b"%b")


def with_numbers(template: bytes, *values: int) -> bytes:
    """``template`` with these numbers in the places of ``LATER``."""
    for value in values:
        template = template.replace(_LATER, b"%d" % value, 1)
    return template


def merge_gaps(template: bytes, count: int) -> tuple[bytes, list[bytes]]:
    """``template`` with one gap in place of its first ``count``, and what stood between these: names of fields."""
    first, *rest = template.split(_GAP)
    return _GAP.join((first, *rest[count - 1 :])), rest[: count - 1]


def more_fields(**fields: int | None) -> bytes:
    """What to put behind a template: the fields that are not None, the closing brace and the line's end."""
    given = {name: value for name, value in fields.items() if value is not None}
    return b"," + msgspec.json.encode(given)[1:] + b"\n" if given else b"}\n"


# ---------------------------------------------------------------------------------------------------------------------
# The templates of the records that every step writes.


def snapshot_template(policy: str, state: RecordableState, *, whole: bool) -> bytes:
    """The template of a snapshot: the scheduler's limits, which do not change, are filled in; queue lengths are LATER.

    ``whole`` has gaps for what is pinned; without it nothing is.
    """
    cpu = None if state.cpu_blocks is None else NUMBER
    return template_of(
        StepSnapshot(
            step=NUMBER,
            ts=NUMBER,
            policy=policy,
            free_blocks=NUMBER,
            total_blocks=state.num_total_blocks,
            num_running=LATER,
            num_waiting=LATER,
            num_pinned=NUMBER if whole else 0,
            running_req_ids=GAP,
            waiting_req_ids=GAP,
            running_job_ids=GAP,
            waiting_job_ids=GAP,
            cpu_free_blocks=cpu,
            cpu_total_blocks=cpu,
            pinned_blocks=NUMBER if whole else 0,
            pinned_job_ids=GAP if whole else [],
            max_num_scheduled_tokens=state.max_num_scheduled_tokens,
            max_num_running_reqs=state.max_num_running_reqs,
            gpu_cached_blocks=NUMBER,
            num_skipped_waiting=NUMBER,
        )
    )


def decision_template(policy: str, total: Any) -> bytes:
    """The template of a decision, with ``total`` for the tokens scheduled: LATER or NUMBER."""
    return template_of(
        StepDecision(
            step=NUMBER,
            ts=NUMBER,
            policy=policy,
            scheduled_new_req_ids=GAP,
            scheduled_resumed_req_ids=GAP,
            scheduled_running_req_ids=GAP,
            preempted_req_ids=GAP,
            num_scheduled_tokens=GAP,
            total_scheduled_tokens=total,
        )
    )


def completion_template(policy: str, **drafts: Any) -> bytes:
    """The whole line; ``drafts``: further fields, for steps that verified any."""
    record = StepCompleted(
        step=NUMBER, ts=NUMBER, policy=policy, step_seconds=NUMBER, num_sampled_tokens=NUMBER, **drafts
    )
    return template_of(record) + b"}\n"


# ---------------------------------------------------------------------------------------------------------------------
# Snapshot, decision and completion records from a live scheduler, with the id lists kept from step to step.

_MOST_STEPS_UNREPORTED = 16
_BYTES_UNREPORTED = 128 * 1024
"""Steps and bytes, about, between two reports to the writer: a call costs a tenth of a step's records."""
_STEP_BYTES = 900
"""Length of a step's records without their lists, about."""


class StepRecords:
    """Writes the step records of one scheduler and, if wanted, its per-request records."""

    def __init__(self, writer: TraceWriter, decoder: Decoder, effects: StepEffects) -> None:
        self._writer = writer
        self._effects = effects
        self.step = -1
        """Number of the last step that was begun."""
        limit = writer.config.max_ids_per_step
        self._limit = limit
        self._names = Names()
        self._running = QueueIds(self._names, limit)
        self._running_version: int | None = None
        self._waiting = QueueIds(self._names, limit)
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
        self._template, self._whole_template = b"", b""
        """Templates of a snapshot: where nothing is pinned and there is no tier in CPU memory, and any."""
        self._names_of_lists: list[bytes] = []
        """What stands between the lists of a snapshot."""
        self._snapshot, self._whole_snapshot = b"", b""
        """Filled in as the queues are now; the second only when it is needed."""
        self._queues, self._queue_bytes = b"", 0
        self._steady: tuple[bytes, bytes] | None = None
        """Template and lists of the decision that gives each running request one token; None until it is needed."""
        self._kept: tuple[IntArray, bytes, bytes] | None = None
        """The last decision that gave each running request its tokens, with drafts among them, and template and lists
        of it; None if there was none since the running list changed."""
        self._decision, self._between = merge_gaps(decision_template(writer.config.policy, NUMBER), 5)
        self._steady_decision, _ = merge_gaps(decision_template(writer.config.policy, LATER), 5)
        self._completion = completion_template(writer.config.policy)
        self._verification = completion_template(
            writer.config.policy, num_drafts=NUMBER, num_draft_tokens=NUMBER, num_accepted_tokens_per_pos=GAP
        )

    def queues_changed(self) -> None:
        """The waiting queues may hold other requests, or another order, though no more and no fewer than before."""
        self._waiting_changed = True

    def forget(self, request_id: str) -> None:
        """The request is gone."""
        self._names.forget(request_id)
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
            self._take_queues(num_waiting, state)
        self._started[step] = ts
        lines = self._lines
        if lines is None:
            lines = self._lines = self._writer.waiting()
        if lines.is_open:
            lines.drop_unfinished()
        lines.is_open = True
        if not num_pinned and cpu_blocks is None:
            lines.numbers += (step, ts, num_free, num_cached, num_skipped)
            lines.pieces.append(self._queues)
            lines.templates.append(self._snapshot)
        else:
            num_pinned_blocks, pinned_jobs = self._pinned(state)
            lines.numbers += (step, ts, num_free, num_pinned, *(cpu_blocks or ()))
            lines.numbers += (num_pinned_blocks, num_cached, num_skipped)
            lines.pieces += (self._queues, pinned_jobs)
            self._whole_snapshot = self._whole_snapshot or self._fill(self._whole_template)
            lines.templates.append(self._whole_snapshot)
        lines.is_open = False
        if self._requests is not None:
            self._effects.min_need = self._requests.write(step, ts, state)

    def _pinned(self, state: RecordableState) -> tuple[int, bytes]:
        """Blocks and jobs of the pinned requests."""
        jobs = self._names.jobs
        return sum(map(state.num_blocks_of, state.pinned)), json_list(
            [jobs[request.job_id] for request in state.pinned]
        )

    def _take_queues(self, num_waiting: int, state: RecordableState) -> None:
        """Name the queues anew, and put the middle of the snapshot together: four lists that change with them."""
        running, waiting = self._running, self._waiting
        if state.running_version != self._running_version:
            running.take(len(state.running), state.running)
            self._running_version = state.running_version
            self._steady = self._kept = None
        waiting.take(num_waiting, chain(state.skipped_waiting, state.waiting))
        self._waiting_changed = False
        if not self._template:
            policy = self._writer.config.policy
            self._template, self._names_of_lists = merge_gaps(snapshot_template(policy, state, whole=False), 4)
            self._whole_template, _ = merge_gaps(snapshot_template(policy, state, whole=True), 4)
        self._snapshot, self._whole_snapshot = self._fill(self._template), b""
        self._queues = _interleave((running.ids, waiting.ids, running.jobs, waiting.jobs), self._names_of_lists)
        self._queue_bytes = len(self._queues)
        self._report_after = max(1, min(_MOST_STEPS_UNREPORTED, _BYTES_UNREPORTED // (2 * self._queue_bytes)))

    def _fill(self, template: bytes) -> bytes:
        """A snapshot's template, as long as the queues stay as they are."""
        running, waiting = self._running, self._waiting
        return with_numbers(template, running.total, waiting.total) + more_fields(
            running_req_ids_omitted=running.omitted or None, waiting_req_ids_omitted=waiting.omitted or None
        )

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
        numbers: tuple[float, ...] = step, ts
        if is_steady:
            template, lists = self._steady or self._make_steady()
        else:
            template, lists = self._repeated(output) or self._unsteady(output, recomputed, state.block_size)
            numbers = step, ts, total
        lines = self._lines
        assert lines is not None, "a decision follows its snapshot"
        if lines.is_open:
            lines.drop_unfinished()
        lines.is_open = True
        lines.numbers += numbers
        lines.pieces.append(lists)
        lines.templates.append(template)
        lines.is_open = False
        lines.num_bytes += len(lists) + self._queue_bytes + _STEP_BYTES
        if refused is not None:
            self._writer.append(refused)

    def _look_closer(
        self, ts: float, output: RecordableStep, outcomes: StepOutcomes
    ) -> tuple[int, AdmissionOutcome | None]:
        """Tokens that the step computes a second time, and its refusals, in a step in which one waits or comes."""
        ended = outcomes.admission
        moved = outcomes.preemptions or outcomes.skipped or output.num_running < len(output.req_ids)
        if moved:
            self._waiting_changed = True
        if moved or outcomes.not_scheduled or (ended is not None and ended.num_requests):
            return self._effects.of(ts, output, outcomes)
        return 0, None

    def _make_steady(self) -> tuple[bytes, bytes]:
        running = self._running
        lists = _interleave((b"[]", b"[]", running.ids, b"[]", running.one_each()), self._between)
        template = with_numbers(self._steady_decision, running.total)
        self._steady = template + more_fields(**_left_out(running.omitted, 0)), lists
        return self._steady

    def _repeated(self, output: RecordableStep) -> tuple[bytes, bytes] | None:
        """Template and lists of a decision that gave the same tokens to the same requests as the one before it."""
        if self._kept is None or not self._is_whole(output):
            return None
        tokens, template, lists = self._kept
        return (template, lists) if same(tokens, output.num_new_tokens) else None

    def _is_whole(self, output: RecordableStep) -> bool:
        """Whether all that ran got tokens, and no request came or was preempted."""
        count = output.num_running
        return count == len(output.req_ids) == self._running.total and not output.preempted_req_ids

    def _unsteady(self, output: RecordableStep, recomputed: int, block_size: int) -> tuple[bytes, bytes]:
        """Template and lists of the decision of any step."""
        limit, tokens, req_ids, ids = self._limit, output.num_new_tokens, output.req_ids, self._names.ids
        running, count, counted = self._running, output.num_running, tokens
        if limit and count > limit and tokens[limit:count].max() > tokens[:limit].min():
            # Who is in prefill took the step's tokens, and stands last among many: those are named that got most.
            chosen = np.sort(np.argsort(-tokens[:count], kind="stable")[:limit])
            running, counted = QueueIds(self._names, limit), tokens[chosen]
            running.take_ids([req_ids[i] for i in chosen.tolist()], count)
        elif count != running.total:
            # Some running request got nothing; who is scheduled is a part of the running list, in its order.
            running = QueueIds(self._names, limit)
            running.take_ids(req_ids[:count], count)
        items = running.items(counted)
        admitted: list[bytes] = []
        resumed, new = list(output.admitted_resumed), output.admitted_new
        # All of the resumed, as of the preempted: without them the trace would not show when a wait ended.
        for rows in (new[:limit], resumed):
            names = [ids[req_ids[i]] for i in rows]
            counts = tokens[rows].tolist() if rows else []
            items += [b"%b:%d" % (name, count) for name, count in zip(names, counts, strict=True)]
            admitted.append(json_list(names))
        preempted = json_list([ids[request_id] for request_id in output.preempted_req_ids])
        consumed = running_consumed(tokens[:count], block_size) if running.omitted else 0
        template = self._decision + more_fields(
            recomputed_tokens=recomputed if output.admitted_resumed else None,
            **_left_out(running.omitted, consumed),
            scheduled_new_req_ids_omitted=self._beyond(len(new)),
        )
        lists = _interleave((*admitted, running.ids, preempted, json_map(items)), self._between)
        if self._is_whole(output):
            self._kept = tokens, template, lists
        return template, lists

    def _beyond(self, count: int) -> int | None:
        return count - self._limit if self._limit is not None and count > self._limit else None

    def step_completed(self, ts: float, output: RecordableStep, outputs: RecordableOutputs) -> None:
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
            lines.is_open = False
            if len(self._started) > STEPS_IN_FLIGHT:
                del self._started[min(self._started)]
        self._last_end = ts
        idle = not (stats.num_running_reqs or stats.num_waiting_reqs or stats.num_skipped_waiting_reqs)
        self._steps_unreported += 1
        if idle or self._steps_unreported >= self._report_after:
            self._writer.steps_done(self._steps_unreported, idle=idle, ts=ts)
            self._steps_unreported = 0


def _interleave(lists: Sequence[bytes], between: Sequence[bytes]) -> bytes:
    """Lists with what stands between them: one more than that."""
    parts = [b""] * (2 * len(lists) - 1)
    parts[::2], parts[1::2] = lists, between
    return b"".join(parts)


def _left_out(omitted: int, consumed: int) -> dict[str, int]:
    """What a decision says when running requests are left out of its lists."""
    return {"running_consumed_blocks": consumed, "scheduled_running_req_ids_omitted": omitted} if omitted else {}
