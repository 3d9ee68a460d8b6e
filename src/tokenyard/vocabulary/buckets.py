"""The words of the classifier, which judges a step of a trace without recorded reasons, and the limits it judges by.

The classifier itself is ``explain/held_back/classifier.py``; the viewer has one of its own over the same words and
limits.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tokenyard.vocabulary.families import Family
from tokenyard.vocabulary.reasons import Reason

__all__ = [
    "BUCKETS",
    "BUDGET_SHARE",
    "FREE_LOW",
    "FREE_PLENTY",
    "FREE_TIGHT",
    "STEP_REASONS",
    "Bucket",
    "BucketEntry",
    "StepReason",
    "StepReasonEntry",
]

BUDGET_SHARE = 0.95
"""Share of the token budget from which it counts as spent."""
FREE_LOW = 20
"""Blocks; with fewer free, memory is out."""
FREE_TIGHT = 200
"""Blocks; with fewer free after the running requests' prefill, memory is tight."""
FREE_PLENTY = 500
"""Blocks; with more free, memory was not short."""


class Bucket(StrEnum):
    """What kind of step it was; every step is in exactly one."""

    TOK_BUDGET = "tok-budget"
    KV_EXHAUSTED = "kv-exhausted"
    MAX_SEQS = "max-seqs"
    ALLOC_FRAG = "alloc-frag"
    ALLOC_EXHAUSTED = "alloc-exhausted"
    KV_TIGHT = "kv-tight"
    ADMITTED_ALL = "admitted-all"
    UNDER_CAPACITY = "under-capacity"
    IDLE = "idle"
    UNKNOWN = "unknown"


class BucketEntry(NamedTuple):
    """What is known of a bucket."""

    meaning: str
    family: Family
    blocked: bool = True
    """Requests were left waiting in its steps."""
    says: frozenset[Reason] = frozenset()
    """Recorded reasons that the bucket rightly stands for."""


_OUT_OF_BLOCKS = frozenset((Reason.KV_FULL_SEQUENCE, Reason.KV_BLOCKS, Reason.KV_WATERMARK))
_SPENT = frozenset((Reason.TOKEN_BUDGET, Reason.PREFILL_EXCEEDS_BUDGET))
_OR_PREEMPTED = _OUT_OF_BLOCKS | {Reason.PREEMPTED_THIS_STEP}

BUCKETS = {
    Bucket.TOK_BUDGET: BucketEntry("the step's token budget was spent", Family.TOKENS, says=_SPENT),
    Bucket.KV_EXHAUSTED: BucketEntry("too few free KV blocks", Family.MEMORY, says=_OR_PREEMPTED),
    Bucket.MAX_SEQS: BucketEntry(
        "as many running as allowed", Family.SEQUENCES, says=frozenset((Reason.MAX_NUM_SEQS,))
    ),
    Bucket.ALLOC_FRAG: BucketEntry("refused with many blocks free", Family.ORDER),
    Bucket.ALLOC_EXHAUSTED: BucketEntry("some admitted, then refused", Family.MEMORY, says=_OUT_OF_BLOCKS),
    Bucket.KV_TIGHT: BucketEntry("nearly full, not provably short", Family.MEMORY, says=_OR_PREEMPTED),
    Bucket.ADMITTED_ALL: BucketEntry("every waiting request got in", Family.HEALTHY, blocked=False),
    Bucket.UNDER_CAPACITY: BucketEntry("nobody waited", Family.HEALTHY, blocked=False),
    Bucket.IDLE: BucketEntry("nothing to do", Family.IDLE, blocked=False),
    Bucket.UNKNOWN: BucketEntry("the trace lacks fields to tell", Family.UNKNOWN, blocked=False),
}
"""The ten buckets. ``alloc-frag`` says no reason: uniform blocks cannot fragment, so what it blames did not happen."""


class StepReason(StrEnum):
    """Why a blocked step was blocked, in order of priority."""

    TOK_BUDGET = "tok-budget"
    KV_AFTER_RUN = "kv-after-run"
    KV_INSUF = "kv-insuf"
    KV_LOW = "kv-low"
    MAX_SEQS = "max-seqs"
    KV_TIGHT_AFTER_RUN = "kv-tight-after-run"
    ALLOC_EXHAUSTED = "alloc-exhausted"
    ALLOC_REJECTED = "alloc-rejected"
    KV_MARGINAL = "kv-marginal"
    UNKNOWN = "unknown"


class StepReasonEntry(NamedTuple):
    """What is known of a reason of the classifier."""

    meaning: str
    bucket: Bucket
    """The bucket that absorbs it."""
    proves: Reason | None = None
    """The recorded reason that it proves; None if it proves none."""


STEP_REASONS = {
    StepReason.TOK_BUDGET: StepReasonEntry(
        f"At least {BUDGET_SHARE:.0%} of the step's token budget was given out.".replace("%", " %"),
        Bucket.TOK_BUDGET,
        Reason.TOKEN_BUDGET,
    ),
    StepReason.KV_AFTER_RUN: StepReasonEntry(
        "After the running requests' prefill, fewer blocks were free than the smallest waiting request needs.",
        Bucket.KV_EXHAUSTED,
        Reason.KV_BLOCKS,
    ),
    StepReason.KV_INSUF: StepReasonEntry(
        "Fewer blocks were free than the smallest waiting request needs.", Bucket.KV_EXHAUSTED, Reason.KV_BLOCKS
    ),
    StepReason.KV_LOW: StepReasonEntry(
        f"Fewer than {FREE_LOW} blocks were free.", Bucket.KV_EXHAUSTED, Reason.KV_BLOCKS
    ),
    StepReason.MAX_SEQS: StepReasonEntry(
        "As many requests were running as max_num_seqs allows.", Bucket.MAX_SEQS, Reason.MAX_NUM_SEQS
    ),
    StepReason.KV_TIGHT_AFTER_RUN: StepReasonEntry(
        f"After the running requests' prefill, fewer than {FREE_TIGHT} blocks were free.", Bucket.KV_TIGHT
    ),
    StepReason.ALLOC_EXHAUSTED: StepReasonEntry(
        "Some requests were admitted, then one was refused.", Bucket.ALLOC_EXHAUSTED
    ),
    StepReason.ALLOC_REJECTED: StepReasonEntry(
        f"More than {FREE_PLENTY} blocks were free and nobody was admitted: the head of the queue needed more.",
        Bucket.ALLOC_FRAG,
    ),
    StepReason.KV_MARGINAL: StepReasonEntry(
        f"Between {FREE_LOW} and {FREE_PLENTY} blocks were free; which check fired cannot be told.", Bucket.KV_TIGHT
    ),
    StepReason.UNKNOWN: StepReasonEntry("The trace lacks the fields to tell.", Bucket.UNKNOWN),
}
"""The ten reasons, in order of priority."""
