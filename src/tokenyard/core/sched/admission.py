"""The admission pass: waiting requests join the running list until a limit stops the pass."""

from __future__ import annotations

from enum import Enum, auto

import msgspec

from tokenyard.core.kv.manager import KVCacheManager
from tokenyard.core.sched.admission_limits import Limit, limits_in_order
from tokenyard.core.sched.candidate import Candidate, StepBudget
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.deadlocks import AdmissionDeadlock
from tokenyard.core.sched.features.sessions import Sessions
from tokenyard.core.sched.lifecycle import Lifecycle
from tokenyard.core.sched.outcomes import Outcome, OutcomeKind, Reason, StepOutcomes
from tokenyard.core.sched.policy import PolicyGate
from tokenyard.core.sched.queues import RequestQueue, RunningList, WaitingQueues


class _Next(Enum):
    """The request that the pass tries after a refusal."""

    SAME = auto()
    """The same request again: memory has been freed for it."""
    OTHER = auto()
    """The one behind it."""
    NONE = auto()
    """No request is next: the pass is over."""


# To ask their classes for them costs more than to compare.
_SAME, _OTHER, _NONE = _Next.SAME, _Next.OTHER, _Next.NONE
_LOOP_ENDED, _STOPPED, _SKIPPED = OutcomeKind.LOOP_ENDED, OutcomeKind.STOPPED, OutcomeKind.SKIPPED
_QUEUES_EMPTY, _TOKEN_BUDGET = Reason.QUEUES_EMPTY, Reason.TOKEN_BUDGET
_MAX_NUM_SEQS, _POLICY_REFUSED = Reason.MAX_NUM_SEQS, Reason.POLICY_REFUSED


class AdmissionPass:
    """Takes candidates from the waiting queues in the policy's order and asks every limit about each."""

    def __init__(self, context: SchedulerContext, lifecycle: Lifecycle, deadlock: AdmissionDeadlock) -> None:
        self._sessions: Sessions | None = (
            lifecycle.sessions if context.config.profile.paused_sessions_hold_slots else None
        )
        """Running requests whose places sessions that wait for input take; None: they take none."""
        self._policy: PolicyGate = context.policy
        self._deadlock: AdmissionDeadlock = deadlock
        self._waiting_queues: WaitingQueues = context.waiting_queues
        self._running: RunningList = context.running
        self._kv: KVCacheManager = context.kv
        self._limits: list[Limit] = limits_in_order(context, lifecycle.pins)
        self._max_num_seqs: int = context.config.max_num_seqs
        self._empty: Outcome = Outcome(_LOOP_ENDED, _QUEUES_EMPTY)
        """No request waits: how nearly every pass ends, and mostly with as many tokens left as the last time."""

    def run(self, budget: StepBudget, outcomes: StepOutcomes, only_holders: bool = False) -> list[Candidate]:
        """Admit what fits; returns the admitted, in order. ``outcomes.admission`` says why the pass ended.

        ``only_holders``: nothing is tried but requests that hold blocks while they wait, which have their own queue.
        """
        outcomes.admission = self._why_ended(budget)
        if outcomes.admission is not None:
            return []
        admitted = self._pass(budget, outcomes, only_holders)
        while not (admitted or self._running.requests) and _memory_refused(outcomes) and self._deadlock.resolve():
            outcomes.skipped.clear()
            admitted = self._pass(budget, outcomes, only_holders)
        return admitted

    def _pass(self, budget: StepBudget, outcomes: StepOutcomes, only_holders: bool) -> list[Candidate]:
        queues = self._waiting_queues
        admitted: list[Candidate] = []
        skipped: RequestQueue | None = None
        while (ended := self._why_ended(budget)) is None:
            if only_holders and not len(queues.skipped):
                ended = Outcome(OutcomeKind.STOPPED, Reason.PAUSED, None, len(queues))
                break
            queue = queues.next_queue(self._policy)
            candidate = Candidate(queue.peek())
            if self._deadlock.attempts:
                candidate.must_fit = self._deadlock.must_fit(candidate.request)
            refusal = self._ask(candidate, budget)
            if refusal is None:
                queues.take(queue)
                self._running.append(candidate.request)
                budget.spend(candidate.num_new_tokens)
                if candidate.request.lora_name:
                    budget.loras.add(candidate.request.lora_name)
                admitted.append(candidate)
                continue
            if (next_one := self._next_after(refusal, candidate)) is _SAME:
                continue
            if next_one is _NONE:
                ended = refusal
                break
            if skipped is None:
                skipped = queues.holding_queue()
            queues.take(queue, into=skipped)
            outcomes.skipped.append(refusal.of_skipped())
        outcomes.admission = ended
        if skipped is not None:
            queues.take_back(skipped)
        return admitted

    def _next_after(self, refusal: Outcome, candidate: Candidate) -> _Next:
        """The request to try after a refusal."""
        if refusal.kv is not None and self._policy.free_for_waiting(refusal, len(self._running)):
            return _SAME
        if refusal.kv is not None and not len(self._running) and self._kv.free_kept(candidate.request):
            return _SAME
        if refusal.kind is _SKIPPED or self._tries_others(refusal, candidate):
            return _OTHER
        return _NONE

    def _tries_others(self, refusal: Outcome, candidate: Candidate) -> bool:
        """Memory refused one request, and those behind it are looked at all the same."""
        if refusal.kv is None:
            return False
        return self._policy.skips(refusal) or self._deadlock.is_possible(candidate.request)

    def _why_ended(self, budget: StepBudget) -> Outcome | None:
        """Why no further request is looked at, or None."""
        queues = self._waiting_queues
        waiting = len(queues) if queues.occupied else 0
        if not waiting:
            if self._empty.budget_left != budget.tokens:
                self._empty = Outcome(_LOOP_ENDED, _QUEUES_EMPTY, budget_left=budget.tokens)
            return self._empty
        if budget.tokens <= 0:
            return Outcome(_LOOP_ENDED, _TOKEN_BUDGET, None, waiting)
        paused = 0 if self._sessions is None else self._sessions.num_waiting
        if len(self._running.requests) + paused >= self._max_num_seqs:
            return Outcome(_STOPPED, _MAX_NUM_SEQS, None, waiting, budget_left=budget.tokens)
        bounds = budget.bounds
        if bounds is not None and bounds.seats is not None and len(self._running.requests) >= bounds.seats:
            stopped = Outcome(_STOPPED, _POLICY_REFUSED, None, waiting, budget_left=budget.tokens)
            return msgspec.structs.replace(stopped, detail=bounds.detail)
        return None

    def _ask(self, candidate: Candidate, budget: StepBudget) -> Outcome | None:
        limit: Limit
        for limit in self._limits:
            refusal = limit.ask(candidate, budget, self._waiting_queues)
            if refusal is not None:
                return refusal
        return None


def _memory_refused(outcomes: StepOutcomes) -> bool:
    ended = outcomes.admission
    return (ended is not None and ended.kv is not None) or any(each.kv is not None for each in outcomes.skipped)
