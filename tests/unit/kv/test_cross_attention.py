"""Encoder-decoder models: blocks for what the encoder has read, taken once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.toy_engine import ToyEngine

from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup
from tokenyard.core.request import MultiModalItem
from tokenyard.core.sched.outcomes import Reason
from tokenyard.errors import ConfigError, RequestError

FULL, CROSS = KVCacheGroup(), KVCacheGroup(kind=GroupKind.CROSS_ATTENTION)


def toy(**settings: Any) -> ToyEngine:
    defaults: dict[str, Any] = {
        "groups": (FULL, CROSS),
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
        "max_num_encoder_input_tokens": 40,
    }
    return ToyEngine(**(defaults | settings))


def speech(length: int, name: str = "speech") -> MultiModalItem:
    return MultiModalItem(mm_hash=name, offset=0, length=length, cross=True)


def blocks(there: ToyEngine, request_id: str) -> tuple[list[int], ...]:
    return there.scheduler.kv.get_block_ids(there.requests[request_id])


def test_blocks_of_the_encoder_are_taken_once() -> None:
    there = toy()
    there.add("a", 3, max_tokens=12, mm_features=[speech(22)])
    output = there.step()
    assert output.scheduled_encoder_inputs == {"a": [0]}
    decoder, encoder = blocks(there, "a")
    assert (len(decoder), len(encoder)) == (1, 6), "22 tokens in blocks of four"
    there.steps(6)
    assert len(blocks(there, "a")[0]) > 1
    assert blocks(there, "a")[1] == encoder
    there.drain()
    assert there.free == there.scheduler.num_total_blocks - 1


def test_a_request_without_speech_takes_none() -> None:
    there = toy()
    there.add("a", 3)
    there.step()
    assert blocks(there, "a")[1] == []


def test_the_encoder_runs_again_after_a_preemption() -> None:
    there = toy(num_gpu_blocks=14, max_num_seqs=2, scheduler_reserve_full_isl=False)
    for name in ("a", "b"):
        there.add(name, 3, max_tokens=20, mm_features=[speech(16)])
    runs = 0
    while there.scheduler.has_requests():
        runs += len(there.step().scheduled_encoder_inputs)
    assert there.requests["b"].num_preemptions > 0
    assert runs == 2 + there.requests["b"].num_preemptions


def test_the_budget_of_the_encoder_holds_requests_back() -> None:
    there = toy(encoder_cache_size=80)
    for name in ("a", "b"):
        there.add(name, 3, mm_features=[speech(30, name)])
    there.step()
    assert there.running == ["a"]
    assert (there.admission.reason, there.admission.request_id) == (Reason.ENCODER_BUDGET, "b")
    there.step()
    assert there.running == ["a", "b"]


def test_room_in_the_cache_comes_back_with_every_step() -> None:
    """As in vLLM 0.22.1: soon there is more of it than there ever was."""
    there = toy()
    there.add("a", 3, mm_features=[speech(30)])
    cache = there.scheduler.encoder_cache
    assert cache is not None
    output = there.schedule()
    assert cache.num_free == 10
    there.update(output)
    assert cache.num_free == 40
    there.step()
    assert cache.num_free == 70
    there.scheduler.reset_encoder_cache()
    assert cache.num_free == 40


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([speech(41)], "a step computes and keeps at most 40"),
        ([speech(21, "x"), speech(20, "y")], "a step computes and keeps at most 40"),
        ([MultiModalItem(mm_hash="x", offset=0, length=3)], "reads all items by cross attention"),
    ],
)
def test_what_no_step_can_read_is_refused(items: list[MultiModalItem], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        toy().add("a", 3, mm_features=items)


def test_an_item_without_a_place_in_the_prompt_has_none() -> None:
    with pytest.raises(RequestError, match="give offset 0"):
        ToyEngine().add("a", 3, mm_features=[MultiModalItem(mm_hash="x", offset=1, length=3, cross=True)])
    with pytest.raises(RequestError, match="and no other does"):
        ToyEngine().add("a", 3, mm_features=[speech(3)])


def test_what_can_never_fit_is_refused_with_the_encoder_counted() -> None:
    there = toy(num_gpu_blocks=10)
    there.add("a", 3, max_tokens=2, mm_features=[speech(32)])
    with pytest.raises(RequestError, match="can need 11 blocks and the pool has 9"):
        there.add("b", 3, max_tokens=3, mm_features=[speech(36)])


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"enable_prefix_caching": True}, "enable_prefix_caching"),
        ({"enable_chunked_prefill": True}, "enable_chunked_prefill"),
        ({"max_num_encoder_input_tokens": 0}, "max_num_encoder_input_tokens"),
        ({"long_prefill_token_threshold": 8}, "long_prefill_token_threshold"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        toy(**settings)
    assert refusal.value.field == field


def test_sessions_are_refused() -> None:
    with pytest.raises(RequestError, match="has no sessions"):
        toy().add("a", 3, mm_features=[speech(4)], resumable=True)


# ---- context parallelism


def test_a_block_holds_a_part_on_every_rank() -> None:
    there = ToyEngine(decode_context_parallel_size=2, prefill_context_parallel_size=2, num_gpu_blocks=20)
    there.add("a", 33, max_tokens=1)
    there.step()
    there.add("b", 40, max_tokens=1)
    there.schedule()
    assert len(there.blocks("b")) == 3, "40 tokens in blocks of sixteen"


def test_hits_are_whole_blocks_over_all_ranks() -> None:
    there = ToyEngine(decode_context_parallel_size=2)
    there.add("a", list(range(21)), max_tokens=1)
    there.drain()
    there.add("b", list(range(20)), max_tokens=1)
    assert there.schedule().scheduled_new_reqs[0].num_computed_tokens == 16


def test_routed_experts_are_not_spread_over_ranks() -> None:
    with pytest.raises(ConfigError, match="use one rank"):
        ToyEngine(decode_context_parallel_size=2, enable_return_routed_experts=True)


@pytest.mark.parametrize("groups", [(FULL, FULL), (KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8),)])
def test_context_parallelism_needs_one_full_attention_group(groups: tuple[KVCacheGroup, ...]) -> None:
    with pytest.raises(ConfigError, match="one full-attention group"):
        CacheConfig(num_gpu_blocks=10_318, groups=groups, decode_context_parallel_size=2)
