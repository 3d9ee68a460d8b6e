"""Requests that wait for something else than their turn: a grammar, an encoder, an adapter's outputs in flight."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.yard import Yard

from tokenyard.errors import RequestError
from tokenyard.request import FinishReason, MultiModalItem, RequestStatus
from tokenyard.sched.steps.outcomes import Outcome, OutcomeKind, Reason


class Grammar:
    """Is compiled when told so, and allows every token but one."""

    def __init__(self, forbidden: int = -1) -> None:
        self.is_ready = False
        self.forbidden = forbidden
        self.accepted: list[int] = []

    def accept_tokens(self, tokens: Sequence[int]) -> bool:
        self.accepted += tokens
        return self.forbidden not in tokens

    def validate_tokens(self, tokens: Sequence[int]) -> list[int]:
        return list(tokens)


def image(name: str, offset: int, length: int) -> MultiModalItem:
    return MultiModalItem(mm_hash=name, offset=offset, length=length)


# ---- grammar


def test_a_request_waits_for_its_grammar_and_others_do_not_wait_for_it() -> None:
    yard, grammar = Yard(), Grammar()
    yard.add("a", structured_output=grammar)
    yard.add("b")
    assert (yard.skipped, yard.waiting) == (["a"], ["b"])
    yard.step()
    assert (yard.running, yard.skipped) == (["b"], ["a"])
    assert yard.outcomes.skipped == [Outcome(OutcomeKind.SKIPPED, Reason.WAITING_GRAMMAR, "a", 1, budget_left=64)]
    assert yard.requests["a"].status is RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    grammar.is_ready = True
    yard.step()
    assert yard.running == ["b", "a"]


def test_sampled_tokens_advance_the_grammar() -> None:
    yard, grammar = Yard(), Grammar()
    grammar.is_ready = True
    yard.add("a", structured_output=grammar, max_tokens=3)
    yard.drain()
    assert grammar.accepted == yard.requests["a"].output_token_ids


def test_a_token_that_the_grammar_forbids_ends_the_request_as_an_error() -> None:
    yard, grammar = Yard(), Grammar(forbidden=66)
    grammar.is_ready = True
    yard.add("a", structured_output=grammar)
    yard.add("b")
    yard.step({"a": [65]})
    rows = {row.request_id: row for row in yard.update(yard.schedule(), {"a": [66]})}
    assert rows["a"].finish_reason is FinishReason.ERROR
    assert yard.requests["a"].status is RequestStatus.FINISHED_ERROR
    assert (yard.running, rows["b"].finish_reason) == (["b"], None)


def test_a_request_that_waits_for_its_grammar_can_be_aborted() -> None:
    yard = Yard()
    yard.add("a", structured_output=Grammar())
    yard.step()
    assert yard.abort("a") == ["a"]
    assert yard.skipped == []


# ---- outputs in flight (async scheduling)


def test_placeholders_cover_the_limit() -> None:
    """Two outputs are allowed, one has come and one is on its way: a third step would be for nothing."""
    yard = Yard(async_scheduling=True)
    yard.add("a", max_tokens=2)
    first, second = yard.schedule(), yard.schedule()
    assert yard.requests["a"].num_output_placeholders == 2
    yard.update(first)
    assert yard.schedule().req_ids == ()
    assert yard.outcomes.not_scheduled == [Outcome(OutcomeKind.NOT_SCHEDULED, Reason.PLACEHOLDERS_COVER_LIMIT, "a", 1)]
    yard.update(second)
    assert yard.requests["a"].status is RequestStatus.FINISHED_LENGTH_CAPPED
    assert yard.requests["a"].num_output_tokens == 2


@pytest.mark.parametrize(("drifts", "scheduled"), [(True, ["best"]), (False, ["best", "other"])])
def test_the_index_into_the_running_list_drifts(drifts: bool, scheduled: list[str]) -> None:
    """The victim stands before the request it makes room for and wanted no tokens: vLLM's index slips over the next."""
    yard = Yard(async_scheduling=True, policy="priority", num_gpu_blocks=5, running_index_drifts=drifts)
    yard.add("worst", 4, max_tokens=2, priority=9)
    first = yard.schedule()
    yard.add("best", 4, priority=0)
    yard.add("other", 2, priority=1)
    yard.schedule()
    yard.update(first)
    assert (yard.running, yard.free) == (["worst", "best", "other"], 0)
    output = yard.schedule()
    assert [victim.request_id for victim in yard.outcomes.preemptions] == ["worst"]
    assert list(output.req_ids) == scheduled
    drifted = [each.request_id for each in yard.outcomes.not_scheduled if each.reason is Reason.RUNNING_INDEX_DRIFT]
    assert drifted == (["other"] if drifts else [])


# ---- encoder inputs


def test_the_encoder_budget_lets_the_text_before_a_picture_through() -> None:
    yard = Yard(max_num_encoder_input_tokens=6)
    yard.add("a", 10, mm_features=[image("cat", 2, 4)])
    yard.add("b", 10, mm_features=[image("dog", 3, 4)])
    output = yard.step()
    assert output.num_scheduled_tokens == {"a": 10, "b": 3}
    assert output.scheduled_encoder_inputs == {"a": [0]}


def test_a_waiting_request_whose_picture_comes_first_stops_the_pass() -> None:
    yard = Yard(max_num_encoder_input_tokens=6)
    yard.add("a", 10, mm_features=[image("cat", 2, 4)])
    yard.add("b", 10, mm_features=[image("dog", 0, 4)])
    yard.add("c", 4)
    yard.step()
    assert (yard.running, yard.waiting) == (["a"], ["b", "c"])
    assert (yard.admission.kind, yard.admission.reason) == (OutcomeKind.STOPPED, Reason.ENCODER_BUDGET)
    assert (yard.admission.request_id, yard.admission.num_requests) == ("b", 2)
    yard.step()
    assert yard.running == ["a", "b", "c"]


def test_a_running_request_at_its_picture_is_passed_over() -> None:
    """b stands before its picture when a's second picture takes the budget of the step."""
    yard = Yard(max_num_encoder_input_tokens=4, max_num_batched_tokens=12, long_prefill_token_threshold=6)
    yard.add("a", 12, mm_features=[image("cat", 2, 4), image("cow", 7, 4)])
    yard.add("b", 12, mm_features=[image("dog", 4, 4)])
    assert yard.step().num_scheduled_tokens == {"a": 6, "b": 4}
    output = yard.step()
    assert output.num_scheduled_tokens == {"a": 6}
    assert [(each.reason, each.request_id) for each in yard.outcomes.not_scheduled] == [(Reason.ENCODER_BUDGET, "b")]
    assert yard.step().num_scheduled_tokens == {"a": 1, "b": 6}


def test_a_picture_that_no_step_can_compute_is_refused() -> None:
    yard = Yard(max_num_encoder_input_tokens=4)
    with pytest.raises(RequestError, match="max_num_encoder_input_tokens") as refusal:
        yard.add("a", 10, mm_features=[image("cat", 2, 5)])
    assert refusal.value.field == "mm_features"
    assert yard.scheduler.requests == {}


def test_the_same_picture_is_computed_once() -> None:
    yard = Yard(max_num_encoder_input_tokens=4)
    for name in "ab":
        yard.add(name, 10, mm_features=[image("cat", 2, 4)])
    output = yard.step()
    assert output.num_scheduled_tokens == {"a": 10, "b": 10}
    assert output.scheduled_encoder_inputs == {"a": [0]}
