"""The running pass: tokens in running order, the budget's last token, and who loses memory when there is too little."""

from __future__ import annotations

import pytest
from tests.support.toy_engine import ToyEngine, prompt_of

from tokenyard.core.kv.allocation import KVLimit, KVShortage
from tokenyard.core.params import MultiModalItem
from tokenyard.core.request import RequestStatus
from tokenyard.core.sched.outcomes import Outcome, OutcomeKind, Preemption, Reason


def test_every_decode_gets_one_token_in_running_order() -> None:
    toy = ToyEngine()
    for name in "cab":
        toy.add(name, 4)
    toy.step()
    output = toy.step()
    assert list(output.num_scheduled_tokens.items()) == [("c", 1), ("a", 1), ("b", 1)]
    assert output.num_running == 3


def test_a_prompt_is_computed_in_chunks_of_what_the_budget_leaves() -> None:
    toy = ToyEngine(max_num_batched_tokens=8)
    toy.add("a", 6)
    toy.add("b", 20)
    granted = [toy.step().num_scheduled_tokens for _ in range(5)]
    assert granted == [{"a": 6, "b": 2}, {"a": 1, "b": 7}, {"a": 1, "b": 7}, {"a": 1, "b": 4}, {"a": 1, "b": 1}]


def test_a_chunk_samples_nothing() -> None:
    toy = ToyEngine(max_num_batched_tokens=8)
    request = toy.add("a", 20)
    for computed, output_tokens in ((8, 0), (16, 0), (20, 1), (21, 2)):
        output = toy.schedule()
        chunks = output.is_prefill_chunk
        assert (chunks is not None and chunks.tolist() == [True]) is (output_tokens == 0)
        assert request.is_prefill_chunk is (output_tokens == 0)
        toy.update(output)
        assert (request.num_computed_tokens, request.num_output_tokens) == (computed, output_tokens)


def test_the_threshold_slices_every_long_prompt() -> None:
    toy = ToyEngine(long_prefill_token_threshold=5)
    toy.add("a", 12)
    toy.add("b", 5)
    granted = [toy.step().num_scheduled_tokens for _ in range(4)]
    assert granted == [{"a": 5, "b": 5}, {"a": 5, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 1}]


def test_the_last_position_is_never_computed() -> None:
    """The token at max_model_len is sampled and ends the request."""
    toy = ToyEngine(max_model_len=8)
    request = toy.add("a", 5, max_tokens=99)
    assert toy.drain() == 4
    assert (request.num_tokens, request.num_computed_tokens) == (8, 7)


def test_no_new_tokens() -> None:
    """Two steps without an update in between: everything known is computed already."""
    toy = ToyEngine()
    toy.add("a", 4)
    first = toy.schedule()
    second = toy.schedule()
    assert second.req_ids == ()
    assert toy.outcomes.not_scheduled == [Outcome(OutcomeKind.NOT_SCHEDULED, Reason.NO_NEW_TOKENS, "a", 1)]
    toy.update(first)
    toy.update(second)
    assert toy.step().num_scheduled_tokens == {"a": 1}


# ---- preemption


def test_the_tail_is_preempted_and_starts_again() -> None:
    toy = ToyEngine(num_gpu_blocks=6)
    for name in "ab":
        toy.add(name, 8, max_tokens=8)
    toy.step()
    assert toy.free == 1
    held = toy.blocks("b")
    output = toy.schedule()
    b = toy.requests["b"]
    assert output.num_scheduled_tokens == {"a": 1}
    assert output.preempted_req_ids == ("b",)
    assert (b.status, b.slot, b.num_computed_tokens, b.num_preemptions) == (RequestStatus.PREEMPTED, -1, 0, 1)
    assert b.num_output_tokens == 1, "what it has said stays said"
    assert toy.waiting == ["b"]
    assert toy.scheduler.kv.pool.free_blocks() == list(reversed(held)), "its tail is evicted first"


