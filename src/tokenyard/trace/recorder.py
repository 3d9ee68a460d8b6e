"""The recorder: watches a scheduler and turns what it sees into records for the trace and numbers for statistics.

Both are optional. Statistics need counts only and never cause an id list to be made; the trace embeds lists that are
made anew only when a queue has changed.
"""

from __future__ import annotations

from tokenyard.request import FinishReason, Request
from tokenyard.sched.observer import SchedulerState
from tokenyard.sched.output import EngineOutputs, SchedulerOutput
from tokenyard.sched.reasons import Reason, StepOutcomes
from tokenyard.trace.facts import FactSink, StepFacts, running_consumed
from tokenyard.trace.outcomes import outcome_record
from tokenyard.trace.request_records import STATUS_TEXT
from tokenyard.trace.schema import (
    AdmissionOutcome,
    PrefixCacheLookup,
    RequestArrived,
    RequestFinished,
    StepCompleted,
    TraceStart,
)
from tokenyard.trace.step_records import StepRecords
from tokenyard.trace.text import Decoder
from tokenyard.trace.writer import TraceWriter

__all__ = ["TraceRecorder"]

_STEPS_IN_FLIGHT = 64
"""Starts of steps remembered until they complete; hosts have one or two in flight."""


class TraceRecorder:
    """A ``StepObserver`` that feeds a trace writer, statistics, or both.

    ``start`` describes the run (see ``describe_run``); ``decoder`` turns token ids into text and is made from the
    writer's settings unless given. The writer stays the caller's to close.
    """

    def __init__(
        self,
        writer: TraceWriter | None = None,
        *sinks: FactSink,
        start: TraceStart | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        self._writer = writer
        self._sinks = sinks
        self._policy = start.policy if start is not None else None
        self._connector = ((start.config or {}) if start is not None else {}).get("kv_transfer", {}).get("kv_connector")
        self._limit: int | None = 0
        """Most requests named per list of an outcome: statistics need none."""
        self._records: StepRecords | None = None
        if writer is not None:
            self._policy = writer.config.policy
            self._limit = writer.config.max_ids_per_step
            self._records = StepRecords(writer, decoder or Decoder(writer.config.tokenizer))
            if start is not None:
                writer.begin(start)
        if start is not None:
            for sink in sinks:
                sink.trace_started(start)
        self._before: tuple[float, int, int, int, tuple[int, int] | None] = (0.0, 0, 0, 0, None)
        """Of the step that is being decided, before any decision: when it began, free blocks, running, waiting, and
        free and total blocks of an offload tier."""
        self._wanted = False
        self._step = -1
        self._started: dict[int, tuple[float, bool]] = {}
        """Step in flight -> when it began, and whether it is written."""
        self._lost: dict[str, int] = {}
        """Preempted request -> tokens it had computed."""
        self._recomputed: dict[str, int] = {}
        """Request -> tokens computed a second time."""
        self._loading: set[str] = set()
        """Requests whose external tokens were, or are being, loaded while they waited."""

    # ---- requests

    def request_arrived(self, ts: float, request: Request) -> None:
        """Record an arrival."""
        if self._records is not None:
            self._records.queues_changed()
        record = RequestArrived(
            step=self._step + 1,
            ts=float(ts),
            policy=self._policy,
            req_id=request.request_id,
            job_id=request.job_id,
            arrival_time=request.arrival_time,
            priority=request.priority,
            num_prompt_tokens=request.num_prompt_tokens,
            max_tokens=request.max_tokens,
        )
        for sink in self._sinks:
            sink.request_arrived(record)
        if self._writer is not None and self._writer.wants_events(self._step):
            self._writer.append(record)

    def request_finished(self, ts: float, request: Request) -> None:
        """Record an end, and forget the request."""
        request_id = request.request_id
        self._lost.pop(request_id, None)
        self._loading.discard(request_id)
        reason = FinishReason.of(request.status)
        record = RequestFinished(
            step=max(self._step, 0),
            ts=float(ts),
            policy=self._policy,
            req_id=request_id,
            job_id=request.job_id,
            status=STATUS_TEXT[request.status],
            finish_reason=reason.value if reason is not None else None,
            arrival_time=request.arrival_time,
            first_scheduled_time=request.times.first_scheduled,
            first_token_time=request.times.first_token,
            finished_time=request.times.finished,
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=request.num_output_tokens,
            num_cached_tokens=max(request.num_cached_tokens, 0),
            num_external_computed_tokens=request.num_external_computed_tokens,
            num_preemptions=request.num_preemptions,
            recomputed_tokens=self._recomputed.pop(request_id, 0),
        )
        for sink in self._sinks:
            sink.request_finished(record)
        if self._records is not None:
            self._records.forget(request_id)
        if self._writer is not None and self._writer.wants_events(self._step):
            self._writer.append(record)

    # ---- steps

    def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
        """Take the snapshot."""
        ts = float(ts)  # a clock of numpy's would not be written as JSON
        self._step = step
        self._wanted = self._writer is not None and self._writer.wants_step(step)
        self._started[step] = ts, self._wanted
        if self._sinks:
            waiting = len(state.waiting) + len(state.skipped_waiting)
            self._before = ts, state.num_free_blocks, len(state.running), waiting, state.cpu_blocks
        if self._wanted:
            assert self._records is not None
            self._records.snapshot(step, ts, state)

    def prefix_looked_up(self, ts: float, step: int, request: Request, local: int, external: int) -> None:
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
            load_kv_async=request.request_id in self._loading,
        )
        for sink in self._sinks:
            sink.prefix_looked_up(record)
        if self._writer is not None and self._writer.wants_events(step):
            self._writer.append(record)

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: StepOutcomes, state: SchedulerState) -> None:
        """Record the decision and what it refused."""
        ts = float(ts)
        for each in outcomes.skipped:
            if each.reason is Reason.ASYNC_KV_LOAD_STARTED and each.request_id is not None:
                self._loading.add(each.request_id)
        moved = bool(outcomes.preemptions) or output.num_running < len(output.requests)
        recomputed = self._count_recomputed(output, outcomes) if moved else 0
        refused = outcome_record(output.step, ts, self._policy, outcomes, self._limit)
        if self._sinks:
            self._tell(output, refused, recomputed, state)
        if self._records is not None:
            if self._wanted:
                self._records.decision(ts, output, recomputed, state.block_size)
                if refused is not None:
                    self._records.outcome(refused)
            if moved or outcomes.skipped:
                self._records.queues_changed()

    def _tell(
        self,
        output: SchedulerOutput,
        refused: AdmissionOutcome | None,
        recomputed: int,
        state: SchedulerState,
    ) -> None:
        """Hand the facts of the step on."""
        ts, free_blocks, running, waiting, cpu_blocks = self._before
        cpu_free, cpu_total = cpu_blocks or (None, None)
        num_scheduled, total = len(output.requests), output.total_num_scheduled_tokens
        resumed = len(output.admitted_resumed)
        consumed = 0
        if total > num_scheduled:  # not one token each
            consumed = running_consumed(output.num_new_tokens[: output.num_running], state.block_size)
        facts = StepFacts(
            step=output.step,
            ts=ts,
            policy=self._policy,
            free_blocks=free_blocks,
            total_blocks=state.num_total_blocks,
            cpu_free_blocks=cpu_free,
            cpu_total_blocks=cpu_total,
            token_budget=state.max_num_scheduled_tokens,
            max_running=state.max_num_running_reqs,
            num_running=running,
            num_waiting=waiting,
            num_new=num_scheduled - output.num_running - resumed,
            num_resumed=resumed,
            num_preempted=len(output.preempted_req_ids),
            token_sum=total,
            running_consumed=consumed,
            recomputed_tokens=recomputed,
            outcome=refused,
        )
        for sink in self._sinks:
            sink.step_decided(facts)

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        """Record that the model ran."""
        ts, step = float(ts), output.step
        started, wanted = self._started.pop(step, (ts, False))
        if len(self._started) > _STEPS_IN_FLIGHT:
            self._started.pop(min(self._started))
        num_sampled = len(outputs.requests)  # a request is there because it has at least one token
        if outputs.tokens.shape[1] > 1:
            num_sampled = int(outputs.num_tokens.sum())
        for sink in self._sinks:
            sink.step_completed(
                StepCompleted(
                    step=step,
                    ts=ts,
                    policy=self._policy,
                    step_seconds=ts - started,
                    num_sampled_tokens=num_sampled,
                )
            )
        if self._writer is not None:
            assert self._records is not None
            if wanted:
                self._records.completion(step, ts, ts - started, num_sampled)
            stats = outputs.scheduler_stats
            idle = not (stats.num_running_reqs or stats.num_waiting_reqs or stats.num_skipped_waiting_reqs)
            self._writer.step_done(self._records.take_size(), idle=idle, ts=ts)

    def _count_recomputed(self, output: SchedulerOutput, outcomes: StepOutcomes) -> int:
        """Tokens that this step's resumed requests lost in their preemption and did not find in the cache."""
        for victim in outcomes.preemptions:
            self._lost[victim.request_id] = self._lost.get(victim.request_id, 0) + victim.num_computed_tokens
        total = 0
        for i in output.admitted_resumed:
            request_id = output.requests[i].request_id
            again = max(self._lost.pop(request_id, 0) - int(output.num_computed[i]), 0)
            self._recomputed[request_id] = self._recomputed.get(request_id, 0) + again
            total += again
        return total
