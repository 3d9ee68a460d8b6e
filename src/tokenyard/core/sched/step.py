"""What a step decides, in order: running pass, admission pass, output."""

from __future__ import annotations

from collections.abc import Callable

from tokenyard.core.config import PauseState, SchedulerConfig
from tokenyard.core.kv.allocation import StepBlocks
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.admission import AdmissionPass
from tokenyard.core.sched.candidate import Candidate, StepBounds, StepBudget, StepHooks
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.deadlocks import AdmissionDeadlock, EncoderDeadlock
from tokenyard.core.sched.features.ahead import Speculation
from tokenyard.core.sched.features.encoder import EncoderInputs
from tokenyard.core.sched.features.feature_set import Features
from tokenyard.core.sched.in_flight import StepInFlight
from tokenyard.core.sched.lifecycle import Lifecycle
from tokenyard.core.sched.observer import ObserverGate
from tokenyard.core.sched.outcomes import Outcome, OutcomeKind, Reason, StepOutcomes
from tokenyard.core.sched.policy import PolicyGate
from tokenyard.core.sched.queues import RunningList, WaitingQueues
from tokenyard.core.sched.running import RunningPass
from tokenyard.core.sched.scheduler_output import KnownTokens, NewRequest, SchedulerOutput
from tokenyard.core.sched.step_rows import COMPUTED, IN_FLIGHT, KNOWN, NEW, PROMPT, SAMPLES, Names, Rows

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
        self._config: SchedulerConfig = context.config
        features = context.features
        self._features: Features = features
        self._hooks: StepHooks = context.hooks
        self._policy: PolicyGate = context.policy
        self._lifecycle: Lifecycle = lifecycle
        self._expect_first_token: Callable[[Request], None] = expect_first_token
        self._waiting_queues: WaitingQueues = context.waiting_queues
        self._running: RunningList = context.running
        deadlock = AdmissionDeadlock(context)
        self._encoder_deadlock: EncoderDeadlock | None = (
            None if features.encoder is None else EncoderDeadlock(context, features.encoder)
        )
        self._running_pass: RunningPass = RunningPass(context, lifecycle.preempt, deadlock, self._encoder_deadlock)
        self._admission_pass: AdmissionPass = AdmissionPass(context, lifecycle, deadlock)
        self.builder: OutputBuilder = OutputBuilder(context)
        pads = context.config.profile.admission_pads_decodes
        may_ask = pads and (features.speculation is not None or bool(context.plugin_limits))
        self._notes_run: bool = may_ask or bool(context.config.max_loras)
        """Some limit may ask what has run."""
        self._most_tokens: int = context.config.max_num_batched_tokens
        self._longest_prefill: int = context.config.long_prefill_token_threshold
        self._encoder_budget: int = context.config.max_num_encoder_input_tokens
        self._draft_slots: int = features.num_draft_slots

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
        granted = self._running_pass.run(budget, outcomes)
        if self._notes_run:
            self._note_run(granted, budget)
        admitted = self._admit(step, budget, outcomes, now, pause_state, observer)
        finished = self._lifecycle.take_finished()
        before = self._lifecycle.take_preempted()
        planned = self.builder.build(step, granted, admitted, budget, outcomes, finished, before)
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

    def _note_run(self, granted: list[Request], budget: StepBudget) -> None:
        """What admission has to know of those that run: whether they decode only, and their adapters."""
        config = self._config
        if config.profile.admission_pads_decodes and granted:
            budget.has_run = True
            budget.has_run_prefill = any(each.is_prefill_chunk for each in granted)
        if config.max_loras:
            counted = self._running.requests if config.profile.adapters_of_all_running else granted
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
        self._policy.request_admitted(now, request)


def _not_entered(reason: Reason, num_waiting: int, budget_left: int = 0) -> Outcome:
    return Outcome(OutcomeKind.NOT_ENTERED, reason, None, num_waiting, budget_left=budget_left)


# ---------------------------------------------------------------------------------------------------------------------
# The end of a step: granted rows and admitted requests become a ``SchedulerOutput``, and the counters advance.
#
# Counters advance before the model has run, so that the next step can be decided while it does; what the model
# rejects is taken back when its output arrives.


