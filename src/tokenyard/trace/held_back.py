"""Which requests a step held back, and for what, by the reasons that its trace records.

What an ``admission_outcome`` says of that is read here alone, once as numbers and once as the cause of each request.
Its blocks and tokens are read by what shows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tokenyard.trace.schema import AdmissionOutcome, Refusal
from tokenyard.vocabulary import REASONS, Gap, Place, Reason, holds

# ---------------------------------------------------------------------------------------------------------------------
# How many requests a step held back, by reason.
#
# The report, its live twin, Prometheus, the exporters, the comparison of guess and truth and the split of one
# request's waiting time all ask here, so their figures add up to each other. The viewer reads traces in a browser and
# has this rule once more; a test with random traces keeps the two together.


def held_by_reason(outcome: AdmissionOutcome) -> dict[str, int]:
    """Requests that the step held back, per reason: waiting ones, and running ones that wanted tokens and got none.

    Every request counts once: a running request that preempted itself is among those that wait when the step is over,
    and only its own reason counts it.
    """
    skipped, stalled = outcome.skipped_counts, outcome.not_scheduled_counts
    if stalled:
        stalled = {name: count for name, count in stalled.items() if holds(name)}
    if not (skipped or stalled):  # as in nearly every step
        waiting = outcome.num_requests
        return {outcome.reason: max(waiting, 0)} if outcome.reason is not None and waiting else {}
    held: dict[str, int] = {}
    if outcome.reason is not None and outcome.num_requests:
        held[outcome.reason] = max(outcome.num_requests - _counted_twice(stalled, outcome.reason), 0)
    for counts in (skipped, stalled):
        for reason, count in (counts or {}).items():
            held[reason] = held.get(reason, 0) + count
    return {reason: count for reason, count in held.items() if count > 0}


def _counted_twice(stalled: Mapping[str, int] | None, reason: str) -> int:
    """Requests that got no tokens and are counted by ``reason``, of the whole pass, as well."""
    return sum(
        count
        for name, count in (stalled or {}).items()
        if name in REASONS and REASONS[Reason(name)].counted_in == reason
    )


def held_by_word(outcome: AdmissionOutcome) -> dict[str, int]:
    """Requests that a policy refused and that are listed with a word of its own, counted per word."""
    held: dict[str, int] = {}
    if outcome.reason == Reason.POLICY_REFUSED and outcome.detail and outcome.num_requests:
        held[outcome.detail] = outcome.num_requests
    for counts, listed in (
        (outcome.skipped_counts, outcome.skipped),
        (outcome.not_scheduled_counts, outcome.not_scheduled),
    ):
        words = [each.detail for each in listed or () if each.reason == Reason.POLICY_REFUSED and each.detail]
        for word in words[: (counts or {}).get(Reason.POLICY_REFUSED, 0)]:
            held[word] = held.get(word, 0) + 1
    return held


def main_reason(outcome: AdmissionOutcome) -> str | None:
    """The reason that stands for the step: why its admission pass held requests back.

    A pass that held back no request itself has the reason of most of those it skipped; None if there are none.
    """
    if outcome.num_requests:
        return outcome.reason
    skipped = outcome.skipped_counts
    if skipped:
        return max(skipped, key=lambda reason: (skipped[reason], reason))
    return outcome.reason if outcome.num_requests is None else None


# ---------------------------------------------------------------------------------------------------------------------
# Why a step held back a certain request: what the split of its waiting time asks.
#
# These are the requests that are counted above, so the waits of all requests add up to the report's time lost.


class Cause(NamedTuple):
    """Why a waiting request did not run in a step."""

    reason: str
    place: Place


NOT_RECORDED = Cause(Gap.NOT_RECORDED, Place.OUTSIDE)
"""The trace does not record it: a step was sampled away, or its outcome is missing."""
NOT_LISTED = Cause(Gap.NOT_LISTED, Place.OUTSIDE)
"""The bound on ids leaves out which of several reasons it was."""
FRONT_END = Cause(Gap.FRONT_END, Place.OUTSIDE)
"""The front end had it, the scheduler had not: as far as the trace shows, and perhaps longer."""
STEP_IN_PROGRESS = Cause(Gap.STEP_IN_PROGRESS, Place.OUTSIDE)
"""It arrived while a step ran; the scheduler decides when the next one begins."""
BETWEEN_STEPS = Cause(Gap.BETWEEN_STEPS, Place.OUTSIDE)
"""No step ran: the host had not begun the next one."""


class HeldBack:
    """The causes of one step: one that all waiting requests share, and those of requests that the outcome names."""

    __slots__ = ("named", "shared", "stalled")

    def __init__(self, shared: Cause = NOT_RECORDED) -> None:
        self.shared = shared
        """Cause of every waiting request that is not in ``named``."""
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
        """Requests lost their blocks in this step: they wait, whatever else the outcome holds."""
        own = {
            each.req_id for each in (outcome.preemptions if outcome else None) or () if each.req_id == each.for_req_id
        }
        for request_id in request_ids:
            self.stalled.pop(request_id, None)
            self.named[request_id] = Cause(
                Reason.SELF_PREEMPTED if request_id in own else Reason.PREEMPTED_THIS_STEP, Place.OWN
            )

    def cause_of(self, request_id: str) -> Cause:
        """What holds back a request that waits."""
        return self.named.get(request_id, self.shared)


def _shared(outcome: AdmissionOutcome) -> Cause:
    """The cause that all waiting requests share which the outcome does not name."""
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
