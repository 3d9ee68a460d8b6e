"""One sentence about whatever a request waited for."""

from __future__ import annotations

from tokenyard.vocabulary.buckets import STEP_REASONS, StepReason
from tokenyard.vocabulary.reasons import REASONS, Reason
from tokenyard.vocabulary.waits import GAPS, Gap, Place

__all__ = ["GUESS", "UNKNOWN_REASON", "meaning_of", "reason_meaning"]

GUESS = "No reason is recorded; from the step's counts: {meaning}"
"""Begins the sentence about a guess of the classifier."""
UNKNOWN_REASON = "A reason that this version does not know."


def reason_meaning(reason: str) -> str:
    """What a recorded reason means; one of a later version is said to be unknown."""
    return REASONS[Reason(reason)].meaning if reason in REASONS else UNKNOWN_REASON


def meaning_of(reason: str, place: Place) -> str:
    """What a request waited for."""
    if place is Place.OUTSIDE:
        return GAPS[Gap(reason)].meaning
    if place is Place.GUESS:
        return GUESS.format(meaning=STEP_REASONS[StepReason(reason)].meaning)
    return reason_meaning(reason)
