"""What a step decides, in order: running pass, admission pass, output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tokenyard.core.columns import NO_ROWS, IntArray, below, extended, frozen, summed
from tokenyard.core.config import PauseState
from tokenyard.core.params import TokenIds
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.admission import AdmissionPass
from tokenyard.core.sched.candidate import Candidate, ScheduledRows, StepBounds, StepBudget
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.deadlocks import AdmissionDeadlock, EncoderDeadlock
from tokenyard.core.sched.features.grammars import grammar_rows
from tokenyard.core.sched.lifecycle import Lifecycle
from tokenyard.core.sched.observer import ObserverGate
from tokenyard.core.sched.outcomes import Outcome, OutcomeKind, Reason, StepOutcomes
from tokenyard.core.sched.running import RunningPass
from tokenyard.core.sched.scheduler_output import KnownTokens, NewRequest, SchedulerOutput, StepInFlight
from tokenyard.core.table_rows import gather, rows_unlike

# To ask their classes for them costs more than to compare.
_UNPAUSED, _PAUSED_ALL = PauseState.UNPAUSED, PauseState.PAUSED_ALL
_RUNNING, _PREEMPTED = RequestStatus.RUNNING, RequestStatus.PREEMPTED

_new_tuple = tuple.__new__


class StepPlanner:
    """Owns the passes; what they need of each other goes through here."""

    def __init__(
        self, context: SchedulerContext, lifecycle: Lifecycle, expect_first_token: Callable[[Request], None]
    ) -> None:
        """``expect_first_token`` is notified of every admitted request."""
        self._config = context.config
        self._features = features = context.features
        self._hooks = context.hooks
        self._policy = context.policy
        self._lifecycle = lifecycle
        self._expect_first_token = expect_first_token
        self._table = context.table
        self._waiting_queues = context.waiting_queues
        self._running = context.running
        deadlock = AdmissionDeadlock(context)
        self._encoder_deadlock = None if features.encoder is None else EncoderDeadlock(context, features.encoder)
        self._running_pass = RunningPass(context, lifecycle.preempt, deadlock, self._encoder_deadlock)
        self._admission_pass = AdmissionPass(context, lifecycle, deadlock)
        self._output_builder = OutputBuilder(context)
        pads = context.config.profile.admission_pads_decodes
        may_ask = pads and (features.speculation is not None or bool(context.plugin_limits))
        self._notes_run = may_ask or bool(context.config.max_loras)
        """Some limit may ask what has run."""
        self._most_tokens = context.config.max_num_batched_tokens
        self._longest_prefill = context.config.long_prefill_token_threshold
        self._encoder_budget = context.config.max_num_encoder_input_tokens
        self._draft_slots = features.num_draft_slots

    def plan(
        self,
        step: int,
        now: float,
        outcomes: StepOutcomes,
        pause_state: PauseState,
        observer: ObserverGate | None,
        bounds: StepBounds | None = None,
    ) -> StepInFlight:
        """Decide step number ``step``; what it refuses is noted in ``outcomes``."""
        if self._encoder_deadlock is not None:
            self._lifecycle.start_over(self._encoder_deadlock.take_victims(), now, named=True)
            self._encoder_deadlock.step_begins()
        budget = self._new_budget(pause_state, bounds)
        rows = self._running_pass.run(budget, outcomes)
        if self._notes_run:
            self._note_run(rows, budget)
        admitted = self._admit(step, budget, outcomes, now, pause_state, observer)
        finished = self._lifecycle.take_finished()
        before = self._lifecycle.take_preempted()
        planned = self._output_builder.build(step, rows, admitted, budget, outcomes, finished, before)
        candidate: Candidate
        for candidate in admitted:
            candidate.request.status = _RUNNING
        if self._encoder_deadlock is not None:
            self._encoder_deadlock.step_ends(scheduled=budget.tokens_used > 0)
        return planned

    def _new_budget(self, pause_state: PauseState, bounds: StepBounds | None) -> StepBudget:
        tokens, longest = self._most_tokens, self._longest_prefill
        if longest and self._config.profile.lone_request_prefills_whole and self._num_unfinished == 1:
            longest = 0
        if bounds is not None:
            tokens = min(tokens, bounds.tokens or tokens)
            longest = min(longest or tokens, bounds.longest_prefill) if bounds.longest_prefill else longest
        if pause_state is _PAUSED_ALL:
            tokens = 0
        slots = self._draft_slots
        return StepBudget(tokens, self._encoder_budget, longest, slots, max(tokens - slots, 0), bounds)

    @property
    def _num_unfinished(self) -> int:
        return len(self._running) + len(self._waiting_queues)

    def _note_run(self, rows: ScheduledRows, budget: StepBudget) -> None:
        """What admission has to know of those that run: whether they decode only, and their adapters."""
        config = self._config
        if config.profile.admission_pads_decodes and rows.requests:
            budget.has_run = True
            budget.has_run_prefill = bool(self._table.prefilling[rows.slots].any())
        if config.max_loras:
            counted = self._running.requests if config.profile.adapters_of_all_running else rows.requests
            budget.loras = {r.lora_name for r in counted if r.lora_name}

    def _admit(
        self,
        step: int,
        budget: StepBudget,
        outcomes: StepOutcomes,
        now: float,
        pause_state: PauseState,
        observer: ObserverGate | None,
    ) -> list[Candidate]:
        waiting = self._waiting_queues
        if outcomes.preemptions:
            for preempted in self._hooks.request_preempted:
                for preemption in outcomes.preemptions:
                    preempted(now, self._lifecycle.requests[preemption.request_id])
            # Admitting into blocks that were just freed by a preemption would thrash.
            outcomes.admission = _not_entered(Reason.PREEMPTED_THIS_STEP, len(waiting), budget.tokens)
            return []
        only_holders = False
        if pause_state is not _UNPAUSED:
            only_holders = pause_state is PauseState.PAUSED_NEW and waiting.num_going_on > 0
            if not only_holders:
                outcomes.admission = _not_entered(Reason.PAUSED, len(waiting))
                return []
        admitted = self._admission_pass.run(budget, outcomes, only_holders)
        for candidate in admitted:
            self._start(step, candidate, now, observer)
        return admitted

    def _start(self, step: int, candidate: Candidate, now: float, observer: ObserverGate | None) -> None:
        """Bring an admitted request's own state up to date."""
        request, features = candidate.request, self._features
        num_computed = candidate.num_computed_tokens
        request.num_computed_tokens = num_computed
        if candidate.is_padded and features.speculation is not None:
            features.speculation.pad(request)
        self._expect_first_token(request)
        self._policy.request_admitted(now, request)
        for joined in self._hooks.request_admitted:
            joined(now, candidate)
        if request.times.first_scheduled is None:
            request.times.first_scheduled = now
            request.num_cached_tokens = num_computed
            local, external = candidate.num_local_hit_tokens, candidate.num_external_computed_tokens
            if candidate.computed is None and features.transfers is not None:
                local, external = features.transfers.take_hits(request)
            request.num_external_computed_tokens = external
            if observer is not None:
                observer.prefix_looked_up(now, step, request, local, external)


