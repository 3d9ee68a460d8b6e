"""How often the classifier's guess contradicts the recorded truth.

They are compared on steps in which requests were left waiting, a reason was recorded, and the classifier named a
bucket. A guess agrees when its bucket is one that the recorded reason can rightly be put into; some reasons fit
no bucket, because the classifier has no name for them.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from tokenyard.explain.held_back.classifier import Verdict
from tokenyard.trace.format.held_back import main_reason
from tokenyard.trace.format.schema import AdmissionOutcome
from tokenyard.vocabulary.buckets import BUCKETS, Bucket

__all__ = ["Agreement", "Disagreements", "Pair"]


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

    def join(self, other: Agreement) -> None:
        """The steps of another engine, too."""
        self._pairs += other._pairs

    def result(self) -> Disagreements:
        """The comparison so far."""
        pairs = [
            Pair(bucket, reason, steps, reason in BUCKETS[Bucket(bucket)].says)
            for (bucket, reason), steps in sorted(self._pairs.items(), key=lambda item: (-item[1], item[0]))
        ]
        wrong = sum(pair.steps for pair in pairs if not pair.agrees)
        return Disagreements(sum(pair.steps for pair in pairs), wrong, pairs)
