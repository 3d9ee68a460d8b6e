"""What one of two traces decided in a step, and what became of one request there."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from tokenyard.explain.held_back.held_back import NOT_RECORDED, HeldBack
from tokenyard.trace.format.schema import AdmissionOutcome, KVNumbers, StepDecision, StepSnapshot
from tokenyard.trace.read.facts_of_step import facts_of
from tokenyard.trace.read.ranks import RankTrace
from tokenyard.trace.read.reader import TraceReader
from tokenyard.trace.read.step_joiner import Step
from tokenyard.vocabulary.waits import Place

__all__ = ["DecidedStep", "Fate", "FateKind", "decided_step", "fate_of", "seen_before"]


class DecidedStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the traces did in a step. None where it does not tell."""

    step: int
    ts: float | None
    seconds: float | None
    """Since the first step of the run."""
    num_running: int | None
    max_num_running: int | None
    """Most requests that may run at once."""
    num_waiting: int | None
    free_blocks: int | None
    total_blocks: int | None
    tokens: int | None
    """Scheduled in the step."""
    token_budget: int | None
    """Most tokens of a step."""
    decision: StepDecision | None
    outcome: AdmissionOutcome | None


def decided_step(step: Step | None, run_start: float | None) -> DecidedStep | None:
    """The numbers of a step of a run whose first step began at ``run_start``; None for None."""
    if step is None:
        return None
    facts = facts_of(step)
    return DecidedStep(
        step=step.number,
        ts=step.ts,
        seconds=step.ts - run_start if step.ts is not None and run_start is not None else None,
        num_running=facts.num_running,
        max_num_running=facts.max_running,
        num_waiting=facts.num_waiting,
        free_blocks=facts.free_blocks,
        total_blocks=facts.total_blocks,
        tokens=facts.token_sum,
        token_budget=facts.token_budget,
        decision=step.decision,
        outcome=step.outcome,
    )


class FateKind(StrEnum):
    """What a step of one trace did with a request."""

    ADMITTED = "admitted"
    RESUMED = "resumed"
    PREEMPTED = "preempted"
    SCHEDULED = "scheduled"
    """It ran already and got tokens."""
    STALLED = "stalled"
    """It ran already and got none."""
    WAITING = "waiting"
    NOT_ARRIVED = "not_arrived"
    ENDED = "ended"
    UNKNOWN = "unknown"
    """The trace does not list it, and leaves ids out."""


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one request in a step of one trace."""

    kind: FateKind
    tokens: int | None = None
    """That it got."""
    reason: str | None = None
    """Why it got none, if the trace tells."""
    place: Place | None = None
    """How the reason met it."""
    position: int | None = None
    """In the queue, from 1, if it waits."""
    kv: KVNumbers | None = None
    """Blocks that were refused to it."""


_LISTS = (
    ("scheduled_new_req_ids", FateKind.ADMITTED),
    ("scheduled_resumed_req_ids", FateKind.RESUMED),
    ("preempted_req_ids", FateKind.PREEMPTED),
)


def fate_of(request_id: str, step: Step) -> Fate | None:
    """What ``step`` did with a request; None if it is in none of its lists."""
    decision, snapshot = step.decision or StepDecision(step=-1), step.snapshot or StepSnapshot(step=-1)
    tokens = (decision.num_scheduled_tokens or {}).get(request_id)
    held = HeldBack.of(step.outcome) if step.outcome is not None else HeldBack()
    held.preempt(decision.preempted_req_ids or (), step.outcome)
    for field, kind in _LISTS:
        if request_id in (getattr(decision, field) or ()):
            preempted = kind is FateKind.PREEMPTED
            cause = held.named[request_id] if preempted else NOT_RECORDED
            return Fate(kind=kind, tokens=tokens, reason=cause.reason if preempted else None)
    if tokens or request_id in (decision.scheduled_running_req_ids or ()):
        return Fate(kind=FateKind.SCHEDULED, tokens=tokens)
    if request_id in (snapshot.running_req_ids or ()):
        stalled = held.stalled.get(request_id)
        return Fate(kind=FateKind.STALLED, reason=stalled.reason if stalled is not None else None)
    waiting = snapshot.waiting_req_ids or []
    if request_id not in waiting:
        return None
    cause = held.cause_of(request_id)
    return Fate(
        kind=FateKind.WAITING,
        reason=None if cause == NOT_RECORDED else cause.reason,
        place=None if cause == NOT_RECORDED else cause.place,
        position=waiting.index(request_id) + 1,
        kv=_refused_blocks(request_id, step.outcome),
    )


def _refused_blocks(request_id: str, outcome: AdmissionOutcome | None) -> KVNumbers | None:
    if outcome is None:
        return None
    refusals = (outcome, *(outcome.skipped or ()))
    return next((each.kv for each in refusals if each.req_id == request_id), None)


def seen_before(request_ids: Iterable[str], trace: RankTrace, until: int) -> dict[str, FateKind]:
    """Requests that the step ``until`` does not list: whether they had ended by then, or not arrived yet."""
    fates = dict.fromkeys(request_ids, FateKind.NOT_ARRIVED)
    if not fates:
        return fates
    for step in TraceReader(trace.files, requests=False).steps():
        if step.number > until:
            break
        snapshot = step.snapshot or StepSnapshot(step=-1)
        if snapshot.waiting_req_ids_omitted or snapshot.running_req_ids_omitted:
            return dict.fromkeys(fates, FateKind.UNKNOWN)
        arrived = {each.req_id for each in step.arrived}
        for request_id in fates:
            if request_id in arrived or any(request_id in (ids or ()) for ids in _queues(snapshot)):
                fates[request_id] = FateKind.ENDED
    return fates


def _queues(snapshot: StepSnapshot) -> tuple[list[str] | None, list[str] | None]:
    return snapshot.running_req_ids, snapshot.waiting_req_ids
