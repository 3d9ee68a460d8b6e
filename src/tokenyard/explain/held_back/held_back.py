"""Why one step held back a certain request: what the split of its waiting time asks.

``trace/format/held_back.py`` counts the same requests per reason, so the waits of all requests add up to the report's
time lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tokenyard.trace.format.schema import AdmissionOutcome, Refusal
from tokenyard.vocabulary.reasons import Reason, holds
from tokenyard.vocabulary.waits import Gap, Place

__all__ = ["BETWEEN_STEPS", "FRONT_END", "NOT_RECORDED", "STEP_IN_PROGRESS", "Cause", "HeldBack"]


class Cause(NamedTuple):
    """Why a waiting request did not run in a step."""

    reason: str
    place: Place


NOT_RECORDED = Cause(Gap.NOT_RECORDED, Place.OUTSIDE)
"""The trace has no word on it: a step was sampled away, or its outcome is missing."""
NOT_LISTED = Cause(Gap.NOT_LISTED, Place.OUTSIDE)
"""The bound on ids leaves out which of several reasons it was."""
FRONT_END = Cause(Gap.FRONT_END, Place.OUTSIDE)
"""The front end had it, the scheduler had not: as far as the trace shows, and perhaps longer."""
STEP_IN_PROGRESS = Cause(Gap.STEP_IN_PROGRESS, Place.OUTSIDE)
"""It arrived while a step ran; the scheduler decides when the next one begins."""
BETWEEN_STEPS = Cause(Gap.BETWEEN_STEPS, Place.OUTSIDE)
"""No step ran: the host had not begun the next one."""


class HeldBack:
    """The causes of one step: that of everybody who waits, and of those whom the outcome names."""

    __slots__ = ("named", "shared", "stalled")

    def __init__(self, shared: Cause = NOT_RECORDED) -> None:
        self.shared = shared
        """Of every waiting request that is not in ``named``."""
        self.named: dict[str, Cause] = {}
        self.stalled: dict[str, Cause] = {}
        """Running requests that got no tokens."""

    @classmethod
    def of(cls, outcome: AdmissionOutcome) -> HeldBack:
        """What the outcome of a step says."""
        held = cls(_shared(outcome))
        for refusal in outcome.skipped or ():
            if refusal.req_id is not None:
                held.named[refusal.req_id] = Cause(refusal.reason, Place.OWN)
        if outcome.num_requests and outcome.reason is not None and outcome.req_id is not None:
            held.named[outcome.req_id] = Cause(outcome.reason, Place.OWN)
        for refusal in outcome.not_scheduled or ():
            if refusal.req_id is not None and holds(refusal.reason):
                held.stalled[refusal.req_id] = Cause(refusal.reason, Place.OWN)
        return held

    def preempt(self, request_ids: Iterable[str], outcome: AdmissionOutcome | None) -> None:
        """Requests lost their blocks in this step: they wait, whatever else is said of them."""
        own = {
            each.req_id for each in (outcome.preemptions if outcome else None) or () if each.req_id == each.for_req_id
        }
        for request_id in request_ids:
            self.stalled.pop(request_id, None)
            self.named[request_id] = Cause(
                Reason.SELF_PREEMPTED if request_id in own else Reason.PREEMPTED_THIS_STEP, Place.OWN
            )

    def cause_of(self, request_id: str) -> Cause:
        """Of a request that waits."""
        return self.named.get(request_id, self.shared)


def _shared(outcome: AdmissionOutcome) -> Cause:
    """The cause of a waiting request that the outcome does not name."""
    causes = [Cause(reason, Place.OWN) for reason in _skips_not_listed(outcome)]
    if outcome.num_requests and outcome.reason is not None:
        causes.append(Cause(outcome.reason, Place.ALL if outcome.req_id is None else Place.BEHIND))
    if not causes:
        return NOT_RECORDED
    return causes[-1] if len({cause.reason for cause in causes}) == 1 else NOT_LISTED


def _skips_not_listed(outcome: AdmissionOutcome) -> list[str]:
    """Reasons of skipped requests that a bound on ids leaves out of the list."""
    if not outcome.skipped_omitted:
        return []
    listed: list[Refusal] = outcome.skipped or []
    left = Counter(outcome.skipped_counts or {})
    left.subtract(Counter(refusal.reason for refusal in listed))
    return [reason for reason, count in left.items() if count > 0]
