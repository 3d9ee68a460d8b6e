"""The admission pass: who gets in, and the reason with its numbers for everyone who does not.

One test per recorded reason of the pass; blocks hold four tokens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.profiles import VLLM_0_22
from tests.support.toy_engine import ToyEngine, prompt_of

from tokenyard.core.config import PauseState, SpeculativeConfig, SpeculativeMethod
from tokenyard.core.kv.allocation import KVLimit, KVShortage
from tokenyard.core.profiles import decision_profile
from tokenyard.core.sched.outcomes import Outcome, OutcomeKind, Reason
from tokenyard.errors import ConfigError

# ---- the loop ends


def test_queues_empty() -> None:
    toy = ToyEngine()
    toy.add("a", 4)
    toy.step()
    assert toy.admission == Outcome(OutcomeKind.LOOP_ENDED, Reason.QUEUES_EMPTY, budget_left=60)
    toy.step()
    assert toy.admission.budget_left == 63


def test_nothing_at_all_is_also_queues_empty() -> None:
    toy = ToyEngine()
    output = toy.step()
    assert toy.admission == Outcome(OutcomeKind.LOOP_ENDED, Reason.QUEUES_EMPTY, budget_left=64)
    assert (output.req_ids, output.total_num_scheduled_tokens) == ((), 0)


def test_token_budget() -> None:
    toy = ToyEngine(max_num_batched_tokens=8)
    for name in "abc":
        toy.add(name, 6)
    output = toy.step()
    assert output.num_scheduled_tokens == {"a": 6, "b": 2}
    assert toy.admission == Outcome(OutcomeKind.LOOP_ENDED, Reason.TOKEN_BUDGET, None, 1)


def test_a_budget_spent_by_running_requests_admits_nobody() -> None:
    toy = ToyEngine(max_num_batched_tokens=4)
    toy.add("a", 12)
    toy.step()
    toy.add("b", 4)
    toy.step()
    assert (toy.running, toy.waiting) == (["a"], ["b"])
    assert toy.admission == Outcome(OutcomeKind.LOOP_ENDED, Reason.TOKEN_BUDGET, None, 1)


# ---- the loop is stopped


def test_max_num_seqs() -> None:
    toy = ToyEngine(max_num_seqs=2)
    for name in "abcd":
        toy.add(name, 4)
    toy.step()
    assert (toy.running, toy.waiting) == (["a", "b"], ["c", "d"])
    assert toy.admission == Outcome(OutcomeKind.STOPPED, Reason.MAX_NUM_SEQS, None, 2, budget_left=56)


def test_prefill_exceeds_budget_stops_the_pass() -> None:
    toy = ToyEngine(enable_chunked_prefill=False)
    for name, length in (("a", 40), ("b", 30), ("c", 4)):
        toy.add(name, length)
    toy.step()
    assert (toy.running, toy.waiting, toy.skipped) == (["a"], ["b", "c"], [])
    assert toy.admission == Outcome(
        OutcomeKind.STOPPED, Reason.PREFILL_EXCEEDS_BUDGET, "b", 2, wanted_tokens=30, budget_left=24
    )
    assert toy.outcomes.skipped == []


@pytest.mark.parametrize("threshold", [0, 24])
def test_a_prompt_that_takes_the_rest_of_the_budget_fits_whole(threshold: int) -> None:
    toy = ToyEngine(enable_chunked_prefill=False, long_prefill_token_threshold=threshold)
    toy.add("a", 40 if not threshold else 24)
    toy.add("b", 24)
    toy.add("c", 24 if not threshold else 16)
    scheduled = {"a": 40, "b": 24} if not threshold else {"a": 24, "b": 24, "c": 16}
    assert toy.step().num_scheduled_tokens == scheduled


def test_a_threshold_of_one_token_lets_a_prompt_through_token_by_token() -> None:
    toy = ToyEngine(long_prefill_token_threshold=1)
    toy.add("a", 3)
    assert [toy.step().num_scheduled_tokens for _ in range(2)] == [{"a": 1}] * 2


def test_prefill_exceeds_budget_may_skip_instead() -> None:
    toy = ToyEngine(enable_chunked_prefill=False, skip_oversized_prefill=True)
    for name, length in (("a", 40), ("b", 30), ("c", 4)):
        toy.add(name, length)
    toy.step()
    assert (toy.running, toy.waiting, toy.skipped) == (["a", "c"], [], ["b"])
    assert toy.outcomes.skipped == [
        Outcome(OutcomeKind.SKIPPED, Reason.PREFILL_EXCEEDS_BUDGET, "b", 1, wanted_tokens=30, budget_left=24)
    ]
    assert toy.admission == Outcome(OutcomeKind.LOOP_ENDED, Reason.QUEUES_EMPTY, budget_left=20)
    toy.add("d", 4)
    toy.step()
    assert toy.running == ["a", "c", "b", "d"], "who was skipped is tried first"


def test_a_prefix_hit_makes_an_oversized_prompt_fit() -> None:
    """What is wanted is what is left to compute."""
    toy = ToyEngine(enable_chunked_prefill=False)
    text = prompt_of("text", 40)
    toy.add("first", text[:36], max_tokens=1)
    toy.step()
    toy.add("a", 40)
    toy.add("b", text)
    toy.step()
    assert toy.running == ["a", "b"]


@pytest.mark.parametrize(("version", "idle", "beside"), [("0.22", 1, 1), ("0.29", 1, 3), ("0.30", 3, 3)])
def test_placeholder_drafts_of_one_that_has_a_token_to_compute(version: str, idle: int, beside: int) -> None:
    """Its prompt is cached but for one token; it comes while nothing runs, or beside one that decodes."""
    drafts = SpeculativeConfig(num_speculative_tokens=2, method=SpeculativeMethod.NGRAM)
    for runs, wanted in ((False, idle), (True, beside)):
        toy = ToyEngine(speculative=drafts, profile=decision_profile(version))
        text = prompt_of("text", 21)
        toy.add("first", text, max_tokens=1)
        if runs:
            toy.add("runs", 4, max_tokens=9)
        toy.step()
        toy.add("again", text, max_tokens=9)
        assert toy.step().num_scheduled_tokens["again"] == wanted


@pytest.mark.parametrize(("version", "length", "ended"), [("0.28", 62, False), ("0.28", 63, True), ("0.29", 63, False)])
def test_placeholder_drafts_at_the_end_of_the_context(version: str, length: int, ended: bool) -> None:
    """A prompt of all but one of its tokens cached, next to ``max_model_len`` of 64, beside one that decodes."""
    drafts = SpeculativeConfig(num_speculative_tokens=2, method=SpeculativeMethod.NGRAM)
    toy = ToyEngine(
        speculative=drafts,
        profile=decision_profile(version),
        max_model_len=64,
        block_size=1,
        max_num_batched_tokens=128,
    )
    text = prompt_of("text", length)
    toy.add("first", text, max_tokens=1)
    toy.add("runs", 4, max_tokens=9)
    toy.step()
    toy.add("again", text, max_tokens=1)
    output = toy.step()
    assert ("again" not in output.num_scheduled_tokens) is ended
    assert toy.waiting == ["again"] * ended


def test_a_threshold_makes_an_oversized_prompt_fit() -> None:
    toy = ToyEngine(enable_chunked_prefill=False, long_prefill_token_threshold=20)
    toy.add("a", 40)
    toy.add("b", 30)
    assert toy.step().num_scheduled_tokens == {"a": 20, "b": 20}


def test_kv_full_sequence() -> None:
    toy = ToyEngine(num_gpu_blocks=6)
    toy.add("a", 12, max_tokens=4)
    toy.add("b", 12, max_tokens=4)
    toy.add("c", 5, max_tokens=4)
    toy.step()
    assert toy.waiting == ["b", "c"]
    assert toy.admission == Outcome(
        OutcomeKind.STOPPED,
        Reason.KV_FULL_SEQUENCE,
        "b",
        2,
        kv=KVShortage(KVLimit.FULL_SEQUENCE, needed=3, free=2, cached_hits=0),
        wanted_tokens=12,
        budget_left=52,
        smallest_need=2,
    )
    assert toy.admission.kv is not None
    assert toy.admission.kv.missing == 1


def test_the_head_blocks_smaller_requests_behind_it() -> None:
    """Free blocks would do for the smallest waiter: the refusal carries both needs, there is no fragmentation."""
    toy = ToyEngine(num_gpu_blocks=6)
    for name, length in (("a", 8), ("big", 16), ("small", 4)):
        toy.add(name, length, max_tokens=4)
    toy.step()
    refusal = toy.admission
    assert refusal.kv is not None
    assert refusal.smallest_need is not None
    assert refusal.smallest_need <= refusal.kv.free < refusal.kv.needed


def test_kv_blocks() -> None:
    toy = ToyEngine(num_gpu_blocks=6, scheduler_reserve_full_isl=False)
    toy.add("a", 12, max_tokens=4)
    toy.add("b", 12, max_tokens=4)
    toy.step()
    assert toy.admission == Outcome(
        OutcomeKind.STOPPED,
        Reason.KV_BLOCKS,
        "b",
        1,
        kv=KVShortage(KVLimit.BLOCKS, needed=3, free=2, cached_hits=0),
        wanted_tokens=12,
        budget_left=52,
        smallest_need=3,
    )


@pytest.mark.parametrize(("reserve", "running"), [(True, ["a"]), (False, ["a", "b"])])
def test_the_full_sequence_gate_looks_beyond_the_chunk(reserve: bool, running: list[str]) -> None:
    """The chunk of four tokens fits the two free blocks, the prompt of twelve does not."""
    toy = ToyEngine(num_gpu_blocks=6, max_num_batched_tokens=16, scheduler_reserve_full_isl=reserve)
    toy.add("a", 12, max_tokens=4)
    toy.add("b", 12, max_tokens=4)
    toy.step()
    assert toy.running == running


def test_cached_hits_that_must_be_taken_out_of_the_free_queue_are_told() -> None:
    toy = ToyEngine(num_gpu_blocks=6, scheduler_reserve_full_isl=False)
    text = prompt_of("text", 16)
    toy.add("first", text[:8], max_tokens=1)
    toy.step()
    toy.add("holder", 8, max_tokens=8)
    toy.step()
    toy.add("again", text, max_tokens=4)
    toy.step()
    assert toy.waiting == ["again"]
    assert toy.admission.kv == KVShortage(KVLimit.BLOCKS, needed=4, free=2, cached_hits=2)
    assert toy.admission.smallest_need == 4, "of known tokens, hits not counted"


def test_the_smallest_need_is_never_above_the_heads() -> None:
    """The head waits as well, and its hits are known: without them the smallest would seem larger than the head."""
    toy = ToyEngine(num_gpu_blocks=9)
    text = prompt_of("text", 16)
    toy.add("holder", text, max_tokens=8)
    toy.step()
    toy.add("alike", [*text, *prompt_of("tail", 16)], max_tokens=1)
    toy.step()
    assert toy.waiting == ["alike"]
    assert toy.admission.kv == KVShortage(KVLimit.FULL_SEQUENCE, needed=4, free=3, cached_hits=0)
    assert toy.admission.smallest_need == 4


def test_kv_watermark() -> None:
    toy = ToyEngine(num_gpu_blocks=11, watermark=0.5)
    toy.add("a", 4)
    toy.add("b", 20)
    toy.add("c", 4)
    toy.step()
    assert toy.running == ["a"], "nothing ran: the watermark did not hold the first one back"
    assert toy.admission == Outcome(
        OutcomeKind.STOPPED,
        Reason.KV_WATERMARK,
        "b",
        2,
        kv=KVShortage(KVLimit.WATERMARK, needed=5, free=9, cached_hits=0, watermark=5),
        wanted_tokens=20,
        budget_left=60,
        smallest_need=1,
    )
    assert toy.drain() == 24


@pytest.mark.parametrize(("reserved", "running"), [(True, ["a"]), (False, ["a", "b"])])
def test_the_watermark_stays_free_of_whole_sequences_too(reserved: bool, running: list[str]) -> None:
    """As in vLLM 0.33: a chunk of ``b`` leaves enough, all of it would not."""
    toy = ToyEngine(num_gpu_blocks=11, watermark=0.4, max_num_batched_tokens=8, scheduler_reserve_full_isl=reserved)
    toy.add("a", 4)
    toy.add("b", 28)
    toy.step()
    assert toy.running == running
    if reserved:
        assert toy.admission.reason is Reason.KV_WATERMARK
        assert toy.admission.kv == KVShortage(KVLimit.WATERMARK, needed=7, free=9, cached_hits=0, watermark=4)


# ---- the pass is not entered


def test_preempted_this_step() -> None:
    """Four blocks: both requests fill theirs at the same moment, the tail gives its own up; no request enters."""
    toy = ToyEngine(num_gpu_blocks=6)
    for name in "ab":
        toy.add(name, 8, max_tokens=8)
    toy.step()
    toy.add("c", 4, max_tokens=4)
    toy.add("d", 4, max_tokens=4)
    toy.step()
    assert toy.outcomes.preemptions != []
    assert (toy.running, toy.waiting) == (["a"], ["b", "c", "d"])
    assert toy.admission == Outcome(OutcomeKind.NOT_ENTERED, Reason.PREEMPTED_THIS_STEP, None, 3, budget_left=63)
    assert toy.free == 2, "there would have been memory for the next"
    toy.step()
    assert toy.outcomes.preemptions == []
    assert toy.admission.reason is not Reason.PREEMPTED_THIS_STEP


@pytest.mark.parametrize("state", [PauseState.PAUSED_NEW, PauseState.PAUSED_ALL])
def test_paused(state: PauseState) -> None:
    toy = ToyEngine()
    toy.add("a", 4)
    toy.step()
    toy.add("b", 4)
    toy.scheduler.set_pause_state(state)
    output = toy.step()
    assert toy.admission == Outcome(OutcomeKind.NOT_ENTERED, Reason.PAUSED, None, 1)
    assert output.num_scheduled_tokens == ({"a": 1} if state is PauseState.PAUSED_NEW else {})
    toy.scheduler.set_pause_state(PauseState.UNPAUSED)
    toy.step()
    assert toy.running == ["a", "b"]


@pytest.mark.parametrize("state", [9, -1, "paused", None])
def test_what_is_no_pause_is_refused(state: Any) -> None:
    toy = ToyEngine()
    with pytest.raises(ConfigError, match="give one of: UNPAUSED, PAUSED_NEW, PAUSED_ALL"):
        toy.scheduler.set_pause_state(state)
    assert toy.scheduler.pause_state is PauseState.UNPAUSED


def test_a_full_pause_says_so_for_running_requests_too() -> None:
    toy = ToyEngine()
    toy.add("a", 4)
    toy.step()
    toy.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    toy.step()
    assert toy.outcomes.not_scheduled == [
        Outcome(OutcomeKind.NOT_SCHEDULED, Reason.PAUSED, "a", 1, wanted_tokens=1, budget_left=0)
    ]


@pytest.mark.parametrize(
    ("state", "unfinished"), [(PauseState.UNPAUSED, 2), (PauseState.PAUSED_NEW, 1), (PauseState.PAUSED_ALL, 0)]
)
def test_a_pause_leaves_nothing_to_do(state: PauseState, unfinished: int) -> None:
    toy = ToyEngine(max_num_seqs=1)
    for name in "ab":
        toy.add(name, 4)
    toy.step()
    toy.scheduler.set_pause_state(state)
    assert toy.scheduler.get_num_unfinished_requests() == unfinished
    assert toy.scheduler.has_requests() is (unfinished > 0)


# ---- one request is skipped


def test_lora_slots() -> None:
    toy = ToyEngine(max_loras=1)
    for name, lora in (("a", "x"), ("b", "y"), ("c", None), ("d", "x"), ("e", "y")):
        toy.add(name, 4, lora_name=lora)
    toy.step()
    assert (toy.running, toy.skipped) == (["a", "c", "d"], ["b", "e"])
    assert toy.outcomes.skipped == [
        Outcome(OutcomeKind.SKIPPED, Reason.LORA_SLOTS, "b", 1, budget_left=60),
        Outcome(OutcomeKind.SKIPPED, Reason.LORA_SLOTS, "e", 1, budget_left=52),
    ]
    assert toy.admission == Outcome(OutcomeKind.LOOP_ENDED, Reason.QUEUES_EMPTY, budget_left=52)


def test_running_adapters_keep_their_slots() -> None:
    toy = ToyEngine(max_loras=2)
    toy.add("a", 4, lora_name="x", max_tokens=3)
    toy.step()
    for name, lora in (("b", "y"), ("c", "z")):
        toy.add(name, 4, lora_name=lora)
    toy.step()
    assert (toy.running, toy.skipped) == (["a", "b"], ["c"])
    toy.steps(3)
    assert toy.running == ["b", "c"]


def test_no_limit_on_adapters_by_default() -> None:
    toy = ToyEngine()
    for i in range(8):
        toy.add(f"r{i}", 4, lora_name=f"adapter{i}")
    toy.step()
    assert len(toy.running) == 8


# ---- who is tried first


def test_priority_admits_the_best_first() -> None:
    toy = ToyEngine(policy="priority", max_num_seqs=2)
    for name, priority, arrival in (("late", 1, 2.0), ("bad", 9, 0.0), ("early", 1, 1.0)):
        toy.add(name, 4, priority=priority, arrival_time=arrival)
    toy.step()
    assert (toy.running, toy.waiting) == (["early", "late"], ["bad"])


def test_a_preempted_request_is_the_next_to_be_admitted() -> None:
    toy = ToyEngine(num_gpu_blocks=6)
    for name in "ab":
        toy.add(name, 8, max_tokens=8)
    toy.step()
    toy.add("c", 4, max_tokens=4)
    toy.step()
    assert toy.waiting == ["b", "c"]
    output = toy.until(lambda: "b" in toy.running)
    admitted = [output.req_ids[i] for i in output.admitted]
    assert admitted[0] == "b", "the head of the queue is not overtaken, though c would have fitted all the while"


@pytest.mark.parametrize(("counted", "admitted"), [(False, ["b"]), (True, [])])
def test_adapters_of_running_requests_without_tokens_count_if_so_configured(counted: bool, admitted: list[str]) -> None:
    """Under async scheduling the last token of ``a`` is on its way: it runs on, and gets no tokens."""
    profile = replace(VLLM_0_22, adapters_of_all_running=counted)
    toy = ToyEngine(async_scheduling=True, max_loras=1, profile=profile)
    toy.add("a", 4, lora_name="x", max_tokens=1)
    first = toy.schedule()
    toy.add("b", 4, lora_name="y")
    second = toy.schedule()
    assert list(second.req_ids) == admitted
    assert toy.running == ["a", *admitted]
    if counted:
        assert [refusal.reason for refusal in toy.outcomes.skipped] == [Reason.LORA_SLOTS]
    toy.update(first)
    assert list(toy.schedule().req_ids) == ["b"], "once it has ended its place is free"
