"""What happened in a step and to a request, in numbers, as every statistic takes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tokenyard.trace.schema import (
    AdmissionOutcome,
    PinEnded,
    PrefixCacheLookup,
    RequestArrived,
    RequestFinished,
    RequestRecord,
    TraceStart,
)
from tokenyard.vocabulary import Place, WaitState

# ---------------------------------------------------------------------------------------------------------------------
# What a request went through: its moments, and the stretches of time in which it got no tokens, with their reasons.
#
# Moments are whole microseconds, so that the parts of a wait add up to the wait exactly. These are the words in which
# the explanation (``explain/why/waits.py``) speaks to what shows or exports a timeline.


AGAIN = "~"
"""Between a request's id and the number of the attempt, from 2, where its client sends it again."""


def attempt_before(request_id: str) -> str | None:
    """What the attempt before was called, by the id of a request that was sent again; None: it looks like none."""
    first, again, number = request_id.rpartition(AGAIN)
    if not again or not number.isdecimal() or int(number) < 2:
        return None
    return first if int(number) == 2 else f"{first}{AGAIN}{int(number) - 1}"


def micros(seconds: float) -> int:
    """Seconds on any clock as whole microseconds, halves upward (as ``Math.round`` does)."""
    return floor(seconds * 1e6 + 0.5)


class WaitPart(msgspec.Struct, frozen=True, array_like=True):
    """Time in a wait that has one reason."""

    reason: str
    place: Place
    us: int


class Wait(msgspec.Struct, kw_only=True, gc=False):
    """A stretch of time without tokens. ``parts`` add up to ``end_us - start_us``."""

    state: WaitState
    start_us: int
    end_us: int
    first_step: int | None = None
    """Step that it begins with; of a queued request the first one that could see it."""
    last_step: int | None = None
    """Step that ended it by scheduling it; None if it ended otherwise."""
    parts: list[WaitPart] = []
    """Most time first."""

    @property
    def us(self) -> int:
        return self.end_us - self.start_us


class PreemptionMoment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request lost its blocks."""

    step: int
    us: int
    for_request_id: str | None = None
    """The request that needed the blocks."""
    lost_tokens: int | None = None
    """Tokens it had computed."""


class RequestMoments(msgspec.Struct, kw_only=True, gc=False):
    """When what happened to a request, in microseconds on the trace's clock; None where it did not come so far."""

    request_id: str
    """Names the request."""
    job_id: str | None = None
    """The agent or session it belongs to; None: none."""
    arrived_us: int | None = None
    """When it was added."""
    first_scheduled_us: int | None = None
    """When a step first gave it tokens."""
    first_scheduled_step: int | None = None
    """Number of that step."""
    first_token_us: int | None = None
    """When its first token was there."""
    finished_us: int | None = None
    """When it ended."""
    until_us: int = 0
    """Its end, or the last moment of a trace that does not show it."""
    finish_reason: str | None = None
    """Why it ended; None: it has not."""
    num_prompt_tokens: int | None = None
    """Tokens of its prompt."""
    num_output_tokens: int | None = None
    """Tokens it was given."""
    local_hit_tokens: int | None = None
    """Prompt tokens found in the prefix cache at its first admission."""
    external_hit_tokens: int | None = None
    """Prompt tokens that a connector brought."""


class RequestTimeline(RequestMoments, kw_only=True, gc=False):
    """One request from its arrival to its end."""

    waits: list[Wait] = []
    """Waits in order of time."""
    preemptions: list[PreemptionMoment] = []

    @property
    def waited_us(self) -> int:
        """All of its waits together."""
        return sum(wait.us for wait in self.waits)


# ---------------------------------------------------------------------------------------------------------------------
# What happened in a step, in numbers: as every statistic takes it, live or from a file.
#
# The recorder makes facts without building a single id list; the reader makes the same facts from records. So a
# report on a finished run and a report on its trace come from the same code.

IntArray = npt.NDArray[np.int64]
_FEW = 64
"""Numbers up to which Python adds faster than NumPy."""
CLASSIFIER_BLOCK_SIZE = 16
"""Tokens per block that the trace format assumes where a trace does not say."""


