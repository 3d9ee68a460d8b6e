"""Whom a step held back, and for what: the one reading of an ``admission_outcome``.

The report, its live twin, Prometheus, the exporters, the comparison of guess and truth and the split of one request's
waiting time all ask here, so their figures add up to each other. The viewer reads traces in a browser and has this rule
once more; a test with random traces keeps the two together.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenyard.trace.format.schema import AdmissionOutcome
from tokenyard.vocabulary.reasons import REASONS, Reason, holds

__all__ = ["held_by_reason", "main_reason"]


def held_by_reason(outcome: AdmissionOutcome) -> dict[str, int]:
    """Requests that the step held back, per reason: waiting ones, and running ones that wanted tokens and got none.

    Every request counts once: a running request that preempted itself is among those who wait when the step is over,
    and only its own reason counts it.
    """
    skipped = outcome.skipped_counts
    stalled = {name: count for name, count in (outcome.not_scheduled_counts or {}).items() if holds(name)}
    held: dict[str, int] = {}
    if outcome.reason is not None and outcome.num_requests:
        held[outcome.reason] = max(outcome.num_requests - _counted_twice(stalled, outcome.reason), 0)
    for counts in (skipped, stalled):
        for reason, count in (counts or {}).items():
            held[reason] = held.get(reason, 0) + count
    return {reason: count for reason, count in held.items() if count > 0} if skipped or stalled else held


def _counted_twice(stalled: Mapping[str, int] | None, reason: str) -> int:
    """Requests that got no tokens and are counted by ``reason``, of the whole pass, as well."""
    return sum(
        count
        for name, count in (stalled or {}).items()
        if name in REASONS and REASONS[Reason(name)].counted_in == reason
    )


def main_reason(outcome: AdmissionOutcome) -> str | None:
    """The reason that stands for the step: why its admission pass held requests back.

    A pass that held back nobody itself has the reason of most of those it skipped; None if there are none.
    """
    if outcome.num_requests:
        return outcome.reason
    skipped = outcome.skipped_counts
    if skipped:
        return max(skipped, key=lambda reason: (skipped[reason], reason))
    return outcome.reason if outcome.num_requests is None else None
