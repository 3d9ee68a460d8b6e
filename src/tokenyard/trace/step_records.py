"""Snapshot, decision and completion records from a live scheduler, with the id lists kept from step to step."""

from __future__ import annotations

from itertools import chain

from tokenyard.sched.observer import SchedulerState
from tokenyard.sched.output import SchedulerOutput
from tokenyard.trace.facts import running_consumed
from tokenyard.trace.formats import DECIMAL, FLOAT, HOLE, TEXT, format_of, more_fields
from tokenyard.trace.fragments import Names, QueueFragment, json_list, json_map
from tokenyard.trace.lines import Piece
from tokenyard.trace.request_records import RequestRecords
from tokenyard.trace.schema import AdmissionOutcome, StepCompleted, StepDecision, StepSnapshot
from tokenyard.trace.text import Decoder
from tokenyard.trace.writer import TraceWriter

__all__ = ["StepRecords"]

_END = b"}\n"
_STEP_BYTES = 900
"""Length of a step's records without their lists, about."""


class StepRecords:
    """Writes the step records of one scheduler and, if wanted, its per-request records."""

    def __init__(self, writer: TraceWriter, decoder: Decoder) -> None:
        self._writer = writer
        limit = writer.config.max_ids_per_step
        self._limit = limit
        self._names = Names()
        self._running = QueueFragment(self._names, limit)
        self._running_version: int | None = None
        self._waiting = QueueFragment(self._names, limit)
        self._waiting_changed = True
        self._requests = RequestRecords(writer, decoder) if writer.config.request_records else None
        self._snapshot_head = self._snapshot_tail = self._snapshot_end = self._queues = b""
        self._pieces: list[Piece] | None = None
        """The writer's; None until something is to be written."""
        self._size = 0
        self._steady: tuple[bytes, bytes] | None = None
        """Middle and end of the decision that gives each running request one token; None until it is needed."""
        self._decision = _decision_format(writer.config.policy)
        self._completion = _completion_format(writer.config.policy)

    def queues_changed(self) -> None:
        """The waiting queues may hold other requests, or another order, though no more and no fewer than before."""
        self._waiting_changed = True

    def forget(self, request_id: str) -> None:
        """The request is gone."""
        self._names.forget(request_id)
        if self._requests is not None:
            self._requests.forget(request_id)

    def snapshot(self, step: int, ts: float, state: SchedulerState) -> None:
        """Write the queues and the pool as they are before any decision."""
        skipped, waiting = state.skipped_waiting, state.waiting
        num_skipped = len(skipped)
        num_waiting = num_skipped + len(waiting)
        version = state.running_version
        if num_waiting and state.waiting_reorders:
            self._waiting_changed = True
        if version != self._running_version or self._waiting_changed or num_waiting != self._waiting.total:
            if version != self._running_version:
                self._running.take(len(state.running), state.running)
                self._running_version = version
                self._steady = None
            self._waiting.take(num_waiting, chain(skipped, waiting))
            self._waiting_changed = False
            self._join_queues(state)
        num_pinned, pinned_blocks, pinned_jobs = len(state.pins), 0, b"[]"
        if num_pinned:
            pinned_blocks = sum(map(state.num_blocks_of, state.pins))
            pinned_jobs = json_list([self._names.jobs[request.job_id] for request in state.pins])
        line = self._snapshot_head, (step, ts, state.num_free_blocks, self._running.total, num_waiting, num_pinned)
        rest = (pinned_blocks, pinned_jobs, state.num_cached_blocks, num_skipped)
        cpu = state.cpu_blocks
        tail = self._snapshot_tail, rest if cpu is None else (*cpu, *rest)
        if self._pieces is None:
            self._pieces = self._writer.pieces()
        self._pieces += (line, self._queues, tail, self._snapshot_end)
        self._size += len(self._queues)
        if self._requests is not None:
            self._requests.write(step, ts, state)

    def _join_queues(self, state: SchedulerState) -> None:
        """Put the middle of the snapshot together: the four lists, which change together with the queues."""
        running, waiting = self._running, self._waiting
        head, to_waiting, to_running_jobs, to_waiting_jobs, tail = _snapshot_format(self._writer.config.policy, state)
        self._snapshot_head, self._snapshot_tail = head, tail
        self._queues = b"".join(
            (running.ids, to_waiting, waiting.ids, to_running_jobs, running.jobs, to_waiting_jobs, waiting.jobs)
        )
        self._snapshot_end = more_fields(
            running_req_ids_omitted=running.omitted or None, waiting_req_ids_omitted=waiting.omitted or None
        )

    def decision(self, ts: float, output: SchedulerOutput, recomputed: int, block_size: int) -> None:
        """Write what was decided; to be called after the snapshot of the same step."""
        total, running = output.total_num_scheduled_tokens, self._running
        if total == output.num_running == running.total:
            # Every running request got one token, and nobody else got any: as in the step before, mostly.
            if self._steady is None:
                lists = self._lists(b"[]", b"[]", running.ids, b"[]", running.one_each())
                self._steady = lists, more_fields(**_left_out(running.omitted, 0))
            middle, end = self._steady
        else:
            middle, end = self._unsteady(output, recomputed, block_size)
        line = self._decision[0], (output.step, ts)
        tail = self._decision[-1], (total,)
        assert self._pieces is not None, "a decision follows its snapshot"
        self._pieces += (line, middle, tail, end)
        self._size += len(middle)

    def _lists(self, *lists: bytes) -> bytes:
        """The middle of a decision: new, resumed, running and preempted ids, tokens."""
        _, to_resumed, to_running, to_preempted, to_tokens, _ = self._decision
        new, resumed, running, preempted, tokens = lists
        return b"".join((new, to_resumed, resumed, to_running, running, to_preempted, preempted, to_tokens, tokens))

    def _unsteady(self, output: SchedulerOutput, recomputed: int, block_size: int) -> tuple[bytes, bytes]:
        """Middle and end of the decision of any step."""
        limit, tokens, requests, ids = self._limit, output.num_new_tokens, output.requests, self._names.ids
        running = self._running
        if output.num_running != running.total:
            # Some running request got nothing; who is scheduled is a part of the running list, in its order.
            running = QueueFragment(self._names, limit)
            running.take(output.num_running, requests[: output.num_running])
        items = running.items(tokens)
        admitted: list[bytes] = []
        # All of the resumed, as of the preempted: without them nobody could tell when a wait ended.
        for rows in (output.admitted_new[:limit], output.admitted_resumed):
            names = [ids[requests[i].request_id] for i in rows]
            items += [b"%b:%d" % (name, tokens[i]) for name, i in zip(names, rows, strict=True)]
            admitted.append(json_list(names))
        preempted = json_list([ids[request_id] for request_id in output.preempted_req_ids])
        consumed = running_consumed(tokens[: output.num_running], block_size) if running.omitted else 0
        end = more_fields(
            recomputed_tokens=recomputed if output.admitted_resumed else None,
            **_left_out(running.omitted, consumed),
            scheduled_new_req_ids_omitted=self._beyond(len(output.admitted_new)),
        )
        return self._lists(*admitted, running.ids, preempted, json_map(items)), end

    def _beyond(self, count: int) -> int | None:
        return count - self._limit if self._limit is not None and count > self._limit else None

    def outcome(self, record: AdmissionOutcome) -> None:
        """Write what the step refused."""
        self._writer.append(record)

    def completion(self, step: int, ts: float, seconds: float, num_sampled: int) -> None:
        """Write that the model ran."""
        assert self._pieces is not None, "a completion follows its snapshot"
        self._pieces.append((self._completion, (step, ts, seconds, num_sampled)))

    def take_size(self) -> int:
        """Bytes written since the last call, about."""
        size, self._size = self._size + _STEP_BYTES, 0
        return size