def blocks_for(tokens: int, block_size: int) -> int:
    """Blocks that ``tokens`` fill, the last one perhaps partly; 0 for no or fewer than no tokens."""
    return -(-tokens // block_size) if tokens > 0 else 0


def least_need(waiting: Iterable[RequestRecord], block_size: int) -> int | None:
    """``minNeed`` of the classifier: least blocks that admit any one of the waiting requests, by the format's estimate,
    the prompt less its cached tokens; None if no record tells a prompt's length.
    """
    needs = (
        blocks_for(each.num_prompt_tokens - max(each.num_cached_tokens or 0, 0), block_size)
        for each in waiting
        if each.num_prompt_tokens is not None
    )
    return min(needs, default=None)


def running_consumed(tokens: Sequence[int] | IntArray, block_size: int) -> int:
    """``runningConsumed`` of the classifier: blocks that the prefill of running requests takes in a step.

    ``tokens`` are those scheduled per running request; one token is decode and does not count.
    """
    if isinstance(tokens, np.ndarray):
        if len(tokens) > _FEW:
            prefill = tokens[tokens > 1]
            return int(((prefill + (block_size - 1)) // block_size).sum())
        tokens = tokens.tolist()
    return sum([-(-count // block_size) for count in tokens if count > 1])


class StepFacts(msgspec.Struct, kw_only=True, gc=False):
    """Counts of one step. None where the trace does not record it."""

    step: int
    ts: float | None = None
    policy: str | None = None
    free_blocks: int | None = None
    total_blocks: int | None = None
    cpu_free_blocks: int | None = None
    cpu_total_blocks: int | None = None
    pinned_blocks: int | None = None
    """Blocks of ended turns that are kept for the next turn of their job."""
    num_pinned: int | None = None
    """Jobs that they belong to."""
    token_budget: int | None = None
    max_running: int | None = None
    num_running: int | None = None
    """Running requests before the step, as are all of the above."""
    num_waiting: int | None = None
    num_new: int | None = None
    """Admitted for the first time."""
    num_resumed: int | None = None
    num_preempted: int | None = None
    token_sum: int | None = None
    """Tokens scheduled."""
    running_consumed: int | None = None
    """Blocks that the running requests' prefill takes: sum of ceil(tokens / block size) where tokens > 1."""
    min_need: int | None = None
    """Least blocks that admit any one waiting request; known only from per-request records."""
    recomputed_tokens: int | None = None
    outcome: AdmissionOutcome | None = None
    """The recorded truth; None when nothing was held back or the trace does not record it."""
    omitted_ids: int = 0


class Streams(NamedTuple):
    """Answers whose flow of tokens changed in a step that sampled tokens: ids of requests.

    All others got tokens in this step if they did in the sampling step before it, and none if they got none in it.
    """

    began: Sequence[str] = ()
    """They got their first token."""
    paused: Sequence[str] = ()
    """They got none, for the first time since their last one; they have not ended."""
    resumed: Sequence[str] = ()
    """They got one again."""


STEADY = Streams()
"""No flow changed."""


class RepeatedFacts(msgspec.Struct, frozen=True):
    """Steps that were decided like the last one: their moments and free blocks are their own, all else is the same.

    At each moment the oldest step in flight completed, and the next one was decided.
    """

    like: StepFacts
    """The last step before them that had a record of its own."""
    first: int
    """Number of the first of them."""
    moments: list[float]
    free_blocks: list[int]
    """Free blocks before each of them."""
    free_after: list[int]
    completed: int
    """Number of the first step that completed; the others follow it."""
    seconds: list[float]
    """How long the model ran for each that completed."""
    sampled: int
    """Tokens of each that completed."""
    streams: Streams = STEADY
    """What the first that completed changed; the others change nothing."""

    def step(self, index: int) -> StepFacts:
        """The facts of one of them."""
        number, ts, outcome = self.first + index, self.moments[index], self.like.outcome
        if outcome is not None:
            kv = outcome.kv
            numbers = None if kv is None else replace(kv, free=self.free_after[index])
            outcome = replace(outcome, step=number, ts=ts, kv=numbers)
        return replace(self.like, step=number, ts=ts, free_blocks=self.free_blocks[index], outcome=outcome)

    def since(self, index: int) -> RepeatedFacts:
        """The steps from ``index`` on."""
        return msgspec.structs.replace(
            self,
            first=self.first + index,
            moments=self.moments[index:],
            free_blocks=self.free_blocks[index:],
            free_after=self.free_after[index:],
            completed=self.completed + index,
            seconds=self.seconds[index:],
            streams=STEADY if index else self.streams,
        )


class Drafts(NamedTuple):
    """Draft tokens that a step verified, under vLLM's names."""

    num_drafts: int
    """Requests that had any."""
    num_draft_tokens: int
    num_accepted_tokens_per_pos: Sequence[int]


class FactSink(Protocol):
    """Takes facts in the order in which they happened."""

    def trace_started(self, start: TraceStart) -> None:
        """First, if the trace says what ran."""

    def request_arrived(self, record: RequestArrived) -> None:
        """A request entered the queue."""

    def prefix_looked_up(self, record: PrefixCacheLookup) -> None:
        """A prefix was looked up, before the step it belongs to."""

    def step_decided(self, facts: StepFacts) -> None:
        """A step was decided."""

    def step_repeated(self, step: int, ts: float, free_blocks: int) -> None:
        """A step was decided like the last one: no request waited, came, left or was held back in either.

        Its number, its moment and the free blocks are its own; all other facts are the same.
        """

    def steps_repeated(self, steps: RepeatedFacts) -> None:
        """Several steps were decided like the last one, with whichever requests waited, and as many completed."""

    def step_completed(
        self, step: int, ts: float | None, seconds: float | None, sampled: int | None, streams: Streams | None
    ) -> None:
        """The model ran for ``seconds`` until ``ts`` and ``sampled`` so many tokens.

        ``streams``: whose tokens began, paused or went on with it; None where the trace does not record it. With steps
        in flight, later ones may have been decided already.
        """

    def drafts_verified(self, drafts: Drafts) -> None:
        """The step that has just completed verified draft tokens."""

    def request_finished(self, record: RequestFinished) -> None:
        """A request ended."""

    def pin_ended(self, record: PinEnded) -> None:
        """Blocks that were kept for the next turn of a job are free."""
