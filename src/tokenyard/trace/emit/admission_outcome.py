"""A step's refusals as a record: the scheduler's own values, put into the words of the trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tokenyard.kv.shortage import KVShortage
from tokenyard.sched.steps.outcomes import Outcome, Preemption, Reason, StepOutcomes
from tokenyard.trace.format.schema import AdmissionOutcome, KVNumbers, PreemptionNumbers, Refusal

__all__ = ["outcome_record"]


def outcome_record(
    step: int, ts: float, policy: str | None, outcomes: StepOutcomes, limit: int | None
) -> AdmissionOutcome | None:
    """The ``admission_outcome`` of a step, or None when nothing was held back, skipped or preempted.

    Lists name at most ``limit`` requests; the counts beside them are exact.
    """
    ended = outcomes.admission
    held = ended.num_requests if ended is not None else 0
    if not (held or outcomes.skipped or outcomes.not_scheduled or outcomes.preemptions):
        return None
    record = AdmissionOutcome(step=step, ts=ts, policy=policy)
    if ended is not None:
        record.kind = ended.kind.value
        record.reason = ended.reason.value
        record.req_id = ended.request_id
        record.num_requests = held
        record.kv = _numbers(ended.kv)
        record.smallest_need = ended.smallest_need
        record.wanted_tokens = ended.wanted_tokens or None
        record.budget_left = ended.budget_left
    if outcomes.skipped:
        record.skipped_counts = _counts(outcomes.skipped)
        record.skipped = _refusals(outcomes.skipped, limit)
        record.skipped_omitted = _beyond(outcomes.skipped, limit)
    stalled = _still_running(outcomes)
    if stalled:
        record.not_scheduled_counts = _counts(stalled)
        record.not_scheduled = _refusals(stalled, limit)
        record.not_scheduled_omitted = _beyond(stalled, limit)
    if outcomes.preemptions:
        record.preemptions = [_preemption(each) for each in outcomes.preemptions]
    return record


def _still_running(outcomes: StepOutcomes) -> Sequence[Outcome]:
    """Who got no tokens: not those that were preempted later in the step, unless it was for themselves."""
    refused = outcomes.not_scheduled
    if not outcomes.preemptions or not refused:
        return refused
    victims = {each.request_id for each in outcomes.preemptions}
    return [each for each in refused if each.reason is Reason.SELF_PREEMPTED or each.request_id not in victims]


def _counts(refused: Sequence[Outcome]) -> dict[str, int]:
    return dict(Counter(each.reason.value for each in refused))


def _beyond(refused: Sequence[Outcome], limit: int | None) -> int | None:
    return len(refused) - limit if limit is not None and len(refused) > limit else None


def _refusals(refused: Sequence[Outcome], limit: int | None) -> list[Refusal]:
    return [
        Refusal(
            reason=each.reason.value,
            req_id=each.request_id,
            wanted_tokens=each.wanted_tokens or None,
            budget_left=each.budget_left or None,
            kv=_numbers(each.kv),
        )
        for each in refused[:limit]
    ]


def _preemption(each: Preemption) -> PreemptionNumbers:
    return PreemptionNumbers(
        req_id=each.request_id,
        for_req_id=each.for_request_id,
        num_computed_tokens=each.num_computed_tokens,
        rolled_back_tokens=each.rolled_back_tokens,
        kv=_numbers(each.kv),
    )


def _numbers(kv: KVShortage | None) -> KVNumbers | None:
    if kv is None:
        return None
    return KVNumbers(
        limit=kv.limit.value,
        needed=kv.needed,
        free=kv.free,
        cached_hits=kv.cached_hits,
        reserved=kv.reserved,
        watermark=kv.watermark,
        pinned=kv.pinned,
    )
