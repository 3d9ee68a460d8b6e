"""Drafts enter a step like tokens, are verified by it, and what is rejected is taken back."""

from __future__ import annotations

import pytest
from tests.support.yard import Yard

from tokenyard.config import SpeculativeConfig
from tokenyard.request import FinishReason
from tokenyard.sched.steps.model_output import DraftTokens
from tokenyard.sched.steps.outcomes import Reason
from tokenyard.sched.steps.scheduler_output import SchedulerOutput

EOS = 2


@pytest.fixture
def yard() -> Yard:
    """Up to three drafts."""
    return Yard(speculative=SpeculativeConfig(num_speculative_tokens=3))


def _propose(yard: Yard, output: SchedulerOutput, *drafts: list[int]) -> None:
    yard.scheduler.update_draft_token_ids(output, DraftTokens.from_lists(drafts))
    yard.scheduler.check_invariants()


def _started(yard: Yard, *drafts: int, **options: int) -> None:
    """One request of four tokens that has said one, with drafts for its next step."""
    yard.add("a", 4, **{"max_tokens": 20, **options})
    _propose(yard, yard.step({"a": [10]}), list(drafts))


def test_drafts_are_scheduled_behind_the_known_token(yard: Yard) -> None:
    _started(yard, 11, 12, 13)
    assert yard.requests["a"].spec_token_ids == [11, 12, 13]
    output = yard.schedule()
    assert output.num_scheduled_tokens == {"a": 4}
    assert output.scheduled_spec_decode_tokens == {"a": [11, 12, 13]}
    assert yard.requests["a"].num_computed_tokens == 8
    assert yard.requests["a"].spec_token_ids == []


@pytest.mark.parametrize(("sampled", "computed"), [([11, 12, 13, 14], 8), ([11, 12, 99], 7), ([11, 99], 6), ([99], 5)])
def test_rejected_drafts_are_taken_back(yard: Yard, sampled: list[int], computed: int) -> None:
    _started(yard, 11, 12, 13)
    output = yard.schedule()
    (row,) = yard.update(output, {"a": sampled})
    assert row.new_token_ids == sampled
    request = yard.requests["a"]
    assert (request.num_computed_tokens, request.num_tokens) == (computed, 5 + len(sampled))
    assert yard.schedule().num_scheduled_tokens == {"a": 1}, "only the last token is left to compute"


def test_a_stop_within_accepted_drafts_drops_the_rest(yard: Yard) -> None:
    _started(yard, EOS, 12, eos_token_id=EOS)
    (row,) = yard.update(yard.schedule(), {"a": [EOS, 12, 13]})
    assert (row.new_token_ids, row.finish_reason) == ([EOS], FinishReason.STOP)
    assert yard.requests["a"].output_token_ids == [10, EOS]


def test_the_budget_cuts_drafts() -> None:
    yard = Yard(speculative=SpeculativeConfig(num_speculative_tokens=3), max_num_batched_tokens=6)
    yard.add("a", 2, max_tokens=20)
    yard.add("b", 2, max_tokens=20)
    _propose(yard, yard.step(), [11, 12, 13], [21, 22, 23])
    output = yard.schedule()
    assert output.num_scheduled_tokens == {"a": 4, "b": 2}
    assert output.scheduled_spec_decode_tokens == {"a": [11, 12, 13], "b": [21]}
    assert yard.requests["b"].spec_token_ids == [], "what was cut is gone"


def test_drafts_of_others_may_take_the_whole_budget() -> None:
    yard = Yard(speculative=SpeculativeConfig(num_speculative_tokens=3), max_num_batched_tokens=4)
    for name in "ab":
        yard.add(name, 2, max_tokens=20)
    _propose(yard, yard.step(), [11, 12, 13], [])
    assert yard.step().num_scheduled_tokens == {"a": 4}
    (left_out,) = yard.outcomes.not_scheduled
    assert (left_out.reason, left_out.request_id, left_out.wanted_tokens, left_out.budget_left) == (
        Reason.TOKEN_BUDGET,
        "b",
        1,
        0,
    )


def test_a_request_in_the_middle_of_its_prompt_takes_no_drafts() -> None:
    yard = Yard(speculative=SpeculativeConfig(num_speculative_tokens=3), max_num_batched_tokens=4)
    yard.add("a", 6)
    _propose(yard, yard.step(), [11, 12, 13])
    assert yard.requests["a"].spec_token_ids == []
    assert yard.step().num_scheduled_tokens == {"a": 2}


def test_a_preempted_request_loses_its_drafts() -> None:
    yard = Yard(speculative=SpeculativeConfig(num_speculative_tokens=3), num_gpu_blocks=6)
    for name in "ab":
        yard.add(name, 8)
    _propose(yard, yard.step(), [11], [21])
    assert yard.schedule().preempted_req_ids == ("b",)
    assert yard.requests["b"].spec_token_ids == []
    assert yard.requests["b"].num_tokens == 9


def test_drafts_are_never_published(yard: Yard) -> None:
    """Positions 5..8 are computed and the second block is full, but only one of its tokens is known."""
    _started(yard, 11, 12, 13)
    output = yard.schedule()
    assert yard.scheduler.num_cached_blocks == 1
    yard.update(output, {"a": [99]})
    assert yard.scheduler.num_cached_blocks == 1


def test_statistics_count_what_was_verified(yard: Yard) -> None:
    _started(yard, 11, 12, 13)
    stats = yard.update(yard.schedule(), {"a": [11, 12, 99]}).scheduler_stats.spec_decoding_stats
    assert stats is not None
    assert (stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens) == (1, 3, 2)
    assert stats.num_accepted_tokens_per_pos.tolist() == [1, 1, 0]
    again = yard.update(yard.schedule()).scheduler_stats.spec_decoding_stats
    assert again is not None
    assert (again.num_drafts, again.num_draft_tokens) == (0, 0)


def test_drafts_without_a_configuration_are_our_callers_mistake() -> None:
    yard = Yard()
    yard.add("a")
    with pytest.raises(ValueError, match="without a SpeculativeConfig"):
        yard.scheduler.update_draft_token_ids(yard.step(), DraftTokens.from_lists([[1]]))
