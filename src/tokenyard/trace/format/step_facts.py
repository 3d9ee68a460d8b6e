"""What happened in a step, in numbers: as every statistic takes it, live or from a file.

The recorder makes facts without building a single id list; the reader makes the same facts from records. So a report on
a finished run and a report on its trace come from the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.trace.format.schema import (
    AdmissionOutcome,
    PrefixCacheLookup,
    RequestArrived,
    RequestFinished,
    RequestRecord,
    TraceStart,
)

__all__ = ["CLASSIFIER_BLOCK_SIZE", "Drafts", "FactSink", "StepFacts", "blocks_for", "least_need", "running_consumed"]

IntArray = npt.NDArray[np.int64]
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
    prefill = tokens[tokens > 1].tolist() if isinstance(tokens, np.ndarray) else [n for n in tokens if n > 1]
    return sum([blocks_for(count, block_size) for count in prefill])


class StepFacts(msgspec.Struct, kw_only=True, gc=False):
    """Counts of one step. None where the trace does not tell."""

    step: int
    ts: float | None = None
    policy: str | None = None
    free_blocks: int | None = None
    total_blocks: int | None = None
    cpu_free_blocks: int | None = None
    cpu_total_blocks: int | None = None
    token_budget: int | None = None
    max_running: int | None = None
    num_running: int | None = None
    """Before the step, as are all of the above."""
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
        """Before the step it belongs to."""

    def step_decided(self, facts: StepFacts) -> None:
        """A step was decided."""

    def step_repeated(self, step: int, ts: float, free_blocks: int) -> None:
        """A step was decided like the last one: nobody waited, came, left or was held back in either.

        Its number, its moment and the free blocks are its own; all other facts are the same.
        """

    def step_completed(self, step: int, ts: float | None, seconds: float | None, sampled: int | None) -> None:
        """The model ran for ``seconds`` until ``ts`` and ``sampled`` so many tokens.

        With steps in flight, later ones may have been decided already.
        """

    def drafts_verified(self, drafts: Drafts) -> None:
        """The step that has just completed verified draft tokens."""

    def request_finished(self, record: RequestFinished) -> None:
        """A request ended."""
