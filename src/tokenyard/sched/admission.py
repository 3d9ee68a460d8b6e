"""The admission pass: waiting requests join the running list until a limit stops the pass."""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.sched.budget import StepBudget
from tokenyard.sched.limits import Candidate, Limit
from tokenyard.sched.policy import Policy
from tokenyard.sched.queues import RequestQueue, WaitingRoom
from tokenyard.sched.reasons import Outcome, OutcomeKind, Reason, StepOutcomes
from tokenyard.sched.running import RunningList

__all__ = ["AdmissionPass"]


class AdmissionPass:
    """Takes candidates from the waiting room in the policy's order and asks every limit about each."""

    def __init__(
        self, policy: Policy, room: WaitingRoom, running: RunningList, limits: Sequence[Limit], max_num_seqs: int
    ) -> None:
        self._policy = policy
        self._room = room
        self._running = running
        self._limits = limits
        self._max_num_seqs = max_num_seqs

    def run(self, budget: StepBudget, outcomes: StepOutcomes) -> list[Candidate]:
        """Admit what fits; returns the admitted, in order. ``outcomes.admission`` says why the pass ended."""
        room = self._room
        admitted: list[Candidate] = []
        passed_over: RequestQueue | None = None
        while (ended := self._over(budget)) is None:
            queue = self._policy.next_queue(room)
            candidate = Candidate(queue.peek())
            refusal = self._ask(candidate, budget)
            if refusal is None:
                queue.pop()
                self._running.append(candidate.request)
                budget.spend(candidate.num_new_tokens)
                if candidate.request.lora_name:
                    budget.loras.add(candidate.request.lora_name)
                admitted.append(candidate)
            elif refusal.kv is not None and self._policy.relieve(refusal, len(self._running)):
                continue
            elif refusal.kind is OutcomeKind.SKIPPED or (refusal.kv is not None and self._policy.passes_over(refusal)):
                if passed_over is None:
                    passed_over = room.new_queue()
                passed_over.prepend(queue.pop())
                outcomes.skipped.append(refusal._replace(kind=OutcomeKind.SKIPPED, num_requests=1))
            else:
                ended = refusal
                break
        outcomes.admission = ended
        if passed_over is not None:
            room.pass_over(passed_over)
        return admitted

    def _over(self, budget: StepBudget) -> Outcome | None:
        """Why no further request is looked at, or None."""
        waiting = len(self._room)
        if not waiting:
            return Outcome(OutcomeKind.LOOP_ENDED, Reason.QUEUES_EMPTY, budget_left=budget.tokens)
        if budget.tokens <= 0:
            return Outcome(OutcomeKind.LOOP_ENDED, Reason.TOKEN_BUDGET, None, waiting)
        if len(self._running) >= self._max_num_seqs:
            return Outcome(OutcomeKind.STOPPED, Reason.MAX_NUM_SEQS, None, waiting, budget_left=budget.tokens)
        return None

    def _ask(self, candidate: Candidate, budget: StepBudget) -> Outcome | None:
        for limit in self._limits:
            refusal = limit.ask(candidate, budget, self._room)
            if refusal is not None:
                return refusal
        return None