def test_fcfs_takes_from_the_tail_until_the_head_fits() -> None:
    """a's second chunk needs three blocks and none is free: three holders of one block each go."""
    toy = ToyEngine(num_gpu_blocks=7, long_prefill_token_threshold=12, scheduler_reserve_full_isl=False)
    for name, length in (("a", 24), ("b", 4), ("c", 4), ("d", 4)):
        toy.add(name, length, max_tokens=1 if name == "a" else 2)
    toy.step()
    assert (toy.running, toy.free) == (["a", "b", "c", "d"], 0)
    output = toy.step()
    assert output.num_scheduled_tokens == {"a": 12}
    assert [each.request_id for each in toy.outcomes.preemptions] == ["d", "c", "b"]
    assert [each.kv.free for each in toy.outcomes.preemptions] == [0, 1, 2]
    assert {each.kv.needed for each in toy.outcomes.preemptions} == {3}
    assert toy.waiting == ["b", "c", "d"], "they wait in the order in which they ran"


def test_a_preemption_is_recorded_with_its_cause() -> None:
    toy = ToyEngine(num_gpu_blocks=6, policy="priority")
    toy.add("worst", 8, priority=9)
    toy.step()
    toy.add("best", 8, priority=0)
    toy.step()
    toy.step()
    shortage = KVShortage(KVLimit.BLOCKS, needed=1, free=0, cached_hits=0)
    assert toy.outcomes.preemptions == [
        Preemption("worst", "best", num_computed_tokens=9, rolled_back_tokens=1, kv=shortage)
    ]


def test_a_request_may_have_to_preempt_itself() -> None:
    """b needs a block, is the tail, and gives up its own; a goes on."""
    toy = ToyEngine(num_gpu_blocks=6)
    toy.add("a", 9, max_tokens=8)
    toy.add("b", 8, max_tokens=8)
    toy.step()
    assert toy.free == 0
    output = toy.step()
    assert output.num_scheduled_tokens == {"a": 1}
    shortage = KVShortage(KVLimit.BLOCKS, needed=1, free=0, cached_hits=0)
    assert toy.outcomes.preemptions == [Preemption("b", "b", 8, 0, shortage)]
    assert toy.outcomes.not_scheduled == [Outcome(OutcomeKind.NOT_SCHEDULED, Reason.SELF_PREEMPTED, "b", 1, shortage)]


def test_nobody_behind_a_self_preempted_request_is_served() -> None:
    toy = ToyEngine(num_gpu_blocks=6, policy="priority")
    toy.add("worst", 8, priority=9)
    toy.step()
    toy.add("best", 5, priority=0)
    toy.steps(4)
    assert (toy.running, toy.free) == (["worst", "best"], 0)
    output = toy.step()
    assert output.preempted_req_ids == ("worst",)
    assert output.req_ids == ()
    assert [(each.reason, each.request_id) for each in toy.outcomes.not_scheduled] == [
        (Reason.SELF_PREEMPTED, "worst"),
        (Reason.PREEMPTED_THIS_STEP, "best"),
    ]
    assert toy.step().num_scheduled_tokens == {"best": 1}


def test_a_rolled_back_victim_refunds_its_tokens() -> None:
    """The victim was granted a token earlier in this very step. Who asked for room asks for no more than before."""
    toy = ToyEngine(policy="priority", num_gpu_blocks=9, max_num_batched_tokens=10, scheduler_reserve_full_isl=False)
    toy.add("worst", 9, priority=9)
    toy.step()
    toy.add("best", 4, priority=0)
    toy.add("long", 24, priority=1, max_tokens=2)
    assert toy.step().num_scheduled_tokens == {"worst": 1, "best": 4, "long": 5}
    output = toy.step()
    (victim,) = toy.outcomes.preemptions
    assert (victim.request_id, victim.for_request_id, victim.rolled_back_tokens) == ("worst", "long", 1)
    assert output.num_scheduled_tokens == {"best": 1, "long": 8}
    assert output.total_num_scheduled_tokens == 9
    assert toy.admission.budget_left == 1


def test_a_victim_that_was_not_reached_yet_refunds_nothing() -> None:
    toy = ToyEngine(num_gpu_blocks=6)
    for name in "ab":
        toy.add(name, 8)
    toy.steps(2)
    assert [each.rolled_back_tokens for each in toy.outcomes.preemptions] == [0]
    assert toy.admission.budget_left == 63


