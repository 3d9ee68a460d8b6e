"""Drafts enter a step like tokens, are verified by it, and what is rejected is taken back."""

from __future__ import annotations

import pytest
from tests.support.toy_engine import ToyEngine

from tokenyard.core.config import SpeculativeConfig
from tokenyard.core.request import FinishReason
from tokenyard.core.sched.outcomes import Reason
from tokenyard.core.sched.outputs import DraftTokens
from tokenyard.core.sched.scheduler_output import SchedulerOutput

EOS = 2


@pytest.fixture
def toy() -> ToyEngine:
    """Up to three drafts."""
    return ToyEngine(speculative=SpeculativeConfig(num_speculative_tokens=3))


def _propose(toy: ToyEngine, output: SchedulerOutput, *drafts: list[int]) -> None:
    toy.scheduler.update_draft_token_ids(output, DraftTokens.from_lists(drafts))
    toy.scheduler.check_invariants()


def _started(toy: ToyEngine, *drafts: int, **options: int) -> None:
    """One request of four tokens that has said one, with drafts for its next step."""
    toy.add("a", 4, **{"max_tokens": 20, **options})
    _propose(toy, toy.step({"a": [10]}), list(drafts))


def test_drafts_are_scheduled_behind_the_known_token(toy: ToyEngine) -> None:
    _started(toy, 11, 12, 13)
    assert toy.requests["a"].spec_token_ids == [11, 12, 13]
    output = toy.schedule()
    assert output.num_scheduled_tokens == {"a": 4}
    assert output.scheduled_spec_decode_tokens == {"a": [11, 12, 13]}
    assert output.drafts is not None
    assert not any(column.flags.writeable for column in output.drafts), "a plan stays as it is"
    assert toy.requests["a"].num_computed_tokens == 8
    assert toy.requests["a"].spec_token_ids == []


@pytest.mark.parametrize(("sampled", "computed"), [([11, 12, 13, 14], 8), ([11, 12, 99], 7), ([11, 99], 6), ([99], 5)])
def test_rejected_drafts_are_taken_back(toy: ToyEngine, sampled: list[int], computed: int) -> None:
    _started(toy, 11, 12, 13)
    output = toy.schedule()
    (row,) = toy.update(output, {"a": sampled})
    assert row.new_token_ids == sampled
    request = toy.requests["a"]
    assert (request.num_computed_tokens, request.num_tokens) == (computed, 5 + len(sampled))
    assert toy.schedule().num_scheduled_tokens == {"a": 1}, "only the last token is left to compute"


@pytest.mark.parametrize("names", ["a", "ab"])
def test_a_request_whose_drafts_are_being_verified_waits_for_the_answer(toy: ToyEngine, names: str) -> None:
    """Without async scheduling: the step in flight may have computed more than will stay."""
    for name in names:
        toy.add(name, 4, max_tokens=20)
    plan = toy.step({name: [10] for name in names})
    _propose(toy, plan, *([11, 12, 13] if name == "a" else [] for name in names))
    first, second = toy.schedule(), toy.schedule()
    assert second.num_scheduled_tokens == {}
    assert [(each.request_id, each.reason) for each in toy.outcomes.not_scheduled] == [
        (name, Reason.NO_NEW_TOKENS) for name in names
    ]
    toy.update(first, {"a": [11, 99]})
    toy.update(second)
    assert toy.requests["a"].output_token_ids == [10, 11, 99]
    assert toy.schedule().num_scheduled_tokens == dict.fromkeys(names, 1)


def test_a_stop_within_accepted_drafts_drops_the_rest(toy: ToyEngine) -> None:
    _started(toy, EOS, 12, eos_token_id=EOS)
    (row,) = toy.update(toy.schedule(), {"a": [EOS, 12, 13]})
    assert (row.new_token_ids, row.finish_reason) == ([EOS], FinishReason.STOP)
    assert toy.requests["a"].output_token_ids == [10, EOS]


def test_the_budget_cuts_drafts() -> None:
    toy = ToyEngine(speculative=SpeculativeConfig(num_speculative_tokens=3), max_num_batched_tokens=6)
    toy.add("a", 2, max_tokens=20)
    toy.add("b", 2, max_tokens=20)
    _propose(toy, toy.step(), [11, 12, 13], [21, 22, 23])
    output = toy.schedule()
    assert output.num_scheduled_tokens == {"a": 4, "b": 2}
    assert output.scheduled_spec_decode_tokens == {"a": [11, 12, 13], "b": [21]}
    assert toy.requests["b"].spec_token_ids == [], "what was cut is gone"


def test_drafts_of_others_may_take_the_whole_budget() -> None:
    toy = ToyEngine(speculative=SpeculativeConfig(num_speculative_tokens=3), max_num_batched_tokens=4)
    for name in "ab":
        toy.add(name, 2, max_tokens=20)
    _propose(toy, toy.step(), [11, 12, 13], [])
    assert toy.step().num_scheduled_tokens == {"a": 4}
    (left_out,) = toy.outcomes.not_scheduled
    assert (left_out.reason, left_out.request_id, left_out.wanted_tokens, left_out.budget_left) == (
        Reason.TOKEN_BUDGET,
        "b",
        1,
        0,
    )


def test_a_request_in_the_middle_of_its_prompt_takes_no_drafts() -> None:
    toy = ToyEngine(speculative=SpeculativeConfig(num_speculative_tokens=3), max_num_batched_tokens=4)
    toy.add("a", 6)
    _propose(toy, toy.step(), [11, 12, 13])
    assert toy.requests["a"].spec_token_ids == []
    assert toy.step().num_scheduled_tokens == {"a": 2}


def test_a_preempted_request_loses_its_drafts() -> None:
    toy = ToyEngine(speculative=SpeculativeConfig(num_speculative_tokens=3), num_gpu_blocks=6)
    for name in "ab":
        toy.add(name, 8)
    _propose(toy, toy.step(), [11], [21])
    assert toy.schedule().preempted_req_ids == ("b",)
    assert toy.requests["b"].spec_token_ids == []
    assert toy.requests["b"].num_tokens == 9


def test_drafts_are_never_published(toy: ToyEngine) -> None:
    """Positions 5..8 are computed and the second block is full, but only one of its tokens is known."""
    _started(toy, 11, 12, 13)
    output = toy.schedule()
    assert toy.scheduler.num_cached_blocks == 1
    toy.update(output, {"a": [99]})
    assert toy.scheduler.num_cached_blocks == 1


def test_statistics_count_what_was_verified(toy: ToyEngine) -> None:
    _started(toy, 11, 12, 13)
    stats = toy.update(toy.schedule(), {"a": [11, 12, 99]}).scheduler_stats.spec_decoding_stats
    assert stats is not None
    assert (stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens) == (1, 3, 2)
    assert stats.num_accepted_tokens_per_pos.tolist() == [1, 1, 0]
    again = toy.update(toy.schedule()).scheduler_stats.spec_decoding_stats
    assert again is not None
    assert (again.num_drafts, again.num_draft_tokens) == (0, 0)


def test_drafts_without_a_configuration_are_our_callers_mistake() -> None:
    toy = ToyEngine()
    toy.add("a")
    with pytest.raises(ValueError, match="without a SpeculativeConfig"):
        toy.scheduler.update_draft_token_ids(toy.step(), DraftTokens.from_lists([[1]]))
