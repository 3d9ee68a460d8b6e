"""Steps ahead of their answers: async placeholders and speculative drafts."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable

import numpy as np

from tokenyard.core.arrays import IntArray
from tokenyard.core.request import Request
from tokenyard.core.rows import NO_TOKEN, Int64s
from tokenyard.core.sched.candidate import FeatureHook
from tokenyard.core.sched.features.grammars import GrammarGate
from tokenyard.core.sched.in_flight import StepInFlight, StepsInFlight
from tokenyard.core.sched.outcomes import SpecDecodingStats
from tokenyard.core.sched.outputs import DraftTokens
from tokenyard.core.sched.scheduler_output import ScheduledDrafts, SchedulerOutput

# ---------------------------------------------------------------------------------------------------------------------
# Speculative decoding: drafts enter a step like any other tokens; those the model rejects are taken back.
#
# | num_tokens (verified) | drafts |          computed and granted positions may reach into the drafts


class Speculation:
    """The life of drafts: proposed, scheduled, verified."""

    max_drafts: int
    unknown: list[int]
    """The largest number of drafts there may be, of which nothing is known but their number; not to be changed."""
    drafted: Int64s
    """Verified rows by how many drafts they had, since the last report."""
    accepted: Int64s
    """The same by how many of them were accepted."""

    def __init__(self, max_drafts: int, grammars: GrammarGate) -> None:
        self._grammars: GrammarGate = grammars
        self.max_drafts = max_drafts
        self.unknown = [UNKNOWN_DRAFT] * max_drafts
        self.drafted = array("q", [0]) * (max_drafts + 1)
        self.accepted = array("q", [0]) * (max_drafts + 1)
        self._has_news: bool = False

    def schedule(self, requests: list[Request]) -> ScheduledDrafts | None:
        """Take the drafts that the tokens of this step cover; others are dropped, new ones will be proposed."""
        rows, width = len(requests), self.max_drafts
        tokens, counts = array("q", [NO_TOKEN]) * (rows * width), array("q", [0]) * rows
        drafts: Int64s = tokens
        covered: Int64s = counts
        has_drafts: bool = False
        for row in range(rows):
            request: Request = requests[row]
            waiting: list[int] = request.spec_token_ids
            if waiting:
                has_drafts = True
                for i in range(len(waiting)):
                    drafts[row * width + i] = waiting[i]
                end = request.num_computed_tokens + request.num_scheduled
                reached = end - request.num_tokens - request.num_output_placeholders
                covered[row] = min(max(reached, 0), len(waiting))
                request.spec_token_ids = []
        if not has_drafts:
            return None
        known = np.frombuffer(tokens, np.int64).reshape(rows, width)
        return ScheduledDrafts(_frozen(known), _frozen(np.frombuffer(counts, np.int64)))

    def propose(self, request: Request, drafts: list[int]) -> None:
        """Note new drafts of a running request; one in the middle of its prompt takes none."""
        request.spec_token_ids = [] if request.is_prefill_chunk else drafts

    def pad(self, request: Request) -> None:
        """Placeholders for the most drafts that an admitted request could have: there are none yet."""
        request.spec_token_ids = self.unknown

    def update(self, step: StepInFlight, drafts: DraftTokens) -> None:
        """Take new drafts from the model runner, aligned with the step's requests; ended requests are ignored."""
        counts: list[int] = self._allowed(step.requests, drafts).tolist()
        tokens: list[list[int]] = drafts.tokens.tolist()
        for row in range(len(step.requests)):
            request: Request = step.requests[row]
            if request.slot >= 0:
                self.propose(request, tokens[row][: counts[row]])

    def drafts_known(self, step: StepInFlight, drafts: DraftTokens) -> SchedulerOutput:
        """Return the step with the drafts behind its placeholders, aligned with its requests; -1 stays where a grammar
        forbids one.
        """
        scheduled = step.plan.drafts
        if scheduled is None:
            return step.plan
        known = DraftTokens(drafts.tokens, np.minimum(drafts.counts, scheduled.counts))
        valid = self._allowed(step.requests, known)
        tokens = np.full_like(scheduled.tokens, NO_TOKEN)
        width = min(tokens.shape[1], drafts.tokens.shape[1])
        tokens[:, :width] = drafts.tokens[:, :width]
        tokens[np.arange(tokens.shape[1]) >= valid[:, None]] = NO_TOKEN
        ended = np.array([request.status.is_finished for request in step.requests], np.bool_)
        tokens[ended], valid[ended] = scheduled.tokens[ended], scheduled.counts[ended]
        return step.plan.replace(
            drafts=ScheduledDrafts(_frozen(tokens), scheduled.counts), num_invalid_spec_tokens=scheduled.counts - valid
        )

    def _allowed(self, requests: list[Request], drafts: DraftTokens) -> IntArray:
        """Drafts per request that its grammar allows."""
        counts = drafts.counts.copy()
        for row in range(len(requests)):
            request: Request = requests[row]
            if request.structured_output is not None and counts[row]:
                tokens = drafts.tokens[row, : counts[row]].tolist()
                counts[row] = self._grammars.num_valid(request, tokens)
        return counts

    def rejected(self, drafted: int, sampled: int, num_invalid: int) -> int:
        """Return the drafts of a row that the model has rejected, of ``drafted`` ones with ``sampled`` tokens.

        The last sampled token is the model's own, so one fewer than sampled was accepted. ``num_invalid`` drafts were
        never proposed to the model, so statistics leave them out.
        """
        if drafted:
            self.drafted[drafted - num_invalid] += 1
            self.accepted[sampled - 1] += 1
            self._has_news = True
        return drafted - (sampled - 1)

    def take_stats(self) -> SpecDecodingStats:
        """Acceptance since the last call."""
        if not self._has_news:
            return SpecDecodingStats([0] * (self.max_drafts + 1), [0] * (self.max_drafts + 1))
        stats = SpecDecodingStats(list(self.drafted), list(self.accepted))
        for i in range(self.max_drafts + 1):
            self.drafted[i] = self.accepted[i] = 0
        self._has_news = False
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

    end_with_preemption: bool

    def __init__(self, speculation: Speculation | None, *, end_with_preemption: bool = False) -> None:
        """``end_with_preemption``: a preempted request has none, though its outputs in flight are delivered."""
        self.end_with_preemption = end_with_preemption
        self._speculation: Speculation | None = speculation

    def step_planned(self, step: StepInFlight) -> None:
        """Leave a placeholder for every token that the step may bring, and for the drafts that will follow."""
        drafts: list[int] | None = None if step.plan.drafts is None else step.plan.drafts.counts.tolist()
        speculation = self._speculation
        for row in range(len(step.requests)):
            request: Request = step.requests[row]
            if not request.is_prefill_chunk:
                request.num_output_placeholders += 1
                if drafts is not None:
                    request.num_output_placeholders += drafts[row]
                if speculation is not None:
                    request.spec_token_ids = speculation.unknown

    def replace_detached(self, request: Request, num_arrived: int) -> None:
        """Outputs of a request without a slot have arrived, or drafts of it were rejected."""
        if not self.end_with_preemption:
            request.num_output_placeholders -= num_arrived

    def request_preempted(self, now: float, request: Request) -> None:
        if self.end_with_preemption:
            request.num_output_placeholders = 0

    def request_reset(self, request: Request, in_flight: Iterable[StepInFlight]) -> None:
        """Its steps in flight are stale: their outputs will be dropped when they arrive.

        Steps are counted, however many placeholders they hold. vLLM 0.22 takes the placeholders for steps and forgets
        those of an earlier reset: with drafts in flight, or two resets in a row, it hangs or fails.
        """
        discard_in_flight(request, in_flight)
        request.num_output_placeholders = 0
        request.spec_token_ids = []