def test_a_resumed_request_computes_everything_it_had_said() -> None:
    toy = ToyEngine(num_gpu_blocks=6, enable_prefix_caching=False)
    for name in "ab":
        toy.add(name, 8, max_tokens=8)
    toy.steps(2)
    b = toy.requests["b"]
    known = b.all_token_ids
    output = toy.until(lambda: b.status is not RequestStatus.PREEMPTED)
    assert output.num_scheduled_tokens["b"] == len(known) == 9
    assert b.all_token_ids[:-1] == known


def test_a_resumed_request_finds_its_own_blocks_again() -> None:
    toy = ToyEngine(num_gpu_blocks=6)
    for name in "ab":
        toy.add(name, 8, max_tokens=3)
    toy.steps(2)
    b = toy.requests["b"]
    assert b.status is RequestStatus.PREEMPTED
    assert b.num_hit_tokens == 0
    output = toy.until(lambda: b.status is not RequestStatus.PREEMPTED)
    assert output.num_scheduled_tokens["b"] == 1, "both prompt blocks were hits"
    assert b.num_cached_tokens == 0, "that counts the first time alone"
    assert b.num_hit_tokens == 8


def test_a_lookup_in_vain_is_the_last_one_too() -> None:
    toy = ToyEngine(num_gpu_blocks=8)
    text = prompt_of("text", 12)
    toy.add("a", text, max_tokens=9)
    toy.steps(5)
    b = toy.add("b", [*text, *prompt_of("other", 12)], max_tokens=2)
    toy.step()
    assert b.status is RequestStatus.WAITING, "it needs three blocks beside those of the text, and two are free"
    assert (b.num_hit_tokens, b.num_cached_tokens) == (12, -1)


def test_only_full_blocks_of_known_tokens_are_shared() -> None:
    """The second request hits what the first has computed, sampled tokens included."""
    toy = ToyEngine()
    text = prompt_of("text", 6)
    toy.add("a", text, max_tokens=4)
    toy.drain()
    said = toy.requests["a"].all_token_ids
    toy.add("b", [*said, 1, 2, 3])
    output = toy.step()
    assert output.num_computed.tolist() == [8]
    assert toy.requests["b"].num_cached_tokens == 8


@pytest.mark.parametrize(("stay", "found"), [(True, 10), (False, 8)])
def test_blocks_that_were_granted_and_not_computed_may_be_forgotten(stay: bool, found: int) -> None:
    """Eight tokens were computed; of the four granted in the step that takes them back, two blocks are left over."""
    toy = ToyEngine(
        policy="priority",
        block_size=1,
        num_gpu_blocks=17,
        max_model_len=20,
        long_prefill_token_threshold=4,
        scheduler_reserve_full_isl=False,
        rolled_back_work_stays_cached=stay,
    )
    toy.add("low", 12, max_tokens=4, priority=9)
    toy.step()
    toy.add("high", 5, max_tokens=2, priority=0)
    toy.until(lambda: bool(toy.outcomes.preemptions))
    (preemption,) = toy.outcomes.preemptions
    assert (preemption.request_id, preemption.num_computed_tokens, preemption.rolled_back_tokens) == ("low", 8, 4)
    output = toy.until(lambda: "low" in toy.running)
    assert output.num_computed.tolist()[-1] == found


@pytest.mark.parametrize("stay", [True, False])
def test_a_picture_that_is_not_encoded_after_all_may_be_forgotten(stay: bool) -> None:
    toy = ToyEngine(
        policy="priority",
        block_size=1,
        num_gpu_blocks=17,
        max_model_len=20,
        long_prefill_token_threshold=4,
        scheduler_reserve_full_isl=False,
        max_num_encoder_input_tokens=8,
        rolled_back_work_stays_cached=stay,
    )
    picture = MultiModalItem(mm_hash="picture", offset=8, length=2)
    toy.add("low", 12, max_tokens=4, priority=9, mm_features=[picture])
    toy.step()
    toy.add("high", 5, max_tokens=2, priority=0)
    output = toy.until(lambda: bool(toy.outcomes.preemptions))
    assert toy.outcomes.preemptions[0].rolled_back_tokens == 4
    assert output.scheduled_encoder_inputs == {}
    encoded = []
    while toy.scheduler.requests:
        encoded += list(toy.step().scheduled_encoder_inputs)
    assert encoded == ([] if stay else ["low"])
