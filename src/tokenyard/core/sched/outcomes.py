"""Why a request was not scheduled, and what a scheduler reports after every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from tokenyard.core.arrays import IntArray
from tokenyard.core.kv.allocation import NO_LOOKUPS, KVLimit, KVShortage, PrefixCacheStats
from tokenyard.core.request import Request, RequestStatus
from tokenyard.vocabulary import OutcomeKind, Reason

__all__ = [
    "BLOCKED_REASONS",
    "KV_REASONS",
    "NO_STATS",
    "EndedPin",
    "Outcome",
    "OutcomeKind",
    "Preemption",
    "Reason",
    "SchedulerStats",
    "SpecDecodingStats",
    "StepOutcomes",
]


# ---------------------------------------------------------------------------------------------------------------------
# Why a request was not scheduled: values recorded where the decision is taken.
#
# An :class:`Outcome` leaves every loop of the scheduler that ends, stops, or goes past a request.


class Outcome(msgspec.Struct, frozen=True):
    """One reason with its numbers."""

    kind: OutcomeKind
    """What the reason ended: the pass, or the turn of one request."""
    reason: Reason
    """Why."""
    request_id: str | None = None
    """The request at which it happened; None when the reason concerns the whole pass."""
    num_requests: int = 0
    """Requests it held back: for a pass, all that were still waiting and not skipped."""
    kv: KVShortage | None = None
    """Blocks, for the ``kv_*`` reasons."""
    wanted_tokens: int = 0
    """Tokens the request wanted, for ``prefill_exceeds_budget`` and ``token_budget``."""
    budget_left: int = 0
    """Tokens left in the step's budget at that moment."""
    smallest_need: int | None = None
    """For ``kv_*``: blocks that the smallest waiting request needs (hits counted for the head only), beside
    ``kv.needed``."""
    detail: str | None = None
    """For ``policy_refused``: the word of the policy, or of its limit."""

    def of_skipped(self) -> Outcome:
        """The same of one request that is skipped, while the pass goes on."""
        return msgspec.structs.replace(self, kind=OutcomeKind.SKIPPED, num_requests=1)


BLOCKED_REASONS = {
    RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR: Reason.WAITING_GRAMMAR,
    RequestStatus.WAITING_FOR_REMOTE_KVS: Reason.WAITING_REMOTE_KV,
    RequestStatus.WAITING_FOR_STREAMING_REQ: Reason.WAITING_STREAM_INPUT,
}
"""Why a request of this status is not looked at."""

KV_REASONS = {
    KVLimit.FULL_SEQUENCE: Reason.KV_FULL_SEQUENCE,
    KVLimit.BLOCKS: Reason.KV_BLOCKS,
    KVLimit.WATERMARK: Reason.KV_WATERMARK,
    KVLimit.STATE_NOT_READY: Reason.MAMBA_STATE_NOT_READY,
}
"""Why memory refused, by the check that did."""


class Preemption(msgspec.Struct, frozen=True):
    """A running request lost its blocks so that another could grow."""

    request_id: str
    """The request that lost its blocks."""
    for_request_id: str
    """The request that needed them."""
    num_computed_tokens: int
    """Tokens it has to compute again (before any prefix hit)."""
    rolled_back_tokens: int
    """Tokens it had already been granted in this very step; 0 if none."""
    kv: KVShortage
    """The refusal that asked for a victim."""


class StepOutcomes(msgspec.Struct, eq=False):
    """Everything that was refused in one step."""

    admission: Outcome | None = None
    """Why the admission pass ended (always set when the step is over)."""
    skipped: list[Outcome] = []
    """Requests that the admission pass looked at and skipped, in order."""
    not_scheduled: list[Outcome] = []
    """Running requests that got no tokens."""
    preemptions: list[Preemption] = []
    """Running requests that lost their blocks, in order."""

    def left_out(self, reason: Reason, request_id: str, **numbers: Any) -> None:
        """A running request gets no tokens."""
        self.not_scheduled.append(Outcome(OutcomeKind.NOT_SCHEDULED, reason, request_id, 1, **numbers))


# ---------------------------------------------------------------------------------------------------------------------
# What a scheduler reports after every step, under vLLM's names.


class SpecDecodingStats:
    """Acceptance of drafts since the last report."""

    __slots__ = ("_accepted", "_drafted", "num_accepted_tokens", "num_draft_tokens", "num_drafts")

    def __init__(self, drafted: list[int], accepted: list[int]) -> None:
        """``drafted[n]`` rows had ``n`` drafts, of ``accepted[n]`` rows ``n`` drafts were accepted."""
        self.num_drafts = sum(drafted)
        self.num_draft_tokens = sum(n * rows for n, rows in enumerate(drafted))
        self.num_accepted_tokens = sum(n * rows for n, rows in enumerate(accepted))
        self._drafted, self._accepted = drafted, accepted

    @property
    def num_accepted_tokens_per_pos(self) -> IntArray:
        """How often the draft at each position was accepted."""
        return _reaching(self._accepted)

    @property
    def num_draft_tokens_per_pos(self) -> IntArray:
        """How often there was a draft at each position."""
        return _reaching(self._drafted)


def _reaching(rows: list[int]) -> IntArray:
    """Return how many rows have more than 0, 1, 2 ... where ``rows[n]`` have ``n``."""
    return np.cumsum(np.array(rows[:0:-1], np.int64))[::-1].copy()


class EndedPin(msgspec.Struct, frozen=True):
    """A pin that is over: what it held, for how long, and what for."""

    request: Request
    """The pinned turn."""
    why: str
    """One of ``tokenyard.vocabulary.PIN_ENDS``."""
    since: float
    """When the turn ended, in seconds."""
    num_blocks: int


class SchedulerStats(msgspec.Struct, frozen=True):
    """Gauges after a step (vLLM's ``SchedulerStats``)."""

    num_running_reqs: int
    num_waiting_reqs: int
    num_skipped_waiting_reqs: int
    kv_cache_usage: float
    prefix_cache_stats: PrefixCacheStats
    spec_decoding_stats: SpecDecodingStats | None = None
    connector_prefix_cache_stats: PrefixCacheStats | None = None
    kv_connector_stats: Mapping[str, int] | None = None


NO_STATS = SchedulerStats(0, 0, 0, 0.0, NO_LOOKUPS)
"""Before there are any."""
