"""The way out when running requests fill the encoder cache together and each needs room for one item more.

    first    | item a ..[ item b ..         holds a, needs b
    second   | item c ..[ item a ..         holds c, needs a: neither passes what it holds

Only items whose placeholders overlap can do this (sound in a video), or adjoin under an EAGLE head, which reads one
token ahead. vLLM leaves such requests where they are, for ever. Here the first of them keeps what it has, and the
others start over before the next step.
"""

from __future__ import annotations

from tokenyard.request import Request, RequestStatus
from tokenyard.sched.features.encoder import EncoderInputs
from tokenyard.sched.passes.budget import StepBudget
from tokenyard.sched.queues.waiting import WaitingQueues
from tokenyard.sched.steps.in_flight import StepsInFlight

__all__ = ["EncoderStalemate"]


class EncoderStalemate:
    """Remembers who was refused in a step for want of room, and says who has to give way."""

    def __init__(self, encoder: EncoderInputs, waiting_queues: WaitingQueues, in_flight: StepsInFlight) -> None:
        self._encoder = encoder
        self._waiting_queues = waiting_queues
        self._in_flight = in_flight
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
        """The step is decided; whether anybody got tokens."""
        self._is_idle = not (scheduled or len(self._in_flight))

    def take_victims(self) -> list[Request]:
        """Requests that start over before the step that begins now, the last one first; their room is free then.

        Nobody unless all that occupies room belongs to requests that were refused in the step before and have nothing
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
        waiting = [each for each in (self._waiting_queues.get(request_id) for request_id in others) if each is not None]
        if len(waiting) < len(others) or any(self._in_flight.tokens_of(each) for each in refused):
            return []
        # A request that memory or a limit refused may refer to outputs all the same: it will refer to them again.
        for request in waiting:
            cache.free(request)
        return refused[:0:-1]
