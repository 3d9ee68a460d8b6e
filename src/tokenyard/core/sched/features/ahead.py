"""Steps ahead of their answers: async placeholders and speculative drafts."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from tokenyard.core.columns import ONE, IntArray, any_true, frozen, rows_above
from tokenyard.core.request import Request
from tokenyard.core.sched.candidate import FeatureHook
from tokenyard.core.sched.features.grammars import GrammarGate
from tokenyard.core.sched.outcomes import SpecDecodingStats
from tokenyard.core.sched.outputs import DraftTokens
from tokenyard.core.sched.scheduler_output import ScheduledDrafts, SchedulerOutput, StepInFlight, StepsInFlight
from tokenyard.core.table import NO_TOKEN, RequestTable
from tokenyard.core.table_rows import gather, less, rows_from

# ---------------------------------------------------------------------------------------------------------------------
# Speculative decoding: drafts enter a step like any other tokens; those the model rejects are taken back.
#
# | num_tokens (verified) | drafts |          computed and granted positions may reach into the drafts


class Speculation:
    """The life of drafts in the request table: proposed, scheduled, verified."""

    def __init__(self, table: RequestTable, max_drafts: int, grammars: GrammarGate) -> None:
        self._table = table
        self._grammars = grammars
        self.max_drafts = max_drafts
        self._stats = SpecDecodingStats(max_drafts)

    def schedule(self, slots: IntArray, ends: IntArray) -> ScheduledDrafts | None:
        """Take the drafts that positions up to ``ends`` cover; drafts beyond are dropped, new ones will be proposed."""
        table = self._table
        waiting = gather(table.num_drafts, slots)
        if not np.count_nonzero(waiting):
            return None
        covered = less(less(ends, table.num_tokens, slots), table.placeholders, slots)
        counts = np.minimum(np.maximum(covered, 0), waiting)
        scheduled = ScheduledDrafts(frozen(table.drafts.take(slots, axis=0)), frozen(counts))
        table.clear_drafts(slots)
        return scheduled

    def propose(self, slots: IntArray, drafts: IntArray, counts: IntArray) -> None:
        """New drafts for tenants; a request in the middle of its prompt takes none."""
        table = self._table
        chunks = table.prefilling[slots]
        table.set_drafts(slots, drafts, np.where(chunks, 0, counts) if any_true(chunks) else counts)

    def pad(self, request: Request) -> None:
        """Placeholders for the most drafts that an admitted request could have: there are none yet."""
        unknown = np.full((1, self.max_drafts), NO_TOKEN, np.int64)
        self._table.set_drafts(np.array([request.slot]), unknown, np.array([self.max_drafts]))

    def update(self, step: StepInFlight, drafts: DraftTokens) -> None:
        """New drafts from the model runner, aligned with the step's requests; ended requests are ignored."""
        counts = self._allowed(step.requests, drafts) if self._table.num_with_grammar else drafts.counts
        if step.table_version == self._table.version:  # all are where they were
            self.propose(step.plan.slots, drafts.tokens, counts)
            return
        slots = np.fromiter((r.slot for r in step.requests), np.int64, len(step.requests))
        here = slots >= 0
        self.propose(slots[here], drafts.tokens[here], counts[here])

    def drafts_known(self, step: StepInFlight, drafts: DraftTokens) -> SchedulerOutput:
        """The step with the drafts behind its placeholders, aligned with its requests; -1 stays where a grammar
        forbids one.
        """
        scheduled = step.plan.drafts
        if scheduled is None:
            return step.plan
        known = DraftTokens(drafts.tokens, np.minimum(drafts.counts, scheduled.counts))
        valid = self._allowed(step.requests, known) if self._table.num_with_grammar else known.counts
        tokens = np.full_like(scheduled.tokens, NO_TOKEN)
        width = min(tokens.shape[1], drafts.tokens.shape[1])
        tokens[:, :width] = drafts.tokens[:, :width]
        tokens[np.arange(tokens.shape[1]) >= valid[:, None]] = NO_TOKEN
        ended = np.fromiter((request.status.is_finished for request in step.requests), np.bool_, len(valid))
        tokens[ended], valid[ended] = scheduled.tokens[ended], scheduled.counts[ended]
        return step.plan.replace(
            drafts=ScheduledDrafts(frozen(tokens), scheduled.counts), num_invalid_spec_tokens=scheduled.counts - valid
        )

    def _allowed(self, requests: Sequence[Request], drafts: DraftTokens) -> IntArray:
        """Drafts per request that its grammar allows."""
        counts = drafts.counts.copy()
        for row, request in enumerate(requests):
            if request.structured_output is not None and counts[row]:
                tokens = drafts.tokens[row, : counts[row]].tolist()
                counts[row] = self._grammars.num_valid(request, tokens)
        return counts

    def rejected(self, drafted: IntArray, sampled: IntArray, num_invalid: IntArray | None) -> IntArray:
        """Drafts that the model has rejected, of rows with ``drafted`` ones and ``sampled`` tokens, one at least.

        The last sampled token is the model's own, so one fewer than sampled was accepted. ``num_invalid`` drafts per
        row were never proposed to the model, so statistics leave them out.
        """
        accepted, verified = sampled - ONE, rows_above(drafted, 0)
        proposed = drafted if num_invalid is None else drafted - num_invalid
        self._stats.record(gather(proposed, verified), gather(accepted, verified))
        return drafted - accepted

    def take_stats(self) -> SpecDecodingStats:
        """Acceptance since the last call."""
        stats, self._stats = self._stats, SpecDecodingStats(self.max_drafts)
        return stats


