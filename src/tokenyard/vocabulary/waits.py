"""What a request goes through, where its waiting time goes, and how a reason met it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tokenyard.vocabulary.families import Family

__all__ = ["GAPS", "PHASES", "PLACES", "WAIT_STATES", "Gap", "GapEntry", "Phase", "Place", "PlaceEntry", "WaitState"]


class Phase(StrEnum):
    """What a request does at a moment."""

    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    PREEMPTED = "preempted"


PHASES = {
    Phase.QUEUED: "It waits to be scheduled for the first time.",
    Phase.PREFILL: "It runs and computes its prompt.",
    Phase.DECODE: "It runs and brings output tokens.",
    Phase.PREEMPTED: "It had run, lost its blocks and waits again.",
}
"""What each phase means."""


class WaitState(StrEnum):
    """What a request was while it got no tokens."""

    QUEUED = "queued"
    PREEMPTED = "preempted"
    STALLED = "stalled"


WAIT_STATES = {
    WaitState.QUEUED: "before it was first scheduled",
    WaitState.PREEMPTED: "after losing its blocks",
    WaitState.STALLED: "running without tokens",
}
"""When it waited, in words that go on after "it waited"."""


class Place(StrEnum):
    """How a reason met a request."""

    OWN = "own"
    BEHIND = "behind"
    ALL = "all"
    GUESS = "guess"
    OUTSIDE = "outside"


class PlaceEntry(NamedTuple):
    """How to say it."""

    word: str
    """For a column of a table."""
    meaning: str


PLACES = {
    Place.OWN: PlaceEntry("itself", "It was refused, passed over or preempted itself."),
    Place.BEHIND: PlaceEntry("behind the head", "It stood behind the one that was refused."),
    Place.ALL: PlaceEntry("everybody", "It held back everyone alike."),
    Place.GUESS: PlaceEntry("a guess", "Guessed from counts: no reason is recorded."),
    Place.OUTSIDE: PlaceEntry("", ""),
}
"""How a reason met a request, in words; ``outside`` has none: no decision held it back, or the trace does not tell."""


class Gap(StrEnum):
    """Waiting time that no decision explains."""

    FRONT_END = "front_end"
    STEP_IN_PROGRESS = "step_in_progress"
    BETWEEN_STEPS = "between_steps"
    NOT_RECORDED = "not_recorded"
    NOT_LISTED = "not_listed"


class GapEntry(NamedTuple):
    """What is known of such time."""

    meaning: str
    family: Family


GAPS = {
    Gap.FRONT_END: GapEntry(
        "It was on its way to the scheduler: the server's front end had it, the scheduler did not yet.", Family.IDLE
    ),
    Gap.STEP_IN_PROGRESS: GapEntry(
        "A step was running when it arrived; the scheduler decides when the next one begins.", Family.IDLE
    ),
    Gap.BETWEEN_STEPS: GapEntry("No step was running; the host had not begun the next one.", Family.IDLE),
    Gap.NOT_RECORDED: GapEntry("The trace does not tell: steps are left out of it, or their outcomes.", Family.UNKNOWN),
    Gap.NOT_LISTED: GapEntry("One of several reasons; the trace's bound on ids leaves out which.", Family.UNKNOWN),
}
"""What each of them means."""
