"""Why a request was not scheduled: values recorded where the decision is taken.

An :class:`Outcome` leaves every loop of the scheduler that ends, stops, or passes a request over.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tokenyard.kv.shortage import KVShortage

__all__ = ["Outcome", "OutcomeKind", "Preemption", "Reason", "StepOutcomes"]


class OutcomeKind(StrEnum):
    """What the reason ended."""

    NOT_ENTERED = "not_entered"
    """The admission pass did not begin."""
    LOOP_ENDED = "loop_ended"
    """The admission pass ran until nothing was left to do or to spend."""
    STOPPED = "stopped"
    """The admission pass stopped at one request; those behind it were not looked at."""
    SKIPPED = "skipped"
    """One waiting request was passed over; the next was tried."""
    NOT_SCHEDULED = "not_scheduled"
    """A running request got no tokens in this step."""


class Reason(StrEnum):
    """The recorded reasons (design table), in the order in which the scheduler can meet them."""

    PREEMPTED_THIS_STEP = "preempted_this_step"
    PAUSED = "paused"
    QUEUES_EMPTY = "queues_empty"
    TOKEN_BUDGET = "token_budget"
    MAX_NUM_SEQS = "max_num_seqs"
    PREFILL_EXCEEDS_BUDGET = "prefill_exceeds_budget"
    KV_FULL_SEQUENCE = "kv_full_sequence"
    KV_BLOCKS = "kv_blocks"
    KV_RESERVED = "kv_reserved"
    KV_WATERMARK = "kv_watermark"
    ENCODER_BUDGET = "encoder_budget"
    MAMBA_ALIGNMENT = "mamba_alignment"
    MAMBA_STATE_NOT_READY = "mamba_state_not_ready"
    WAITING_GRAMMAR = "waiting_grammar"
    WAITING_REMOTE_KV = "waiting_remote_kv"
    WAITING_STREAM_INPUT = "waiting_stream_input"
    LORA_SLOTS = "lora_slots"
    CONNECTOR_UNDECIDED = "connector_undecided"
    ENCODER_CACHE_NOT_READY = "encoder_cache_not_ready"
    ASYNC_KV_LOAD_STARTED = "async_kv_load_started"
    PLACEHOLDERS_COVER_LIMIT = "placeholders_cover_limit"
    NO_NEW_TOKENS = "no_new_tokens"
    RUNNING_INDEX_DRIFT = "running_index_drift"
    SELF_PREEMPTED = "self_preempted"


class Outcome(NamedTuple):
    """One reason with its numbers."""

    kind: OutcomeKind
    reason: Reason
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
    for_request_id: str
    num_computed_tokens: int
    """Tokens it has to compute again (before any prefix hit)."""
    rolled_back_tokens: int
    """Tokens it had already been granted in this very step; 0 if none."""
    kv: KVShortage
    """The refusal that asked for a victim."""


class StepOutcomes:
    """Everything that was refused in one step."""

    __slots__ = ("admission", "not_scheduled", "preemptions", "skipped")

    def __init__(self) -> None:
        self.admission: Outcome | None = None
        """Why the admission pass ended (always set when the step is over)."""
        self.skipped: list[Outcome] = []
        self.not_scheduled: list[Outcome] = []
        self.preemptions: list[Preemption] = []