def _not_entered(reason: Reason, num_waiting: int, budget_left: int = 0) -> Outcome:
    return Outcome(OutcomeKind.NOT_ENTERED, reason, None, num_waiting, budget_left=budget_left)


# ---------------------------------------------------------------------------------------------------------------------
# The end of a step: granted rows and admitted requests become a ``SchedulerOutput``, and the counters advance.
#
# Counters advance before the model has run, so that the next step can be decided while it does; what the model
# rejects is taken back when its output arrives.


class OutputBuilder:
    """Makes a step's output of what the two passes have granted."""

    def __init__(self, context: SchedulerContext) -> None:
        features = context.features
        self._kv = context.kv
        self._table = context.table
        self._running = context.running
        self._speculation = features.speculation
        self._encoder = features.encoder
        self._zeroes_blocks = context.kv.zeroes_blocks
        self._counts_common_prefix = context.config.count_common_prefix_blocks
        self._says_more = features.encoder is not None or self._zeroes_blocks
        self._is_async = features.placeholders is not None
        self._last_was_complete = True
        """The last step scheduled every running request: none was left out."""
        self._marked_chunks = False
        """Some tenant may be marked as being in the middle of its prompt."""
        self._last_requests: tuple[Request, ...] = ()
        """The running rows of the last step; as long as they are the same object, so is what follows."""
        self._last_ids: tuple[str, ...] = ()
        self._last_num_prompt: IntArray = NO_ROWS

    def build(
        self,
        step: int,
        rows: ScheduledRows,
        admitted: list[Candidate],
        budget: StepBudget,
        outcomes: StepOutcomes,
        finished: frozenset[str],
        preempted_before: tuple[str, ...] = (),
    ) -> StepInFlight:
        """The decision of step number ``step``; the columns of its requests are brought up to date.

        ``preempted_before`` lost their blocks since the last step and are named together with this one's victims.
        """
        table, num_running = self._table, len(rows.requests)
        req_ids, num_prompt = self._named(rows)
        left_out_before = self._left_out_before(rows.slots, step)
        resumed: Sequence[int] = ()
        if admitted:
            rows = _with_admitted(rows, admitted)
            new = rows.requests[num_running:]
            req_ids += _ids_of(new)
            resumed = [row for row, request in enumerate(new, num_running) if request.status is _PREEMPTED]
            num_prompt = frozen(gather(table.num_prompt, rows.slots))
        num_known = rows.known
        num_placeholders = frozen(gather(table.placeholders, rows.slots)) if self._is_async else None
        drafts = self._speculation.schedule(rows.slots, rows.ends) if self._speculation is not None else None
        coming = num_known if num_placeholders is None else summed(num_known, num_placeholders)
        chunk = self._advance(step, rows, coming, bool(admitted))
        plan = SchedulerOutput(
            step=step,
            req_ids=req_ids,
            slots=rows.slots,
            num_new_tokens=frozen(rows.granted),
            num_computed=frozen(rows.computed),
            num_known=frozen(num_known),
            num_prompt=num_prompt,
            num_placeholders=num_placeholders,
            drafts=drafts,
            num_running=num_running,
            total_num_scheduled_tokens=budget.tokens_used,
            new_blocks=self._kv.block_deltas(rows.slots),
            finished_req_ids=finished,
            is_prefill_chunk=chunk,
            num_common_prefix_blocks=self._num_common_prefix_blocks() if self._counts_common_prefix else (),
        )
        # Most steps have nothing more to say, and to make a plan costs by the field.
        if admitted or left_out_before or outcomes.preemptions:
            known_tokens = self._known_tokens(rows, (*left_out_before, *resumed), num_known)
            changes = _changes(rows.requests, num_running, left_out_before, resumed, outcomes)
            plan = replace(plan, **changes, known_tokens=known_tokens)
        if preempted_before:
            plan = replace(plan, preempted_req_ids=preempted_before + plan.preempted_req_ids)
        if self._says_more or table.num_with_grammar:
            plan = replace(plan, **self._of_features(rows.requests, chunk, num_placeholders, budget))
        return StepInFlight(plan, rows.requests, table.version)

    def _named(self, rows: ScheduledRows) -> tuple[tuple[str, ...], IntArray]:
        """Ids and prompt tokens of the running rows: those of the last step, while the same requests run."""
        if rows.requests is not self._last_requests:
            self._last_requests = rows.requests
            self._last_ids = _ids_of(rows.requests)
            self._last_num_prompt = frozen(gather(self._table.num_prompt, rows.slots))
        return self._last_ids, self._last_num_prompt

    def _left_out_before(self, slots: IntArray, step: int) -> Sequence[int]:
        """Running rows that had no part in the last step."""
        return () if self._last_was_complete else rows_unlike(self._table.last_step, slots, step - 1).tolist()

    def _known_tokens(self, rows: ScheduledRows, sent: Sequence[int], num_known: IntArray) -> Mapping[int, TokenIds]:
        """All tokens of the rows ``sent``, of which workers know nothing."""
        if not sent:
            return {}
        at = np.array(sent)
        pieces = [rows.requests[row].pieces() for row in sent]
        return KnownTokens(sent, pieces, self._table.tail[rows.slots[at]], num_known[at])

    def _advance(
        self, step: int, rows: ScheduledRows, coming: IntArray, any_admitted: bool
    ) -> npt.NDArray[np.bool_] | None:
        """Bring the table's counters up to date.

        Returns the rows that end before ``coming``, the tokens that are known or on their way; None: none does.
        """
        table, ends = self._table, rows.ends
        chunk = below(ends, coming)
        table.advance(rows.slots, ends)
        if chunk is not None or self._marked_chunks or any_admitted:
            table.mark_prefilling(rows.slots, chunk)
        self._last_was_complete = len(rows.requests) == len(self._running.requests)
        # Whom a step leaves out keeps its mark.
        self._marked_chunks = chunk is not None or (self._marked_chunks and not self._last_was_complete)
        if not self._last_was_complete:
            table.mark_scheduled(rows.slots, step)
        return chunk

    def _of_features(
        self,
        requests: Sequence[Request],
        chunk: npt.NDArray[np.bool_] | None,
        num_placeholders: IntArray | None,
        budget: StepBudget,
    ) -> dict[str, Any]:
        """What features that are switched on say in every step."""
        more: dict[str, Any] = {}
        if self._encoder is not None:
            more["scheduled_encoder_inputs"] = budget.encoder_items
            more["encoder_embeds"] = tuple(
                [
                    request.mm_features[i].num_embeds
                    for request in (requests if budget.encoder_items else ())
                    for i in budget.encoder_items.get(request.request_id, ())
                ]
            )
            more["free_encoder_mm_hashes"] = self._encoder.cache.take_evicted()
        if self._zeroes_blocks:
            more["new_block_ids_to_zero"] = self._kv.take_new_block_ids()
        if self._table.num_with_grammar:
            rows = [row for row, _ in grammar_rows(requests, chunk)]
            more["has_structured_output_requests"] = bool(rows)
            waits = num_placeholders is not None and bool((num_placeholders[rows] > 0).any())
            more["pending_structured_output_tokens"] = waits
        return more

    def _num_common_prefix_blocks(self) -> tuple[int, ...]:
        running = self._running.requests
        return tuple(self._kv.num_common_prefix_blocks(running[0])) if running else (0,) * self._kv.num_groups


