"""The classifier of the trace format: which check most likely blocked admission in a step, judged from counts alone.

It looks at what a snapshot and a decision show and asks the questions in the order in which the scheduler meets them;
the first match is the answer. A trace that records reasons needs no such guess: then the classifier stands beside them,
and ``agreement`` counts where it is wrong.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenyard.trace.format.step_facts import StepFacts
from tokenyard.vocabulary.buckets import (
    BUDGET_SHARE,
    FREE_LOW,
    FREE_PLENTY,
    FREE_TIGHT,
    STEP_REASONS,
    Bucket,
    StepReason,
)

__all__ = ["Verdict", "classify"]


class Verdict(NamedTuple):
    """Answer of the classifier, with the quantities it derived on the way."""

    bucket: Bucket
    reason: StepReason | None
    """None unless requests are known to have been left waiting."""
    unadmitted: int | None
    """Waiting requests that were not admitted."""
    effective_free: int | None
    """Free blocks less those that the running requests' prefill takes."""


def classify(facts: StepFacts) -> Verdict:
    """Judge one step. A check whose numbers are missing does not match."""
    effective = None
    if facts.free_blocks is not None and facts.running_consumed is not None:
        effective = facts.free_blocks - facts.running_consumed
    if facts.num_waiting is None:
        return Verdict(Bucket.UNKNOWN, None, None, effective)
    if facts.num_waiting <= 0:
        return Verdict(_without_queue(facts.num_running), None, 0, effective)
    if facts.num_new is None and facts.num_resumed is None:
        return Verdict(Bucket.UNKNOWN, None, None, effective)
    unadmitted = facts.num_waiting - (facts.num_new or 0) - (facts.num_resumed or 0)
    if unadmitted <= 0:
        return Verdict(Bucket.ADMITTED_ALL, None, 0, effective)
    reason = _hard_limit(facts, effective) or _soft_limit(facts, effective)
    return Verdict(STEP_REASONS[reason].bucket, reason, unadmitted, effective)


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