class DecodeRound(FeatureHook):
    """A pipeline with async scheduling: a request that decodes has its next turn when the stages have gone round."""

    def __init__(self, num_steps: int) -> None:
        """``num_steps`` from one decode to the next, at least 2."""
        self._held: deque[frozenset[Request]] = deque(maxlen=num_steps - 1)
        """Requests that decoded in the steps before, the last step at the end."""

    def step_planned(self, step: StepInFlight) -> None:
        self._held.append(frozenset([each for each in step.requests if not each.is_prefill_chunk]))

    def holds(self, request: Request) -> bool:
        """Whether the request decoded too few steps ago."""
        for step in self._held:  # noqa: SIM110 - no generator, so that C calls it
            if request in step:
                return True
        return False


class ResetOutputs(FeatureHook):
    """Without async scheduling: a reset between a step and its output makes the output stale."""

    def request_reset(self, request: Request, in_flight: Iterable[StepInFlight]) -> None:
        discard_in_flight(request, in_flight)


class LateOutputs(FeatureHook):
    """Outputs in flight of preempted requests: they are delivered, and their positions not computed again before."""

    def __init__(self, in_flight: StepsInFlight) -> None:
        self._in_flight: StepsInFlight = in_flight
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
            steps = self._in_flight
            self._expecting = {rid: request for rid, request in self._expecting.items() if steps.tokens_of(request)}


def discard_in_flight(request: Request, in_flight: Iterable[StepInFlight]) -> None:
    """What steps in flight sample for the request is dropped when it comes."""
    request.async_steps_to_discard = 0
    for step in in_flight:
        if _samples(step, request):
            request.async_steps_to_discard += 1
        if step.row_of(request) >= 0:
            step.discarded = {request, *(step.discarded or ())}


def _samples(step: StepInFlight, request: Request) -> bool:
    """Whether the step brings tokens of the request: it takes part and its prompt is computed by then."""
    row = step.row_of(request)
    chunks = step.plan.is_prefill_chunk
    return row >= 0 and (chunks is None or not chunks[row])


def _frozen(column: IntArray) -> IntArray:
    """The column itself, read-only from now on: what a step says stays as it is."""
    column.flags.writeable = False
    return column