class OutputBuilder:
    """Makes a step's output of what the two passes have granted."""

    kv: KVCacheManager
    speculation: Speculation | None
    is_async: bool
    last_step: int
    """Number of the last step that was built."""
    names: Names
    """The names of its requests."""

    def __init__(self, context: SchedulerContext) -> None:
        features = context.features
        self.kv = context.kv
        self._running: RunningList = context.running
        self.speculation = features.speculation
        self._encoder: EncoderInputs | None = features.encoder
        self._zeroes_blocks: bool = context.kv.zeroes_blocks
        self._counts_common_prefix: bool = context.config.count_common_prefix_blocks
        self._says_more: bool = self._counts_common_prefix or self._zeroes_blocks or self._encoder is not None
        self.is_async = features.placeholders is not None
        self.last_step = -1
        self.names = Names([])

    def build(
        self,
        step: int,
        granted: list[Request],
        admitted: list[Candidate],
        budget: StepBudget,
        outcomes: StepOutcomes,
        finished: frozenset[str],
        preempted_before: tuple[str, ...] = (),
    ) -> StepInFlight:
        """Return the decision of step number ``step``; the counters of its requests are brought up to date.

        ``granted`` are running requests with tokens. ``preempted_before`` lost their blocks since the last step and are
        named together with this one's victims.
        """
        num_running = len(granted)
        candidate: Candidate
        for candidate in admitted:
            candidate.request.num_scheduled = candidate.num_new_tokens
            granted.append(candidate.request)
        if self.names.requests != granted:
            self.names = Names(granted)
        rows = Rows(granted, self.names)
        plan = SchedulerOutput(step, rows, self.is_async)
        plan.num_running = num_running
        plan.total_num_scheduled_tokens = budget.tokens_used
        plan.finished_req_ids = finished
        if self.speculation is not None:
            plan.drafts = self.speculation.schedule(granted)
        left_out_before = self.fill(step, rows, num_running, plan)
        if admitted:
            self._note_admitted(plan, granted)
        if left_out_before:
            plan.not_scheduled_before = tuple(left_out_before)
        sent = (*left_out_before, *plan.admitted_resumed)
        if sent:
            known = {row: (granted[row].given, granted[row].appended, granted[row].num_tokens) for row in sent}
            plan.known_tokens = KnownTokens(known)
        if outcomes.preemptions or preempted_before:
            plan.preempted_req_ids = (*preempted_before, *[each.request_id for each in outcomes.preemptions])
        if self._says_more:
            self._say_more(plan, granted, budget)
        return StepInFlight(plan, rows)

    def _say_more(self, plan: SchedulerOutput, granted: list[Request], budget: StepBudget) -> None:
        """Add what features that are switched on say in every step."""
        if self._counts_common_prefix:
            plan.num_common_prefix_blocks = self._num_common_prefix_blocks()
        if self._encoder is not None:
            self._note_encoder_inputs(self._encoder, plan, granted, budget)
        if self._zeroes_blocks:
            plan.new_block_ids_to_zero = self.kv.take_new_block_ids()

    def fill(self, step: int, rows: Rows, num_running: int, plan: SchedulerOutput) -> list[int]:
        """Fill the columns of a step, and count its tokens as computed; returns running rows that the last step left
        out.
        """
        kv, requests, numbers, count = self.kv, rows.requests, rows.numbers, rows.size
        blocks = StepBlocks(kv.num_groups)  # cold
        left_out_before: list[int] = []
        last_step, num_chunks, context = self.last_step, 0, 0
        has_grammar: bool = False
        waits: bool = False
        for i in range(count):
            request: Request = requests[i]
            tokens, computed = request.num_scheduled, request.num_computed_tokens
            known, in_flight = request.num_tokens, request.num_output_placeholders
            end = computed + tokens
            samples: bool = end >= known + in_flight
            numbers[i] = request.slot
            numbers[NEW * count + i] = tokens
            numbers[COMPUTED * count + i] = computed
            numbers[KNOWN * count + i] = known
            numbers[PROMPT * count + i] = request.num_prompt_tokens
            numbers[SAMPLES * count + i] = samples
            numbers[IN_FLIGHT * count + i] = in_flight
            context += computed
            if tokens > 1:
                rows.count_prompt(tokens, computed)
            if not samples:
                num_chunks += 1
            if i < num_running and request.last_step != last_step:
                left_out_before.append(i)  # cold
            kv.gather_new_blocks(i, request, blocks)
            request.num_computed_tokens = end
            request.is_prefill_chunk = not samples
            request.last_step = step
            if request.structured_output is not None and samples:
                has_grammar = True
                waits = waits or in_flight > 0
        rows.num_chunks, rows.context = num_chunks, context
        plan.blocks = blocks  # cold
        if has_grammar:
            plan.has_structured_output_requests = True  # cold
            plan.pending_structured_output_tokens = self.is_async and waits  # cold
        self.last_step = step
        return left_out_before

    def _note_admitted(self, plan: SchedulerOutput, requests: list[Request]) -> None:
        """Say which rows are resumed, and what workers have to know of the others."""
        admitted = range(plan.num_running, len(requests))
        plan.admitted_resumed = tuple([row for row in admitted if requests[row].status is _PREEMPTED])
        plan.new_requests = {row: _new_request(requests[row]) for row in admitted if row not in plan.admitted_resumed}

    def _note_encoder_inputs(
        self, encoder: EncoderInputs, plan: SchedulerOutput, requests: list[Request], budget: StepBudget
    ) -> None:
        plan.scheduled_encoder_inputs = budget.encoder_items
        plan.encoder_embeds = tuple(
            [
                request.mm_features[i].num_embeds
                for request in (requests if budget.encoder_items else ())
                for i in budget.encoder_items.get(request.request_id, ())
            ]
        )
        plan.free_encoder_mm_hashes = encoder.cache.take_evicted()

    def _num_common_prefix_blocks(self) -> tuple[int, ...]:
        running = self._running.requests
        return tuple(self.kv.num_common_prefix_blocks(running[0])) if running else (0,) * self.kv.num_groups


def _new_request(request: Request) -> NewRequest:
    fields = (
        request.token_slice(0, request.num_prompt_tokens),
        request.sampling_params,
        request.pooling_params,
        request.lora_name,
        request.cache_salt,
        request.mm_features,
        request.prompt_embeds,
        request.output_seed,
    )
    return _new_tuple(NewRequest, fields)  # a fifth of what NewRequest(*fields) costs
