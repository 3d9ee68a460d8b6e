"""Admission's question to memory: three stages, exact numbers, and no trace of a refusal."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.memory import Memory
from tests.support.toy_engine import make_request, prompt_of

from tokenyard.core.config import GroupKind, KVCacheGroup, MambaCacheMode
from tokenyard.core.kv.allocation import KVLimit, KVShortage
from tokenyard.core.kv.manager import Demand

TEXT = prompt_of("text", 64)


def test_a_new_request_gets_blocks_and_a_slot(memory: Memory) -> None:
    request = make_request("r", 10)
    assert memory.ask(request) == ([1, 2, 3],)
    assert request.slot >= 0
    assert memory.blocks(request) == [1, 2, 3]
    assert memory.kv.capacity(request) == 12
    assert memory.free == 6
    memory.kv.check_invariants()


def test_hits_are_touched_before_new_blocks_are_taken(memory: Memory) -> None:
    """Stage one takes the hits out of the eviction queue, so that stage three cannot evict them."""
    memory.finish(memory.admit("first", TEXT[:36]))
    assert memory.free == 9
    second = memory.admit("second", TEXT[:33])
    assert memory.blocks(second) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert memory.free == 0


def test_a_chunk_takes_only_what_it_fills(memory: Memory) -> None:
    request = memory.admit("r", TEXT[:20], 5)
    assert len(memory.blocks(request)) == 2
    assert memory.num_cached == 1, "only the full block within the chunk is findable"


def test_known_tokens_beyond_the_chunk_are_not_published(memory: Memory) -> None:
    memory.admit("r", TEXT[:20], 7)
    assert memory.kv.get_computed_blocks(make_request("next", TEXT[:20])).num_tokens == 4


# ---- refusals


def test_too_few_blocks(memory: Memory) -> None:
    memory.admit("first", 20)
    short = memory.refused("second", 17)
    assert short == KVShortage(KVLimit.BLOCKS, needed=5, free=4, cached_hits=0)
    assert short.missing == 1


def test_the_last_block_is_enough(memory: Memory) -> None:
    memory.admit("first", 20)
    memory.admit("second", 16)
    assert memory.free == 0


def test_evictable_hits_count_as_needed() -> None:
    """A hit in the free queue must leave it: it costs a free block although nothing is computed for it."""
    memory = Memory(num_gpu_blocks=5)
    memory.finish(memory.admit("first", TEXT[:8]))
    memory.admit("other", 4)
    short = memory.refused("second", [*TEXT[:8], *prompt_of("tail", 8)])
    assert short == KVShortage(KVLimit.BLOCKS, needed=4, free=3, cached_hits=2)


def test_held_hits_cost_nothing() -> None:
    memory = Memory(num_gpu_blocks=5)
    memory.admit("first", TEXT[:8])
    memory.admit("second", [*TEXT[:8], *prompt_of("tail", 8)])
    assert memory.free == 0


@pytest.mark.parametrize(("chunk", "fits"), [(4, True), (16, True), (20, False)])
def test_the_chunk_alone_counts_without_the_full_sequence_gate(chunk: int, fits: bool) -> None:
    memory = Memory(num_gpu_blocks=5)
    answer = memory.ask(make_request("r", 20), chunk)
    assert isinstance(answer, KVShortage) is not fits


def test_the_full_sequence_must_fit_if_asked_for() -> None:
    memory = Memory(num_gpu_blocks=5)
    short = memory.refused("r", 20, num_new_tokens=4, full_sequence_must_fit=True)
    assert short == KVShortage(KVLimit.FULL_SEQUENCE, needed=5, free=4, cached_hits=0)
    memory.admit("fits", 16, 4, full_sequence_must_fit=True)
    assert memory.free == 3, "the gate reserves nothing"


def test_the_full_sequence_counts_evictable_hits() -> None:
    memory = Memory(num_gpu_blocks=5)
    memory.finish(memory.admit("first", TEXT[:8]))
    memory.admit("other", 4)
    short = memory.refused("second", TEXT[:16], num_new_tokens=1, full_sequence_must_fit=True)
    assert short == KVShortage(KVLimit.FULL_SEQUENCE, needed=4, free=3, cached_hits=2)


def test_the_full_sequence_ends_at_max_model_len() -> None:
    memory = Memory(num_gpu_blocks=5, max_model_len=16)
    request = make_request("r", 20)
    assert memory.kv.allocate_slots(Demand(request, 4, memory.kv.no_hits, full_sequence_must_fit=True)) is None


@pytest.mark.parametrize(("running", "fits"), [(True, False), (False, True)])
def test_the_watermark_keeps_blocks_free_while_something_runs(running: bool, fits: bool) -> None:
    memory = Memory(watermark=0.25)
    assert memory.kv.watermark_blocks == 2
    answer = memory.ask(make_request("r", 32), keep_watermark=running)
    assert isinstance(answer, KVShortage) is not fits
    if isinstance(answer, KVShortage):
        assert answer == KVShortage(KVLimit.WATERMARK, needed=8, free=9, cached_hits=0, watermark=2)
        assert answer.missing == 1


def test_the_watermark_may_be_reached_exactly() -> None:
    memory = Memory(watermark=0.25)
    memory.admit("r", 28, keep_watermark=True)
    assert memory.free == 2


def test_a_plain_shortage_is_not_blamed_on_the_watermark() -> None:
    memory = Memory(watermark=0.25)
    assert memory.refused("r", 40, keep_watermark=True).limit is KVLimit.BLOCKS


REFUSED: list[dict[str, Any]] = [
    {},
    {"full_sequence_must_fit": True, "num_new_tokens": 1},
    {"keep_watermark": True},
    {"num_lookahead_tokens": 8},
    {"num_external_computed_tokens": 4},
    {"delay_cache_blocks": True},
]


@pytest.mark.parametrize("options", REFUSED, ids=lambda options: ",".join(options) or "plain")
def test_a_refusal_changes_nothing(options: dict[str, Any]) -> None:
    """With evictable hits, a holder and a duplicate in the index."""
    memory = Memory(watermark=0.1)
    memory.finish(memory.admit("first", TEXT[:8]))
    memory.admit("holder", prompt_of("x", 13))
    request = make_request("second", TEXT[:40])
    hit = memory.kv.get_computed_blocks(request)
    assert hit.num_tokens == 8
    before, hashes = memory.state(), list(request.block_hashes)
    new = {"num_new_tokens": 32, **options}
    assert memory.kv.allocate_slots(Demand(request, hit=hit, **new)) is not None
    assert memory.state() == before
    assert (request.slot, request.num_computed_tokens, request.block_hashes) == (-1, 0, hashes)


# ---- lookahead, external tokens, delayed caching


def test_lookahead_slots_get_blocks_but_are_never_published(memory: Memory) -> None:
    request = memory.admit("r", TEXT[:8], num_lookahead_tokens=3)
    assert len(memory.blocks(request)) == 3
    assert memory.kv.capacity(request) == 12
    assert memory.num_cached == 2


def test_lookahead_ends_at_max_model_len() -> None:
    memory = Memory(max_model_len=10)
    request = memory.admit("r", TEXT[:9], num_lookahead_tokens=30)
    assert len(memory.blocks(request)) == 3


def test_external_tokens_get_blocks_and_are_published(memory: Memory) -> None:
    """A connector brings positions 4..11; the first block is a local hit."""
    memory.finish(memory.admit("first", TEXT[:4]))
    request = memory.admit("r", TEXT[:14], num_external_computed_tokens=8)
    assert len(memory.blocks(request)) == 4
    assert memory.kv.get_computed_blocks(make_request("next", TEXT[:14])).num_tokens == 12


WINDOW = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=10)
STATE = KVCacheGroup(kind=GroupKind.MAMBA)


@pytest.mark.parametrize(
    ("other", "mode", "expected"),
    [
        (WINDOW, "none", ([1, 2, 3, 4, 8, 9], [0, 5, 6, 7, 10, 11])),
        (STATE, "all", ([1, 2, 3, 4, 6, 7], [0, 0, 0, 5, 8, 9])),
    ],
)
def test_every_group_takes_external_blocks_before_any_takes_new_ones(
    other: KVCacheGroup, mode: str, expected: tuple[list[int], ...]
) -> None:
    """The ids that vLLM 0.22.1's manager gives for 16 external tokens and 5 new ones."""
    memory = Memory(20, groups=(KVCacheGroup(), other), mamba_cache_mode=MambaCacheMode(mode))
    assert memory.ask(make_request("r", 40), 5, num_external_computed_tokens=16) == expected
    memory.kv.check_invariants()


