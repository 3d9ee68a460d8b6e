"""What a step decides, in order: the running pass, the admission pass, and the output that both make."""

from __future__ import annotations

from collections.abc import Callable

from tokenyard.config import PauseState
from tokenyard.request import Request, RequestStatus
from tokenyard.sched.limits.candidate import Candidate
from tokenyard.sched.limits.order import limits_in_order
from tokenyard.sched.limits.undo import AdmissionUndo
from tokenyard.sched.observer import ObserverGate
from tokenyard.sched.parts import Parts
from tokenyard.sched.passes.admission_pass import AdmissionPass
from tokenyard.sched.passes.budget import StepBudget
from tokenyard.sched.passes.encoder_stalemate import EncoderStalemate
from tokenyard.sched.passes.output_builder import OutputBuilder
from tokenyard.sched.passes.rows import Rows
from tokenyard.sched.passes.running_pass import RunningPass
from tokenyard.sched.passes.stalemate import Stalemate
from tokenyard.sched.policy_gate import PolicyGate
from tokenyard.sched.steps.in_flight import StepInFlight
from tokenyard.sched.steps.outcomes import Outcome, OutcomeKind, Reason, StepOutcomes
from tokenyard.sched.update.lifecycle import Lifecycle

__all__ = ["StepPlanner"]


class StepPlanner:
    """Owns the passes; what they need of each other goes through here."""

    def __init__(
        self, parts: Parts, gate: PolicyGate, lifecycle: Lifecycle, expect_first_token: Callable[[Request], None]
    ) -> None:
        """``expect_first_token`` is told of every admitted request."""
        self._config = config = parts.config
        self._features = features = parts.features
        self._hooks = parts.hooks
        self._gate = gate
        self._lifecycle = lifecycle
        self._expect_first_token = expect_first_token
        self._table = parts.table
        self._waiting_queues = room = parts.waiting_queues
        self._running = running = parts.running
        self._failures = parts.kv.failures
        kv, profile = parts.kv, config.profile
        stalemate = Stalemate(kv, room, running, features)
        self._encoder_stalemate = None
        if features.encoder is not None:
            self._encoder_stalemate = EncoderStalemate(features.encoder, room, parts.in_flight)
        self._running_pass = RunningPass(
            config,
            kv,
            parts.table,
            running,
            gate,
            features,
            preempt=lifecycle.preempt,
            stalemate=stalemate,
            encoder_stalemate=self._encoder_stalemate,
        )
        self._admission_pass = AdmissionPass(
            gate,
            room,
            running,
            limits_in_order(config, kv, running, features, lifecycle.pins, parts.grammars),
            config.max_num_seqs,
            stalemate,
            AdmissionUndo(kv, features),
            sessions=lifecycle.sessions if profile.paused_sessions_hold_slots else None,
        )
        self._output_builder = OutputBuilder(config, kv, parts.table, running, features)

    def plan(
        self, step: int, now: float, outcomes: StepOutcomes, pause_state: PauseState, observer: ObserverGate | None
    ) -> StepInFlight:
        """Decide step number ``step``; what it refuses is noted in ``outcomes``."""
        if self._encoder_stalemate is not None:
            self._lifecycle.start_over(self._encoder_stalemate.take_victims(), now, named=True)
            self._encoder_stalemate.step_begins()
        budget = self._new_budget(pause_state)
        rows = self._running_pass.run(budget, outcomes)
        self._note_run(rows, budget)
        admitted = self._admit(step, budget, outcomes, now, pause_state, observer)
        finished = self._lifecycle.take_finished()
        before = self._lifecycle.take_preempted()
        planned = self._output_builder.build(step, rows, admitted, budget, outcomes, finished, before)
        for candidate in admitted:
            candidate.request.status = RequestStatus.RUNNING
        if self._encoder_stalemate is not None:
            self._encoder_stalemate.step_ends(scheduled=budget.tokens_used > 0)
        return planned

    def _new_budget(self, pause_state: PauseState) -> StepBudget:
        config = self._config
        longest = config.long_prefill_token_threshold
        if longest and config.profile.lone_request_prefills_whole and self._num_unfinished == 1:
            longest = 0
        return StepBudget(
            0 if pause_state is PauseState.PAUSED_ALL else config.max_num_batched_tokens,
            config.max_num_encoder_input_tokens,
            longest_prefill=longest,
            slots_per_request=self._features.num_draft_slots,
        )

    @property
    def _num_unfinished(self) -> int:
        return len(self._running) + len(self._waiting_queues)

    def _note_run(self, rows: Rows, budget: StepBudget) -> None:
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
            # Admitting into memory that was just taken from someone would thrash.
            outcomes.admission = _not_entered(Reason.PREEMPTED_THIS_STEP, len(waiting), budget.tokens)
            return []
        only_holders = pause_state is PauseState.PAUSED_NEW and waiting.num_going_on > 0
        if pause_state is not PauseState.UNPAUSED and not only_holders:
            outcomes.admission = _not_entered(Reason.PAUSED, len(waiting))
            return []
        if self._running_pass.has_failed:
            outcomes.admission = _not_entered(Reason.HOOK_FAILED, len(waiting), budget.tokens)
            return []
        admitted = self._admission_pass.run(budget, outcomes, only_holders=only_holders)
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
        try:
            self._gate.request_admitted(now, request)
        except Exception as error:  # noqa: BLE001 - it has joined
            self._failures.note(error, "Policy.request_admitted")
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
