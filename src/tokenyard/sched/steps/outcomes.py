"""Why a request was not scheduled: values recorded where the decision is taken.

An :class:`Outcome` leaves every loop of the scheduler that ends, stops, or passes a request over.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tokenyard.kv.shortage import KVShortage
from tokenyard.vocabulary.reasons import OutcomeKind, Reason

__all__ = ["Outcome", "OutcomeKind", "Preemption", "Reason", "StepOutcomes"]


class Outcome(NamedTuple):
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


class Preemption(NamedTuple):
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
    """Requests that the admission pass looked at and passed over, in order."""
    not_scheduled: list[Outcome] = []
    """Running requests that got no tokens."""
    preemptions: list[Preemption] = []
    """Running requests that lost their blocks, in order."""
