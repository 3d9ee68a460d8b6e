"""Async scheduling: steps are decided while the outputs of earlier ones are still on their way.

A scheduled decode leaves *output placeholders* for the tokens it will bring; they count like tokens when the next step
is decided, and are replaced when the outputs arrive. Drafts are placeholders too: only the worker knows them.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from tokenyard.columns import IntArray
from tokenyard.request import Request
from tokenyard.sched.features.hooks import StepHook
from tokenyard.sched.features.speculation import Speculation
from tokenyard.sched.steps.in_flight import StepInFlight, StepsInFlight
from tokenyard.table import RequestTable

__all__ = ["UNKNOWN_DRAFT", "DecodeRound", "LateOutputs", "Placeholders", "ResetOutputs"]

UNKNOWN_DRAFT = -1


class Placeholders(StepHook):
    """Counts outputs in flight."""

    def __init__(
        self,
        table: RequestTable,
        speculation: Speculation | None,
        num_speculative_tokens: int,
        *,
        end_with_preemption: bool = False,
    ) -> None:
        """``end_with_preemption``: a preempted request has none, though its outputs in flight are delivered."""
        self._end_with_preemption = end_with_preemption
        self._table = table
        self._speculation = speculation
        self._num_drafts = num_speculative_tokens

    def cover_limit(self, slots: IntArray, computed: IntArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Rows whose steps in flight reach max_tokens even if every draft is rejected: no further step is needed."""
        held = self._table.placeholders[slots]
        return np.asarray((held > 0) & (computed + 2 - held >= self._table.max_total[slots]))

    def step_planned(self, step: StepInFlight) -> None:
        """Leave a placeholder for every token that the step may bring, and for the drafts that will follow."""
        output = step.plan
        table, slots = self._table, output.slots
        drafts = output.drafts.counts if output.drafts is not None else None
        if output.is_prefill_chunk is not None:
            decoding = ~output.is_prefill_chunk
            slots = slots[decoding]
            drafts = drafts[decoding] if drafts is not None else None
        new = 1 if drafts is None else 1 + drafts
        table.add_placeholders(slots, new)
        if self._speculation is not None:
            unknown = np.full((slots.size, self._num_drafts), UNKNOWN_DRAFT, np.int64)
            self._speculation.propose(slots, unknown, np.full(slots.size, self._num_drafts, np.int64))

    def replace(self, slots: IntArray, num_arrived: IntArray) -> None:
        """Outputs arrived (or drafts were rejected) for tenants."""
        self._table.add_placeholders(slots, -num_arrived)

    def replace_detached(self, request: Request, num_arrived: int) -> None:
        """The same for a request without a slot."""
        if not self._end_with_preemption:
            request.num_output_placeholders -= num_arrived

    def request_preempted(self, now: float, request: Request) -> None:
        if self._end_with_preemption:
            request.num_output_placeholders = 0

    def request_reset(self, request: Request, in_flight: Iterable[StepInFlight]) -> None:
        """Its steps in flight are stale: their outputs will be dropped when they arrive.

        Steps are counted, however many placeholders they hold. vLLM 0.22 takes the placeholders for steps and forgets
        those of an earlier reset: with drafts in flight, or two resets in a row, it hangs or fails.
        """
        discard_in_flight(request, in_flight)
        if request.slot < 0:
            request.num_output_placeholders = 0
        else:
            self._table.clear_placeholders(request.slot)
            self._table.clear_drafts(request.slot)
            self._table.note_departure()


class DecodeRound(StepHook):
    """A pipeline with async scheduling: a request that decodes has its next turn when the stages have gone round."""

    def __init__(self, num_steps: int) -> None:
        """``num_steps`` from one decode to the next, at least 2."""
        self._held: deque[frozenset[Request]] = deque(maxlen=num_steps - 1)
        """Who decoded in the steps before, the last one at the end."""

    def step_planned(self, step: StepInFlight) -> None:
        chunks = step.plan.is_prefill_chunk
        decoding = step.requests if chunks is None else itertools.compress(step.requests, ~chunks)
        self._held.append(frozenset(decoding))

    def holds(self, requests: Sequence[Request]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of them decoded too few steps ago."""
        return np.array([any(request in step for step in self._held) for request in requests], np.bool_)


class ResetOutputs(StepHook):
    """Without async scheduling: a reset between a step and its output makes the output stale."""

    def request_reset(self, request: Request, in_flight: Iterable[StepInFlight]) -> None:
        discard_in_flight(request, in_flight)


class LateOutputs(StepHook):
    """Outputs in flight of preempted requests: they are delivered, and their positions not computed again before."""

    def __init__(self, in_flight: StepsInFlight) -> None:
        self._in_flight = in_flight
        self._expecting: dict[str, Request] = {}

    def expects(self, request: Request) -> bool:
        """A step in flight still brings output of the request, which has been preempted since."""
        return request.request_id in self._expecting and self._in_flight.tokens_of(request) > 0

    def request_preempted(self, now: float, request: Request) -> None:
        if self._in_flight.tokens_of(request):
            self._expecting[request.request_id] = request

    def request_reset(self, request: Request, in_flight: Iterable[StepInFlight]) -> None:
        self._expecting.pop(request.request_id, None)  # its outputs are dropped

    def step_planned(self, step: StepInFlight) -> None:
        if self._expecting:
            tokens_of = self._in_flight.tokens_of
            self._expecting = {rid: request for rid, request in self._expecting.items() if tokens_of(request)}


def discard_in_flight(request: Request, in_flight: Iterable[StepInFlight]) -> None:
    """What steps in flight sample for the request is dropped when it comes."""
    request.async_steps_to_discard = sum(_samples(step, request) for step in in_flight)
    for step in in_flight:
        if request in step.requests:
            step.void = {request, *(step.void or ())}


def _samples(step: StepInFlight, request: Request) -> bool:
    """Whether the step brings tokens of the request: it takes part and its prompt is computed by then."""
    if request not in step.requests:
        return False
    chunks = step.plan.is_prefill_chunk
    return chunks is None or not chunks[step.requests.index(request)]
