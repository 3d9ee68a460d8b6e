"""The classifier: which check most likely held requests back in a step, by its counts alone, and how often it errs."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

import msgspec

from tokenyard.trace.facts import StepFacts
from tokenyard.trace.held_back import main_reason
from tokenyard.trace.schema import AdmissionOutcome
from tokenyard.vocabulary import GAPS, Family, Gap, Place, Reason, reason_meaning

# ---------------------------------------------------------------------------------------------------------------------
# The words of the classifier, which judges a step of a trace without recorded reasons, and the limits it judges by.
# The viewer has a classifier of its own over the same words and limits.

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


class BucketEntry(msgspec.Struct, frozen=True):
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
    Bucket.UNDER_CAPACITY: BucketEntry("no request waited", Family.HEALTHY, blocked=False),
    Bucket.IDLE: BucketEntry("nothing to do", Family.IDLE, blocked=False),
    Bucket.UNKNOWN: BucketEntry("the trace lacks fields to show it", Family.UNKNOWN, blocked=False),
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


class StepReasonEntry(msgspec.Struct, frozen=True):
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
        f"More than {FREE_PLENTY} blocks were free and no request was admitted: the head of the queue needed more.",
        Bucket.ALLOC_FRAG,
    ),
    StepReason.KV_MARGINAL: StepReasonEntry(
        f"Between {FREE_LOW} and {FREE_PLENTY} blocks were free; which check fired cannot be determined.",
        Bucket.KV_TIGHT,
    ),
    StepReason.UNKNOWN: StepReasonEntry("The trace lacks the fields to show it.", Bucket.UNKNOWN),
}
"""The ten reasons, in order of priority."""


GUESS = "No reason is recorded; from the step's counts: {meaning}"
"""Begins the sentence about a guess of the classifier."""


def meaning_of(reason: str, place: Place) -> str:
    """What a request waited for."""
    if place is Place.OUTSIDE:
        return GAPS[Gap(reason)].meaning
    if place is Place.GUESS:
        return GUESS.format(meaning=STEP_REASONS[StepReason(reason)].meaning)
    return reason_meaning(reason)


# ---------------------------------------------------------------------------------------------------------------------
# The classifier of the trace format: which check most likely blocked admission in a step, judged from counts alone.
#
# It looks at what a snapshot and a decision show and asks the questions in the order in which the scheduler meets
# them; the first match is the answer. A trace that records reasons needs no such guess: then the classifier stands
# beside them, and ``agreement`` counts where it is wrong.


class Classification(msgspec.Struct, frozen=True):
    """What the classifier answers, with the quantities it derived on the way."""

    bucket: Bucket
    reason: StepReason | None
    """None unless requests are known to have been left waiting."""
    unadmitted: int | None
    """Waiting requests that were not admitted."""
    effective_free: int | None
    """Free blocks less those that the running requests' prefill takes."""


def classify(facts: StepFacts) -> Classification:
    """Judge one step. A check whose numbers are missing does not match."""
    effective = None
    if facts.free_blocks is not None and facts.running_consumed is not None:
        effective = facts.free_blocks - facts.running_consumed
    if facts.num_waiting is None:
        return Classification(Bucket.UNKNOWN, None, None, effective)
    if facts.num_waiting <= 0:
        return Classification(_without_queue(facts.num_running), None, 0, effective)
    if facts.num_new is None and facts.num_resumed is None:
        return Classification(Bucket.UNKNOWN, None, None, effective)
    unadmitted = facts.num_waiting - (facts.num_new or 0) - (facts.num_resumed or 0)
    if unadmitted <= 0:
        return Classification(Bucket.ADMITTED_ALL, None, 0, effective)
    reason = _hard_limit(facts, effective) or _soft_limit(facts, effective)
    return Classification(STEP_REASONS[reason].bucket, reason, unadmitted, effective)


def _without_queue(num_running: int | None) -> Bucket:
    if num_running is None:
        return Bucket.UNKNOWN
    return Bucket.UNDER_CAPACITY if num_running > 0 else Bucket.IDLE


def _hard_limit(facts: StepFacts, effective: int | None) -> StepReason | None:
    """Checks 1 to 5: a limit that was provably reached."""
    free, need = facts.free_blocks, facts.min_need
    used, budget = facts.token_sum, facts.token_budget
    if used is not None and budget is not None and used >= BUDGET_SHARE * budget:
        return StepReason.TOK_BUDGET
    if effective is not None and need is not None and effective < need:
        return StepReason.KV_AFTER_RUN
    if free is not None and need is not None and free < need:
        return StepReason.KV_INSUF
    if free is not None and free < FREE_LOW:
        return StepReason.KV_LOW
    if facts.num_running is not None and facts.max_running is not None and facts.num_running >= facts.max_running:
        return StepReason.MAX_SEQS
    return None


def _soft_limit(facts: StepFacts, effective: int | None) -> StepReason:
    """Checks 6 to 10: no limit was provably reached."""
    free = facts.free_blocks
    if effective is not None and effective < FREE_TIGHT:
        return StepReason.KV_TIGHT_AFTER_RUN
    if facts.num_new:
        return StepReason.ALLOC_EXHAUSTED
    if free is not None and free > FREE_PLENTY:
        return StepReason.ALLOC_REJECTED
    if free is not None:  # fewer than FREE_LOW were caught above
        return StepReason.KV_MARGINAL
    return StepReason.UNKNOWN


# ---------------------------------------------------------------------------------------------------------------------
# How often the classifier's guess contradicts the recorded truth.
#
# They are compared on steps in which requests were left waiting, a reason was recorded, and the classifier named a
# bucket. A guess agrees when its bucket is one that the recorded reason can rightly be put into; some reasons fit no
# bucket, because the classifier has no name for them.


class BucketAgreement(msgspec.Struct, frozen=True):
    """Steps that the classifier put into ``bucket`` and whose recorded reason is ``recorded``."""

    bucket: str
    recorded: str
    steps: int
    agrees: bool


class Disagreements(msgspec.Struct, frozen=True):
    """Guess against truth."""

    steps_compared: int
    steps_disagreeing: int
    pairs: list[BucketAgreement]
    """Most frequent first."""


class Agreement:
    """Counts pairs of guess and truth."""

    def __init__(self) -> None:
        self._pairs: Counter[tuple[Bucket, str]] = Counter()

    def add(self, verdict: Classification, outcome: AdmissionOutcome | None, times: int = 1) -> None:
        """Compare one step, or several alike, if it can be compared."""
        if verdict.reason is None or verdict.bucket is Bucket.UNKNOWN or outcome is None:
            return
        reason = main_reason(outcome)
        if reason is not None:
            self._pairs[verdict.bucket, reason] += times

    def join(self, other: Agreement) -> None:
        """The steps of another engine, too."""
        self._pairs += other._pairs

    def result(self) -> Disagreements:
        """The comparison so far."""
        pairs = [
            BucketAgreement(bucket.value, reason, steps, reason in BUCKETS[bucket].says)
            for (bucket, reason), steps in sorted(self._pairs.items(), key=lambda item: (-item[1], item[0]))
        ]
        wrong = sum(pair.steps for pair in pairs if not pair.agrees)
        return Disagreements(sum(pair.steps for pair in pairs), wrong, pairs)
