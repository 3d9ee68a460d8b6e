"""Schedulers that cannot move: the two ways out that vLLM lacks, and the watchdog that names who is stuck."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tokenyard.core.request import Request, RequestStatus
from tokenyard.core.sched.candidate import StepBudget
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.features.encoder import EncoderInputs
from tokenyard.core.sched.lifecycle import Lifecycle
from tokenyard.core.sched.outcomes import Outcome, OutcomeKind, StepOutcomes
from tokenyard.errors import StuckError
from tokenyard.vocabulary import is_for_good

# ---------------------------------------------------------------------------------------------------------------------
# The way out when running requests fill the encoder cache together and each needs room for one item more.
#
#     first    | item a ..[ item b ..         holds a, needs b
#     second   | item c ..[ item a ..         holds c, needs a: neither passes what it holds
#
# Only items whose placeholders overlap can do this (sound in a video), or adjoin under an EAGLE head, which reads one
# token ahead. vLLM leaves such requests where they are, for ever. Here the first of them keeps what it has, and the
# others start over before the next step.


class EncoderDeadlock:
    """Remembers who was refused in a step for want of room, and says who has to give way."""

    def __init__(self, context: SchedulerContext, encoder: EncoderInputs) -> None:
        self._encoder = encoder
        self._waiting_queues = context.waiting_queues
        self._in_flight = context.in_flight
        self._refused: list[Request] = []
        self._room = 0
        """Embeddings that could be had when the first of them was refused, or fewer later on."""
        self._is_idle = False

    def step_begins(self) -> None:
        """Forget the step before."""
        self._refused.clear()
        self._is_idle = False

    def refused(self, request: Request, budget: StepBudget) -> None:
        """A running ``request`` gets no token, because of its next encoder input.

        It counts only where nothing of the step's budget was missing: a further step would refuse it as well.
        """
        encoder = self._encoder
        if budget.encoder == encoder.budget and (not encoder.whole_items or not budget.tokens_used):
            room = encoder.cache.num_reclaimable
            self._room = min(self._room, room) if self._refused else room
            self._refused.append(request)

    def step_ends(self, *, scheduled: bool) -> None:
        """The step is decided; whether a request got tokens."""
        self._is_idle = not (scheduled or len(self._in_flight))

    def take_victims(self) -> list[Request]:
        """Requests that start over before the step that begins now, the last one first; their room is free then.

        None unless all that occupies room belongs to requests that were refused in the step before and have nothing
        in flight, and no room has become free since, so that no step would ever change anything.
        """
        refused, cache = self._refused, self._encoder.cache
        if not refused or any(each.status is not RequestStatus.RUNNING for each in refused):
            return []
        if cache.num_reclaimable > self._room:
            return []
        users = cache.users()
        if not users:
            return []
        others = users - {each.request_id for each in refused}
        if others and not self._is_idle:
            return []
        waiting = [each for each in self._waiting_queues if each.request_id in others] if others else []
        if len(waiting) < len(others) or any(self._in_flight.tokens_of(each) for each in refused):
            return []
        # A request that memory or a limit refused may refer to outputs all the same: it will refer to them again. Their
        # outputs are evicted in this order, which is that of the queue.
        for request in waiting:
            cache.free(request)
        return refused[:0:-1]


# ---------------------------------------------------------------------------------------------------------------------
# The way out when nothing runs, the head of the queue does not fit, and the missing blocks are held behind it.
#
# Requests can hold blocks while they wait: what a connector has loaded for them, or the history of a session that has
# got its next input. vLLM 0.22 stops at the head and never looks at them, and no step changes that (its issues 45388,
# 57841). Here they are tried; and if none of them fits beside the others, the last one gives its blocks back and
# starts anew.
#
# A head that fits in part is not refused: it is admitted, runs alone, lacks a block and preempts itself, in turns for
# ever. Once that has happened twice and nothing has changed, it has to fit whole while others hold blocks.


class _Attempt(msgspec.Struct, frozen=True):
    """How a request that ran alone preempted itself."""

    reach: int
    """Tokens that it needed room for."""
    holders: tuple[str, ...]
    """Waiting requests that held the blocks it lacked."""
    in_vain: bool
    """The time before was the same: so will the next one be."""


class AdmissionDeadlock:
    """Looks at waiting requests that hold blocks; asked only where memory has refused a request and nothing runs."""

    def __init__(self, context: SchedulerContext) -> None:
        self._kv = context.kv
        self._waiting_queues = context.waiting_queues
        self._running = context.running
        self._encoder = context.features.encoder
        self._transfers = context.features.transfers
        self.attempts: dict[str, _Attempt] = {}
        """Waiting requests that preempted themselves while waiting ones held blocks; the last time of each."""

    def is_possible(self, refused: Request) -> bool:
        """Nothing runs, and another request that could go on holds blocks: try it before stopping at ``refused``."""
        return not len(self._running) and any(request is not refused for request in self._holders())

    def preempted_itself(self, request: Request, reach: int) -> None:
        """``request`` needed room for ``reach`` tokens, none ran beside it, and it has gone back to the queue."""
        queues = self._waiting_queues
        attempts = {rid: attempt for rid, attempt in self.attempts.items() if queues.get(rid) is not None}
        holders = tuple(holder.request_id for holder in self._holders())
        if holders and not self._blocks_will_come():
            last = attempts.get(request.request_id)
            in_vain = last is not None and (last.reach, last.holders) == (reach, holders)
            attempts[request.request_id] = _Attempt(reach, holders, in_vain)
        self.attempts = attempts

    def must_fit(self, candidate: Request) -> int:
        """Tokens that need room before it is admitted, after an attempt in vain; 0 if this step's tokens will do."""
        attempt = self.attempts.get(candidate.request_id)
        if attempt is None or not attempt.in_vain or not self.is_possible(candidate):
            return 0
        return max(attempt.reach, candidate.num_tokens)

    def resolve(self) -> bool:
        """No request could be admitted: the last request that holds blocks gives them back. False if time will help."""
        if len(self._running) or self._blocks_will_come():
            return False
        holders = self._holders()
        if not holders:
            return False
        request = holders[-1]
        if request.status is RequestStatus.WAITING_FOR_REMOTE_KVS and self._transfers is not None:
            self._transfers.promote(request)
        if request.slot >= 0:
            self._kv.free(request)
        if self._encoder is not None:
            self._encoder.cache.free(request)
        request.num_computed_tokens = 0
        return True

    def _holders(self) -> list[Request]:
        """Waiting requests that hold blocks and wait for nothing but their turn."""
        return [request for request in self._waiting_queues if request.slot >= 0 and self._can_go_on(request)]

    def _can_go_on(self, request: Request) -> bool:
        if request.status is RequestStatus.WAITING_FOR_REMOTE_KVS:
            return self._transfers is not None and self._transfers.has_received(request)
        return not request.status.is_blocked

    def _blocks_will_come(self) -> bool:
        return self._transfers is not None and self._transfers.blocks_will_come(self._waiting_queues)


