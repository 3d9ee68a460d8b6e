"""Facts of a step from its records: the counts of the trace format, and the quantities its classifier derives."""

from __future__ import annotations

from tokenyard.trace.format.schema import RequestRecord, StepDecision, StepSnapshot
from tokenyard.trace.format.step_facts import CLASSIFIER_BLOCK_SIZE, StepFacts, least_need, running_consumed
from tokenyard.trace.read.step_joiner import Step

__all__ = ["facts_of"]

_NO_SNAPSHOT = StepSnapshot(step=-1)
_NO_DECISION = StepDecision(step=-1)


def facts_of(step: Step, block_size: int = CLASSIFIER_BLOCK_SIZE) -> StepFacts:
    """The counts of ``step``; what its records do not tell is None."""
    snapshot, decision = step.snapshot or _NO_SNAPSHOT, step.decision or _NO_DECISION
    waiting_omitted = snapshot.waiting_req_ids_omitted or 0
    running_omitted = snapshot.running_req_ids_omitted or 0
    return StepFacts(
        step=step.number,
        ts=step.ts,
        policy=snapshot.policy or decision.policy,
        free_blocks=snapshot.free_blocks,
        total_blocks=snapshot.total_blocks,
        cpu_free_blocks=snapshot.cpu_free_blocks,
        cpu_total_blocks=snapshot.cpu_total_blocks,
        token_budget=snapshot.max_num_scheduled_tokens,
        max_running=snapshot.max_num_running_reqs,
        num_running=_queue_length(
            snapshot.num_running, snapshot.running_req_ids, running_omitted, step.requests, "running"
        ),
        num_waiting=_queue_length(
            snapshot.num_waiting, snapshot.waiting_req_ids, waiting_omitted, step.requests, "waiting"
        ),
        num_new=_count(decision.scheduled_new_req_ids, decision.scheduled_new_req_ids_omitted),
        num_resumed=_count(decision.scheduled_resumed_req_ids, decision.scheduled_resumed_req_ids_omitted),
        num_preempted=_count(decision.preempted_req_ids, None),
        token_sum=_token_sum(decision),
        running_consumed=_running_consumed(snapshot, decision, block_size),
        min_need=None if waiting_omitted else least_need(_waiting(step.requests), block_size),
        recomputed_tokens=decision.recomputed_tokens,
        outcome=step.outcome,
        omitted_ids=waiting_omitted + running_omitted,
    )


def _queue_length(
    count: int | None, ids: list[str] | None, omitted: int, requests: list[RequestRecord], queue: str
) -> int | None:
    if count is not None:
        return count
    if ids is not None:
        return len(ids) + omitted
    return sum(request.queue == queue for request in requests) if requests else None


def _count(ids: list[str] | None, omitted: int | None) -> int | None:
    return None if ids is None else len(ids) + (omitted or 0)


def _incomplete(decision: StepDecision) -> bool:
    """Scheduled requests were left out of the map of tokens."""
    return bool(
        decision.scheduled_running_req_ids_omitted
        or decision.scheduled_new_req_ids_omitted
        or decision.scheduled_resumed_req_ids_omitted
    )


def _token_sum(decision: StepDecision) -> int | None:
    tokens = decision.num_scheduled_tokens
    if tokens is None or _incomplete(decision):
        return decision.total_scheduled_tokens
    return sum(tokens.values())


def _running_consumed(snapshot: StepSnapshot, decision: StepDecision, block_size: int) -> int | None:
    if decision.running_consumed_blocks is not None:
        return decision.running_consumed_blocks
    tokens, running = decision.num_scheduled_tokens, decision.scheduled_running_req_ids
    if running is None:
        running = snapshot.running_req_ids
    if tokens is None or running is None:
        return None
    return running_consumed([tokens.get(request_id, 0) for request_id in running], block_size)


def _waiting(requests: list[RequestRecord]) -> list[RequestRecord]:
    return [request for request in requests if request.queue == "waiting"]
