"""The watchdog: whether a scheduler has come to a standstill, and at whom.

    steps without a token, one after the other, although requests wait
      at least one of them for a reason that no event clears          events: a grammar, a load, input, a pause
      and where others hold what it lacks, none of them will let go   a load, a reader, a session, a policy's clock
    => nothing will ever change

Only a mistake leads there, of ours or of a hook, or settings that nobody refused: vLLM's issues 45388, 45414, 53130 and
39734 are of this kind. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable

from tokenyard.errors import StuckError
from tokenyard.sched.parts import Parts
from tokenyard.sched.steps.outcomes import Outcome, OutcomeKind, StepOutcomes
from tokenyard.sched.update.lifecycle import Lifecycle
from tokenyard.vocabulary.reasons import is_for_good

__all__ = ["STUCK_AFTER", "Standstill"]

STUCK_AFTER = 1000
"""Steps in a row without a token: far more than any way out takes."""


class Standstill:
    """Counts steps in which nobody gets on; costs a comparison in all others."""

    __slots__ = ("_clock", "_lifecycle", "_outcome", "_parts", "_since", "num_steps")

    def __init__(self, parts: Parts, lifecycle: Lifecycle, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds."""
        self._parts = parts
        self._lifecycle = lifecycle
        self._clock = clock
        self._outcome: Outcome | None = None
        """Where the last step stopped, if nothing will change that."""
        self._since = 0.0
        self.num_steps = 0
        """Steps, the last one included, each of which stopped where nothing will change that."""

    def step_was_empty(self, now: float, outcomes: StepOutcomes) -> None:
        """A step has scheduled no token."""
        if not self.num_steps:
            self._since = now
        self._outcome = None if outcomes.preemptions else self._where(outcomes)
        self.num_steps = 0 if self._outcome is None else self.num_steps + 1

    def error(self) -> StuckError | None:
        """What to raise; None while a step is in flight that is none of these, and may change something."""
        outcome = self._outcome
        if outcome is None or len(self._parts.in_flight) > self.num_steps:
            return None
        request_id, left = self._first_of(outcome), len(self._lifecycle.requests)
        return StuckError(request_id, outcome.reason, self.num_steps, left, _numbers(outcome)) if request_id else None

    def _where(self, outcomes: StepOutcomes) -> Outcome | None:
        """The first refusal that nothing will ever clear."""
        ended = [] if outcomes.admission is None else [outcomes.admission]
        for outcome in (*outcomes.not_scheduled, *ended, *outcomes.skipped):
            if not is_for_good(outcome.reason, others_wait=False) or not self._first_of(outcome):
                continue
            if is_for_good(outcome.reason, others_wait=True) or not self._somebody_will_let_go():
                return outcome
        return None

    def _first_of(self, outcome: Outcome) -> str:
        """The request at which it stops; empty if nobody is left."""
        parts = self._parts
        if outcome.request_id in self._lifecycle.requests:
            return str(outcome.request_id)
        queue = parts.running.requests if outcome.kind is OutcomeKind.NOT_SCHEDULED else parts.waiting_queues
        return next((request.request_id for request in queue), "")

    def _somebody_will_let_go(self) -> bool:
        """Whether blocks, encoder outputs, adapters or places are held by those whom an event will wake."""
        transfers, now = self._parts.features.transfers, self._clock()
        if transfers is not None and transfers.blocks_will_come(self._parts.waiting_queues):
            return True
        if self._lifecycle.sessions.num_waiting:
            return True
        # A policy that decides by time; where the clock stands still, its moment never comes.
        return now > self._since and self._parts.policy.next_moment(now) is not None


def _numbers(outcome: Outcome) -> str:
    """What was short."""
    if outcome.kv is not None:
        return f"{outcome.kv.needed} blocks needed, {outcome.kv.free} free"
    if outcome.wanted_tokens:
        return f"{outcome.wanted_tokens} tokens wanted, {outcome.budget_left} left"
    return ""