# ---------------------------------------------------------------------------------------------------------------------
# The watchdog: whether a scheduler has come to a standstill, and at whom.
#
#     steps without a token, one after the other, although requests wait
#       at least one of them for a reason that no event clears          events: a grammar, a load, input, a pause
#       and where others hold what it lacks, none of them will let go   a load, a reader, a session, a policy's clock
#     => nothing will ever change
#
# Only a mistake leads there, of ours or of a hook, or settings that no check refused: vLLM's issues 45388, 45414, 53130
# and 39734 are of this kind. Nothing is decided here.

STUCK_AFTER = 1000
"""Steps in a row without a token: far more than any way out takes."""


class Standstill:
    """Counts steps in which no request gets on; costs a comparison in all others."""

    __slots__ = ("_clock", "_context", "_lifecycle", "_outcome", "_since", "num_steps")

    def __init__(self, context: SchedulerContext, lifecycle: Lifecycle, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds."""
        self._context = context
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
        if outcome is None or len(self._context.in_flight) > self.num_steps:
            return None
        request_id, left = self._first_of(outcome), len(self._lifecycle.requests)
        return StuckError(request_id, outcome.reason, self.num_steps, left, _numbers(outcome)) if request_id else None

    def _where(self, outcomes: StepOutcomes) -> Outcome | None:
        """The first refusal that nothing will ever clear."""
        ended = [] if outcomes.admission is None else [outcomes.admission]
        for outcome in (*outcomes.not_scheduled, *ended, *outcomes.skipped):
            if not is_for_good(outcome.reason, others_wait=False) or not self._first_of(outcome):
                continue
            if is_for_good(outcome.reason, others_wait=True) or not self._something_will_be_freed():
                return outcome
        return None

    def _first_of(self, outcome: Outcome) -> str:
        """The request at which it stops; empty if none is left."""
        context = self._context
        if outcome.request_id in self._lifecycle.requests:
            return str(outcome.request_id)
        queue = context.running.requests if outcome.kind is OutcomeKind.NOT_SCHEDULED else context.waiting_queues
        return next((request.request_id for request in queue), "")

    def _something_will_be_freed(self) -> bool:
        """Whether blocks, encoder outputs, adapters or places are held by those whom an event will wake."""
        transfers, now = self._context.features.transfers, self._clock()
        if transfers is not None and transfers.blocks_will_come(self._context.waiting_queues):
            return True
        if self._lifecycle.sessions.num_waiting:
            return True
        # A policy that decides by time; where the clock stands still, its moment never comes.
        return now > self._since and self._context.policy.next_moment(now) is not None


def _numbers(outcome: Outcome) -> str:
    """What was short."""
    if outcome.kv is not None:
        return f"{outcome.kv.needed} blocks needed, {outcome.kv.free} free"
    if outcome.wanted_tokens:
        return f"{outcome.wanted_tokens} tokens wanted, {outcome.budget_left} left"
    return ""