def _ids_of(requests: Sequence[Request]) -> tuple[str, ...]:
    request: Request
    ids: list[str] = []
    for request in requests:
        ids.append(request.request_id)  # noqa: PERF401 - the request of a comprehension is any object to C
    return tuple(ids)


def _with_admitted(rows: ScheduledRows, admitted: list[Candidate]) -> ScheduledRows:
    """The running rows, then the admitted ones."""
    each: Candidate
    requests: list[Request] = []
    slots: list[int] = []
    computed: list[int] = []
    known: list[int] = []
    granted: list[int] = []
    for each in admitted:
        requests.append(each.request)
        slots.append(each.request.slot)
        computed.append(each.num_computed_tokens)
        known.append(each.request.num_tokens)
        granted.append(each.num_new_tokens)
    return ScheduledRows(
        rows.requests + tuple(requests),
        frozen(extended(rows.slots, slots)),
        extended(rows.computed, computed),
        extended(rows.known, known),
        extended(rows.granted, granted),
    )


def _changes(
    requests: Sequence[Request],
    num_running: int,
    left_out_before: Sequence[int],
    resumed: Sequence[int],
    outcomes: StepOutcomes,
) -> dict[str, Any]:
    """Requests that were admitted, resumed, left out before or preempted."""
    return {
        "new_requests": _new_requests(requests, num_running, resumed),
        "admitted_resumed": tuple(resumed),
        "not_scheduled_before": tuple(left_out_before),
        "preempted_req_ids": tuple([each.request_id for each in outcomes.preemptions]),
    }


def _new_requests(requests: Sequence[Request], first: int, resumed: Sequence[int]) -> dict[int, NewRequest]:
    """The admitted requests, from row ``first`` on, that are not resumed."""
    return {row: _new_request(requests[row]) for row in range(first, len(requests)) if row not in resumed}


def _new_request(request: Request) -> NewRequest:
    fields = (
        request.sealed_tokens(0, request.num_prompt_tokens),
        request.sampling_params,
        request.pooling_params,
        request.lora_name,
        request.cache_salt,
        request.mm_features,
        request.prompt_embeds,
        request.output_seed,
    )
    return _new_tuple(NewRequest, fields)  # a fifth of what NewRequest(*fields) costs
