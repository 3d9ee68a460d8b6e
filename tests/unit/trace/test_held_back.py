"""The requests that a step held back: each once, under its own reason."""

from __future__ import annotations

from tokenyard.core.kv.allocation import KVLimit, KVShortage
from tokenyard.core.sched.outcomes import Outcome, OutcomeKind, Preemption, Reason, StepOutcomes
from tokenyard.record.facts import outcome_record
from tokenyard.trace.held_back import held_by_reason, main_reason
from tokenyard.trace.schema import AdmissionOutcome

SHORTAGE = KVShortage(KVLimit.BLOCKS, 1, 0, 0)


def stalled(reason: Reason, request_id: str) -> Outcome:
    return Outcome(OutcomeKind.NOT_SCHEDULED, reason, request_id, 1)


def held(outcomes: StepOutcomes) -> dict[str, int]:
    record = outcome_record(0, 0.0, None, outcomes, limit=0)
    assert record is not None
    return held_by_reason(record)


def test_a_request_that_preempted_itself_counts_once() -> None:
    """It waits when the pass does not begin, and got no tokens: two of the three who wait came before it."""
    outcomes = StepOutcomes()
    outcomes.preemptions.append(Preemption("c", "c", 8, 0, SHORTAGE))
    outcomes.not_scheduled.append(stalled(Reason.SELF_PREEMPTED, "c"))
    outcomes.admission = Outcome(OutcomeKind.NOT_ENTERED, Reason.PREEMPTED_THIS_STEP, None, 3)
    assert held(outcomes) == {"preempted_this_step": 2, "self_preempted": 1}


def test_who_was_preempted_later_in_the_step_waits_and_is_not_stalled() -> None:
    outcomes = StepOutcomes()
    outcomes.not_scheduled += [stalled(Reason.NO_NEW_TOKENS, "a"), stalled(Reason.NO_NEW_TOKENS, "b")]
    outcomes.preemptions.append(Preemption("b", "a", 8, 0, SHORTAGE))
    outcomes.admission = Outcome(OutcomeKind.NOT_ENTERED, Reason.PREEMPTED_THIS_STEP, None, 1)
    assert held(outcomes) == {"no_new_tokens": 1, "preempted_this_step": 1}


def test_who_stands_behind_one_that_preempted_itself_adds_up_with_those_who_wait() -> None:
    outcomes = StepOutcomes()
    outcomes.preemptions.append(Preemption("b", "b", 8, 0, SHORTAGE))
    outcomes.not_scheduled += [stalled(Reason.SELF_PREEMPTED, "b"), stalled(Reason.PREEMPTED_THIS_STEP, "c")]
    outcomes.admission = Outcome(OutcomeKind.NOT_ENTERED, Reason.PREEMPTED_THIS_STEP, None, 1)
    assert held(outcomes) == {"self_preempted": 1, "preempted_this_step": 1}


def test_only_the_reason_of_the_pass_is_put_right() -> None:
    counts = {"self_preempted": 1, "a reason of the future": 2}
    record = AdmissionOutcome(step=0, reason="token_budget", num_requests=3, not_scheduled_counts=counts)
    assert held_by_reason(record) == {"token_budget": 3, "self_preempted": 1, "a reason of the future": 2}


def test_a_step_that_held_back_only_running_requests_has_no_main_reason() -> None:
    counts = {"no_new_tokens": 2}
    record = AdmissionOutcome(step=0, reason="queues_empty", num_requests=0, not_scheduled_counts=counts)
    assert main_reason(record) is None
    assert held_by_reason(record) == counts


def test_a_record_without_numbers_still_tells_its_reason() -> None:
    record = AdmissionOutcome(step=0, reason="kv_blocks")
    assert main_reason(record) == "kv_blocks"
    assert held_by_reason(record) == {}
