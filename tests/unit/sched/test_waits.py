"""Requests that wait for something else than their turn: a grammar, an encoder, an adapter's outputs in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.profiles import VLLM_0_22
from tests.support.toy_engine import ToyEngine

from tokenyard.core.request import FinishReason, MultiModalItem, RequestStatus
from tokenyard.core.sched.outcomes import Outcome, OutcomeKind, Reason
from tokenyard.errors import RequestError


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
    toy, grammar = ToyEngine(), Grammar()
    toy.add("a", structured_output=grammar)
    toy.add("b")
    assert (toy.skipped, toy.waiting) == (["a"], ["b"])
    toy.step()
    assert (toy.running, toy.skipped) == (["b"], ["a"])
    assert toy.outcomes.skipped == [Outcome(OutcomeKind.SKIPPED, Reason.WAITING_GRAMMAR, "a", 1, budget_left=64)]
    assert toy.requests["a"].status is RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    grammar.is_ready = True
    toy.step()
    assert toy.running == ["b", "a"]


def test_sampled_tokens_advance_the_grammar() -> None:
    toy, grammar = ToyEngine(), Grammar()
    grammar.is_ready = True
    toy.add("a", structured_output=grammar, max_tokens=3)
    toy.drain()
    assert grammar.accepted == toy.requests["a"].output_token_ids


def test_a_token_that_the_grammar_forbids_ends_the_request_as_an_error() -> None:
    toy, grammar = ToyEngine(), Grammar(forbidden=66)
    grammar.is_ready = True
    toy.add("a", structured_output=grammar)
    toy.add("b")
    toy.step({"a": [65]})
    rows = {row.request_id: row for row in toy.update(toy.schedule(), {"a": [66]})}
    assert rows["a"].finish_reason is FinishReason.ERROR
    assert toy.requests["a"].status is RequestStatus.FINISHED_ERROR
    assert (toy.running, rows["b"].finish_reason) == (["b"], None)


def test_a_request_that_waits_for_its_grammar_can_be_aborted() -> None:
    toy = ToyEngine()
    toy.add("a", structured_output=Grammar())
    toy.step()
    assert toy.abort("a") == ["a"]
    assert toy.skipped == []


# ---- outputs in flight (async scheduling)


def test_placeholders_cover_the_limit() -> None:
    """Two outputs are allowed, one has come and one is on its way: a third step would be for nothing."""
    toy = ToyEngine(async_scheduling=True)
    toy.add("a", max_tokens=2)
    first, second = toy.schedule(), toy.schedule()
    assert toy.requests["a"].num_output_placeholders == 2
    toy.update(first)
    assert toy.schedule().req_ids == ()
    assert toy.outcomes.not_scheduled == [Outcome(OutcomeKind.NOT_SCHEDULED, Reason.PLACEHOLDERS_COVER_LIMIT, "a", 1)]
    toy.update(second)
    assert toy.requests["a"].status is RequestStatus.FINISHED_LENGTH_CAPPED
    assert toy.requests["a"].num_output_tokens == 2


@pytest.mark.parametrize(("drifts", "scheduled"), [(True, ["best"]), (False, ["best", "other"])])
def test_the_index_into_the_running_list_drifts(drifts: bool, scheduled: list[str]) -> None:
    """The victim stands before the request it makes room for and wanted no tokens: vLLM's index slips over the next."""
    profile = replace(VLLM_0_22, running_index_drifts=drifts)
    toy = ToyEngine(async_scheduling=True, policy="priority", num_gpu_blocks=5, profile=profile)
    toy.add("worst", 4, max_tokens=2, priority=9)
    first = toy.schedule()
    toy.add("best", 4, priority=0)
    toy.add("other", 2, priority=1)
    toy.schedule()
    toy.update(first)
    assert (toy.running, toy.free) == (["worst", "best", "other"], 0)
    output = toy.schedule()
    assert [victim.request_id for victim in toy.outcomes.preemptions] == ["worst"]
    assert list(output.req_ids) == scheduled
    drifted = [each.request_id for each in toy.outcomes.not_scheduled if each.reason is Reason.RUNNING_INDEX_DRIFT]
    assert drifted == (["other"] if drifts else [])


# ---- encoder inputs


def test_the_encoder_budget_lets_the_text_before_a_picture_through() -> None:
    toy = ToyEngine(max_num_encoder_input_tokens=6)
    toy.add("a", 10, mm_features=[image("cat", 2, 4)])
    toy.add("b", 10, mm_features=[image("dog", 3, 4)])
    output = toy.step()
    assert output.num_scheduled_tokens == {"a": 10, "b": 3}
    assert output.scheduled_encoder_inputs == {"a": [0]}


def test_a_waiting_request_whose_picture_comes_first_stops_the_pass() -> None:
    toy = ToyEngine(max_num_encoder_input_tokens=6)
    toy.add("a", 10, mm_features=[image("cat", 2, 4)])
    toy.add("b", 10, mm_features=[image("dog", 0, 4)])
    toy.add("c", 4)
    toy.step()
    assert (toy.running, toy.waiting) == (["a"], ["b", "c"])
    assert (toy.admission.kind, toy.admission.reason) == (OutcomeKind.STOPPED, Reason.ENCODER_BUDGET)
    assert (toy.admission.request_id, toy.admission.num_requests) == ("b", 2)
    toy.step()
    assert toy.running == ["a", "b", "c"]


def test_a_running_request_at_its_picture_is_passed_over() -> None:
    """b stands before its picture when a's second picture takes the budget of the step."""
    toy = ToyEngine(max_num_encoder_input_tokens=4, max_num_batched_tokens=12, long_prefill_token_threshold=6)
    toy.add("a", 12, mm_features=[image("cat", 2, 4), image("cow", 7, 4)])
    toy.add("b", 12, mm_features=[image("dog", 4, 4)])
    assert toy.step().num_scheduled_tokens == {"a": 6, "b": 4}
    output = toy.step()
    assert output.num_scheduled_tokens == {"a": 6}
    assert [(each.reason, each.request_id) for each in toy.outcomes.not_scheduled] == [(Reason.ENCODER_BUDGET, "b")]
    assert toy.step().num_scheduled_tokens == {"a": 1, "b": 6}


def test_a_picture_that_no_step_can_compute_is_refused() -> None:
    toy = ToyEngine(max_num_encoder_input_tokens=4)
    with pytest.raises(RequestError, match="max_num_encoder_input_tokens") as refusal:
        toy.add("a", 10, mm_features=[image("cat", 2, 5)])
    assert refusal.value.field == "mm_features"
    assert toy.scheduler.requests == {}


def test_the_same_picture_is_computed_once() -> None:
    toy = ToyEngine(max_num_encoder_input_tokens=4)
    for name in "ab":
        toy.add(name, 10, mm_features=[image("cat", 2, 4)])
    output = toy.step()
    assert output.num_scheduled_tokens == {"a": 10, "b": 10}
    assert output.scheduled_encoder_inputs == {"a": [0]}