# ---------------------------------------------------------------------------------------------------------------------
# Async scheduling: steps are decided while the outputs of earlier ones are still on their way.
#
# A scheduled decode leaves *output placeholders* for the tokens it will bring; they count like tokens when the next
# step is decided, and are replaced when the outputs arrive. Drafts are placeholders too: only the worker knows them.

UNKNOWN_DRAFT = -1
"""A draft token whose id is not known: only the number of drafts counts."""


class Placeholders(FeatureHook):
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

    def cover_limit(self, slots: IntArray, computed: IntArray) -> IntArray:
        """Rows whose steps in flight reach max_tokens even if every draft is rejected: no further step is needed."""
        held = self._table.placeholders
        covered = rows_from(less(computed, held, slots), self._table.max_total, slots, -2)
        return covered[gather(held, gather(slots, covered)) > 0] if len(covered) else covered

    def step_planned(self, step: StepInFlight) -> None:
        """Leave a placeholder for every token that the step may bring, and for the drafts that will follow."""
        output = step.plan
        table, slots = self._table, output.slots
        drafts = output.drafts.counts if output.drafts is not None else None
        if output.is_prefill_chunk is not None:
            decoding = ~output.is_prefill_chunk
            slots = slots[decoding]
            drafts = drafts[decoding] if drafts is not None else None
        table.add_placeholders(slots, ONE if drafts is None else ONE + drafts)
        if self._speculation is not None:
            unknown = np.full((slots.size, self._num_drafts), UNKNOWN_DRAFT, np.int64)
            self._speculation.propose(slots, unknown, np.full(slots.size, self._num_drafts, np.int64))

    def replace(self, slots: IntArray, num_arrived: IntArray) -> None:
        """Outputs arrived (or drafts were rejected) for tenants."""
        self._table.take_placeholders(slots, num_arrived)

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


class DecodeRound(FeatureHook):
    """A pipeline with async scheduling: a request that decodes has its next turn when the stages have gone round."""

    def __init__(self, num_steps: int) -> None:
        """``num_steps`` from one decode to the next, at least 2."""
        self._held: deque[frozenset[Request]] = deque(maxlen=num_steps - 1)
        """Requests that decoded in the steps before, the last step at the end."""

    def step_planned(self, step: StepInFlight) -> None:
        chunks = step.plan.is_prefill_chunk
        decoding = step.requests if chunks is None else itertools.compress(step.requests, ~chunks)
        self._held.append(frozenset(decoding))

    def holds(self, requests: Sequence[Request]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of them decoded too few steps ago."""
        return np.array([any(request in step for step in self._held) for request in requests], np.bool_)


class ResetOutputs(FeatureHook):
    """Without async scheduling: a reset between a step and its output makes the output stale."""

    def request_reset(self, request: Request, in_flight: Iterable[StepInFlight]) -> None:
        discard_in_flight(request, in_flight)


class LateOutputs(FeatureHook):
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
            step.discarded = {request, *(step.discarded or ())}


def _samples(step: StepInFlight, request: Request) -> bool:
    """Whether the step brings tokens of the request: it takes part and its prompt is computed by then."""
    if request not in step.requests:
        return False
    chunks = step.plan.is_prefill_chunk
    return chunks is None or not chunks[step.requests.index(request)]
