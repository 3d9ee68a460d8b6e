"""The running pass: how many tokens each running request gets, and who loses memory when there is too little."""

from __future__ import annotations

from collections.abc import Callable

from tokenyard.core.kv.allocation import KVShortage
from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.candidate import StepBounds, StepBudget
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.deadlocks import AdmissionDeadlock, EncoderDeadlock
from tokenyard.core.sched.features.ahead import DecodeRound
from tokenyard.core.sched.features.encoder import EncoderInputs
from tokenyard.core.sched.features.per_slot import BlockAlignment
from tokenyard.core.sched.outcomes import Outcome, OutcomeKind, Preemption, Reason, StepOutcomes
from tokenyard.core.sched.policy import PolicyGate
from tokenyard.core.sched.queues import RunningList

_RUNNING = RequestStatus.RUNNING


class RunningPass:
    """Grants tokens to running requests, in running order."""

    kv: KVCacheManager
    running: RunningList
    policy: PolicyGate
    preempt: Callable[[Request], None]
    deadlock: AdmissionDeadlock
    encoder: EncoderInputs | None
    encoder_deadlock: EncoderDeadlock | None
    alignment: BlockAlignment | None
    states_before_images: bool
    decode_round: DecodeRound | None
    is_async: bool
    num_lookahead_tokens: int
    last_position: int
    """A position beyond it is never computed: nothing could be sampled after it."""
    drifts: bool
    """A victim that was not served yet makes the pass lose its place (vLLM before 0.28)."""
    forgets: bool
    """Work that is called off is forgotten by the caches."""
    ends_with_itself: bool
    """A request that preempts itself ends the pass (vLLM before 0.33)."""
    has_cuts: bool
    """Encoder inputs or states may cut what a request gets."""
    prompt_asked: int
    """Prompt tokens that requests have asked for in this step, where the policy bounds them."""
    drift: int
    """Running requests to leave out behind the one whose turn it is."""
    held: list[Outcome]
    """Requests that the policy holds back in this step."""
    items: tuple[int, ...]
    """Encoder inputs that the request whose turn it is computes."""

    def __init__(
        self,
        context: SchedulerContext,
        preempt: Callable[[Request], None],
        deadlock: AdmissionDeadlock,
        encoder_deadlock: EncoderDeadlock | None,
    ) -> None:
        config, features = context.config, context.features
        self.kv = context.kv
        self.running = context.running
        self.policy = context.policy
        self.preempt = preempt
        self.deadlock = deadlock
        self.encoder = features.encoder
        self.encoder_deadlock = encoder_deadlock
        self.alignment = features.alignment
        self.states_before_images = config.profile.states_cut_before_images
        self.decode_round = features.decode_round
        self.is_async = features.placeholders is not None
        self.num_lookahead_tokens = features.num_lookahead_tokens
        self.last_position = config.max_model_len - 1
        self.drifts = config.profile.running_index_drifts
        self.forgets = not config.rolled_back_work_stays_cached
        self.ends_with_itself = config.profile.self_preemption_ends_pass
        self.has_cuts = self.encoder is not None or self.alignment is not None
        self.prompt_asked = self.drift = 0
        self.held = []
        self.items = ()

    def run(self, budget: StepBudget, outcomes: StepOutcomes) -> list[Request]:
        """Spend ``budget`` on the running requests; returns those that got tokens, ``num_scheduled`` each."""
        granted: list[Request] = []
        idle: list[Outcome] = []
        self.prompt_asked = 0
        kv, ahead = self.kv, self.num_lookahead_tokens
        requests = self.running.requests
        at = 0
        while at < len(requests) and budget.tokens > 0:
            request: Request = requests[at]
            asked = self.wanted(request, budget, idle)
            wanted = min(asked, budget.tokens)
            if wanted > 0 and self.has_cuts:
                wanted = self.cut(request, wanted, budget, outcomes)
            if wanted <= 0:
                at += 1
                continue
            planned_with = budget.encoder
            request.first_new_block = request.blocks.size
            end = request.num_computed_tokens + wanted
            self.drift = 0
            fits = kv.grow(request, end, ahead)
            while not fits:
                at = self.make_room(request, end, at, granted, budget, outcomes)
                if request.status is not _RUNNING:  # cold
                    break
                fits = kv.grow(request, end, ahead)
            if not fits:
                if self.ends_with_itself:
                    break
                continue
            request.num_scheduled = wanted
            granted.append(request)
            budget.spend(wanted)
            if self.has_cuts and self.items and self.encoder is not None:
                budget.encoder = planned_with  # as in vLLM, which counts when it plans: what victims gave back is lost
                self.encoder.commit(request, self.items, budget)  # cold
            if self.drift:
                self.drift_past(at, budget, idle, outcomes)
            at += 1
        self.end(at, granted, budget, idle, outcomes)
        return granted

    def end(
        self, at: int, granted: list[Request], budget: StepBudget, idle: list[Outcome], outcomes: StepOutcomes
    ) -> None:
        """The pass has come to place ``at``."""
        if at < len(self.running.requests):
            self.note_left_out(at, budget, idle, outcomes)
        if idle or self.held:
            outcomes.not_scheduled[:0] = idle + self.held
            self.held = []
        if budget.bounds is not None:
            budget.decode_tokens = sum([each.num_scheduled for each in granted if not in_prompt(each)])

    def wanted(self, request: Request, budget: StepBudget, idle: list[Outcome]) -> int:
        """Return the tokens that a request asks for, whatever is left of the budget; 0, and why in ``idle``: none."""
        wanted = request.num_tokens + len(request.spec_token_ids) + request.num_output_placeholders
        wanted = min(wanted, self.last_position) - request.num_computed_tokens
        if 0 < budget.longest_prefill < wanted:
            wanted = budget.longest_prefill
        if self.is_async and request.num_output_placeholders and self.ends_in_flight(request):
            idle.append(left_out(Reason.PLACEHOLDERS_COVER_LIMIT, request))  # cold
            return 0
        # Below zero: the drafts of a step in flight, of which it is not known yet how many are right.
        if wanted <= 0 or (self.decode_round is not None and self.decode_round.holds(request)):  # cold
            idle.append(left_out(Reason.NO_NEW_TOKENS, request))  # cold
            return 0
        return wanted if budget.bounds is None else self.within(request, wanted, budget.bounds)

    def ends_in_flight(self, request: Request) -> bool:
        """Whether the steps in flight reach max_tokens even if every draft is rejected: no further step is needed."""
        return request.num_computed_tokens - request.num_output_placeholders + 2 >= request.max_total

    def within(self, request: Request, wanted: int, bounds: StepBounds) -> int:
        """Return what the policy's bounds of this step leave of ``wanted`` tokens."""
        if request.request_id in bounds.holds:
            wanted = 0
        if bounds.prefill_tokens is not None and in_prompt(request):
            left = max(bounds.prefill_tokens - self.prompt_asked, 0)
            self.prompt_asked += wanted
            wanted = min(wanted, left)
        if not wanted:
            self.held.append(left_out(Reason.POLICY_REFUSED, request, detail=bounds.detail))
        return wanted

    def cut(self, request: Request, wanted: int, budget: StepBudget, outcomes: StepOutcomes) -> int:
        """Return the tokens up to which encoder inputs can be had and states are kept; 0, and why: none."""
        self.items = ()
        if self.states_before_images:
            wanted = self.up_to_state(request, wanted, budget, outcomes)
        if wanted and self.encoder is not None and request.num_computed_tokens + wanted > request.encoder_at:
            wanted = self.up_to_encoder_input(self.encoder, request, wanted, budget, outcomes)
        if wanted and not self.states_before_images:
            wanted = self.up_to_state(request, wanted, budget, outcomes)
        return wanted

    def up_to_encoder_input(
        self, encoder: EncoderInputs, request: Request, wanted: int, budget: StepBudget, outcomes: StepOutcomes
    ) -> int:
        """Plan the encoder inputs of the next ``wanted`` tokens; returns how many of them can be computed."""
        computed = request.num_computed_tokens
        wanted, self.items = encoder.plan(request, computed, wanted, budget.encoder)
        encoder.note_position(request, computed)
        if not wanted:
            if self.encoder_deadlock is not None:
                self.encoder_deadlock.refused(request, budget)
            outcomes.left_out(Reason.ENCODER_BUDGET, request.request_id, budget_left=budget.encoder)
        return wanted

    def up_to_state(self, request: Request, wanted: int, budget: StepBudget, outcomes: StepOutcomes) -> int:
        """Return how many of ``wanted`` tokens may be computed so that a prompt's step ends where a state is kept."""
        # The last known token is computed as it is, alone or with drafts.
        if self.alignment is None or request.num_computed_tokens >= request.num_tokens - 1:
            return wanted
        granted = self.alignment.split_request(request, wanted, request.num_computed_tokens)
        if not granted:
            name, left = request.request_id, budget.tokens
            outcomes.left_out(Reason.MAMBA_ALIGNMENT, name, wanted_tokens=wanted, budget_left=left)
        return granted

    def make_room(
        self,
        request: Request,
        end: int,
        at: int,
        granted: list[Request],
        budget: StepBudget,
        outcomes: StepOutcomes,
    ) -> int:
        """Drop a pin, or preempt one victim, for the request at place ``at``; returns the place that counts then."""
        kv, ahead = self.kv, self.num_lookahead_tokens
        shortage = kv.shortage_of(request, end, ahead)
        if self.policy.free_for_running(shortage, len(self.running)) or kv.free_kept(request):
            return at
        position = self.policy.victim(self.running.requests)
        victim: Request = self.running.requests[position]
        was_served = self.take_from(victim, request, granted, budget, shortage, outcomes)
        if position < at:
            if was_served or not self.drifts:
                at -= 1
            else:
                self.drift += 1
        self.running.pop(position)
        self.preempt(victim)
        if not len(self.running):
            self.deadlock.preempted_itself(request, end + ahead)
        return at

    def take_from(
        self,
        victim: Request,
        request: Request,
        granted: list[Request],
        budget: StepBudget,
        shortage: KVShortage,
        outcomes: StepOutcomes,
    ) -> bool:
        """Take back what this step has granted the victim of ``request``; returns whether it had granted it any."""
        was_served = victim in granted
        rolled_back = 0
        if was_served:
            rolled_back = victim.num_scheduled
            budget.refund(rolled_back)
            if self.forgets:
                self.kv.forget_content_beyond(victim, victim.num_computed_tokens)
        if self.encoder is not None and (was_served or (victim is request and self.forgets)):
            self.encoder.roll_back(victim, budget, [*granted, request] if self.forgets else None)
        if was_served:
            granted.remove(victim)
        computed = victim.num_computed_tokens
        outcomes.preemptions.append(Preemption(victim.request_id, request.request_id, computed, rolled_back, shortage))
        if victim is request:
            outcomes.left_out(Reason.SELF_PREEMPTED, request.request_id, kv=shortage)
        return was_served

    def drift_past(self, at: int, budget: StepBudget, idle: list[Outcome], outcomes: StepOutcomes) -> None:
        """The index slipped while the request was served: those right behind it lose their turn."""
        for request in self.running.requests[at - self.drift + 1 : at + 1]:
            if self.wanted(request, budget, idle) > 0:
                outcomes.left_out(Reason.RUNNING_INDEX_DRIFT, request.request_id)

    def note_left_out(self, at: int, budget: StepBudget, idle: list[Outcome], outcomes: StepOutcomes) -> None:
        """Say why requests from place ``at`` on were not reached."""
        reason = Reason.PREEMPTED_THIS_STEP if budget.tokens else Reason.TOKEN_BUDGET
        if budget.max_tokens == 0:
            reason = Reason.PAUSED
        for request in self.running.requests[at:]:
            wanted = self.wanted(request, budget, idle)
            if wanted > 0:
                name, left = request.request_id, budget.tokens
                outcomes.left_out(reason, name, wanted_tokens=wanted, budget_left=left)


def in_prompt(request: Request) -> bool:
    """Whether the request has more than one known token to compute."""
    return request.num_tokens - request.num_computed_tokens > 1


def left_out(reason: Reason, request: Request, detail: str | None = None) -> Outcome:
    """Return the reason why a running request gets no tokens."""
    return Outcome(OutcomeKind.NOT_SCHEDULED, reason, request.request_id, 1, detail=detail)
