"""How often the classifier's guess contradicts the recorded truth.

They are compared on steps in which requests were left waiting, a reason was recorded, and the classifier named a
bucket. A guess agrees when its bucket is one that the recorded reason can rightly be put into; some reasons fit
no bucket, because the classifier has no name for them.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from tokenyard.explain.held_back.classifier import Bucket, Verdict
from tokenyard.trace.format.schema import AdmissionOutcome

__all__ = ["FITTING_BUCKETS", "Agreement", "Disagreements", "Pair", "main_reason"]

_OUT_OF_BLOCKS = frozenset((Bucket.KV_EXHAUSTED, Bucket.KV_TIGHT, Bucket.ALLOC_EXHAUSTED))
FITTING_BUCKETS: dict[str, frozenset[Bucket]] = {
    "token_budget": frozenset((Bucket.TOK_BUDGET,)),
    "prefill_exceeds_budget": frozenset((Bucket.TOK_BUDGET,)),
    "max_num_seqs": frozenset((Bucket.MAX_SEQS,)),
    "kv_full_sequence": _OUT_OF_BLOCKS,
    "kv_blocks": _OUT_OF_BLOCKS,
    "kv_reserved": _OUT_OF_BLOCKS,
    "kv_watermark": _OUT_OF_BLOCKS,
    "preempted_this_step": frozenset((Bucket.KV_EXHAUSTED, Bucket.KV_TIGHT)),
}
"""Recorded reason -> buckets that say the same. ``alloc-frag`` is nowhere: uniform blocks cannot fragment, so what it
blames did not happen."""


class Pair(msgspec.Struct, frozen=True):
    """Steps that the classifier put into ``bucket`` and whose recorded reason is ``recorded``."""

    bucket: str
    recorded: str
    steps: int
    agrees: bool


class Disagreements(msgspec.Struct, frozen=True):
    """Guess against truth."""

    steps_compared: int
    steps_disagreeing: int
    pairs: list[Pair]
    """Most frequent first."""


def main_reason(outcome: AdmissionOutcome) -> str | None:
    """The reason that held back most of a step's waiting requests.

    A pass that reached the end of the queue held back nobody itself; then it is the reason of most of the skipped.
    """
    skipped = outcome.skipped_counts
    if skipped and not outcome.num_requests:
        return max(skipped, key=lambda reason: (skipped[reason], reason))
    return outcome.reason


class Agreement:
    """Counts pairs of guess and truth."""

    def __init__(self) -> None:
        self._pairs: Counter[tuple[str, str]] = Counter()

    def add(self, verdict: Verdict, outcome: AdmissionOutcome | None) -> None:
        """Compare one step, if it can be compared."""
        if verdict.reason is None or verdict.bucket is Bucket.UNKNOWN or outcome is None:
            return
        reason = main_reason(outcome)
        if reason is not None:
            self._pairs[verdict.bucket.value, reason] += 1

    def result(self) -> Disagreements:
        """The comparison so far."""
        pairs = [
            Pair(bucket, reason, steps, bucket in FITTING_BUCKETS.get(reason, ()))
            for (bucket, reason), steps in sorted(self._pairs.items(), key=lambda item: (-item[1], item[0]))
        ]
        wrong = sum(pair.steps for pair in pairs if not pair.agrees)
        return Disagreements(sum(pair.steps for pair in pairs), wrong, pairs)