def _left_out(omitted: int, consumed: int) -> dict[str, int]:
    """What a decision says when running requests are left out of its lists."""
    return {"running_consumed_blocks": consumed, "scheduled_running_req_ids_omitted": omitted} if omitted else {}


def _snapshot_format(policy: str, state: SchedulerState) -> list[bytes]:
    """With the limits of the scheduler, which do not change, filled in."""
    cpu = None if state.cpu_blocks is None else DECIMAL
    return format_of(
        StepSnapshot(
            step=DECIMAL,
            ts=FLOAT,
            policy=policy,
            free_blocks=DECIMAL,
            total_blocks=state.num_total_blocks,
            num_running=DECIMAL,
            num_waiting=DECIMAL,
            num_pinned=DECIMAL,
            running_req_ids=HOLE,
            waiting_req_ids=HOLE,
            running_job_ids=HOLE,
            waiting_job_ids=HOLE,
            cpu_free_blocks=cpu,
            cpu_total_blocks=cpu,
            pinned_blocks=DECIMAL,
            pinned_job_ids=TEXT,
            max_num_scheduled_tokens=state.max_num_scheduled_tokens,
            max_num_running_reqs=state.max_num_running_reqs,
            gpu_cached_blocks=DECIMAL,
            num_skipped_waiting=DECIMAL,
        )
    )


def _decision_format(policy: str) -> list[bytes]:
    return format_of(
        StepDecision(
            step=DECIMAL,
            ts=FLOAT,
            policy=policy,
            scheduled_new_req_ids=HOLE,
            scheduled_resumed_req_ids=HOLE,
            scheduled_running_req_ids=HOLE,
            preempted_req_ids=HOLE,
            num_scheduled_tokens=HOLE,
            total_scheduled_tokens=DECIMAL,
        )
    )


def _completion_format(policy: str) -> bytes:
    record = StepCompleted(step=DECIMAL, ts=FLOAT, policy=policy, step_seconds=FLOAT, num_sampled_tokens=DECIMAL)
    return format_of(record)[0] + _END