def test_delayed_caching_publishes_nothing_yet(memory: Memory) -> None:
    memory.admit("r", TEXT[:14], delay_cache_blocks=True)
    assert memory.num_cached == 0


# ---- giving back


def test_everything_returns_tail_first(memory: Memory) -> None:
    first, second = memory.admit("first", 8), memory.admit("second", 4)
    memory.finish(first)
    assert memory.kv.pool.free_blocks() == [4, 5, 6, 7, 8, 9, 2, 1]
    assert (first.slot, memory.kv.get_block_ids(first)) == (-1, ([],))
    memory.finish(second)
    assert memory.free == memory.kv.num_usable_blocks == 9


def test_freeing_twice_is_harmless(memory: Memory) -> None:
    request = memory.admit("r", 8)
    memory.finish(request)
    before = memory.state()
    memory.finish(request)
    assert memory.state() == before


def test_a_request_keeps_its_counters_and_tokens_when_it_leaves(memory: Memory) -> None:
    request = memory.admit("r", TEXT[:6])
    memory.sample(request, 70, 71, 72)
    memory.finish(request)
    assert request.all_token_ids == [*TEXT[:6], 70, 71, 72]
    assert request.num_computed_tokens == 6


def test_blocks_of_this_step_are_forgotten_by_the_next(memory: Memory) -> None:
    request = memory.admit("r", 8)
    assert memory.new_blocks() == {"r": ([1, 2],)}
    memory.new_step()
    memory.grow({request: 9})
    assert memory.new_blocks() == {"r": ([3],)}
    memory.new_step()
    memory.grow({request: 10})
    assert memory.new_blocks() == {}
