"""Attention types that forget: what they skip, what they accept as a prefix hit, what a request holds at most."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.memory import Memory
from tests.support.toy_engine import ToyEngine, prompt_of

from tokenyard.core.config import GroupKind, KVCacheGroup
from tokenyard.core.kv.block_pool import NULL_BLOCK, BlockPool
from tokenyard.core.kv.groups import ChunkedLocalManager, GroupBlocks, PrefixQuery, SlidingWindowManager
from tokenyard.core.kv.manager import Demand

HASHES = [bytes([i]) for i in range(10)]
FULL = KVCacheGroup()


def sliding(window: int, block_size: int = 4) -> SlidingWindowManager:
    return SlidingWindowManager(GroupBlocks(BlockPool(40), block_size), window, 99, 99)


def chunked(window: int, block_size: int = 4) -> ChunkedLocalManager:
    return ChunkedLocalManager(GroupBlocks(BlockPool(40), block_size), window, 99, 99)


def _cached(manager: Any, *positions: int) -> dict[int, int]:
    """Publish blocks at these positions; returns position -> block."""
    blocks = dict(zip(positions, manager.pool.take(len(positions)), strict=True))
    for i, block in blocks.items():
        manager.pool.publish(block, HASHES[i], manager.group_id)
    return blocks


def _hit(manager: Any, max_length: int, *, drop_last: bool = False, alignment: int = 4) -> list[int]:
    found: list[list[int]] = manager.find_longest_cache_hit(
        [manager], PrefixQuery(HASHES, max_length, drop_last, alignment)
    )
    return found[0]


# ---- what is skipped


@pytest.mark.parametrize(("computed", "skipped"), [(0, 0), (3, 0), (4, 1), (7, 4), (20, 17)])
def test_a_window_leaves_tokens_behind(computed: int, skipped: int) -> None:
    """A window of four: the next token sees itself and the three before it."""
    assert sliding(4).num_skipped_tokens(computed) == skipped


@pytest.mark.parametrize(("computed", "skipped"), [(0, 0), (7, 0), (8, 8), (13, 8), (16, 16)])
def test_a_chunk_leaves_the_chunks_before_it_behind(computed: int, skipped: int) -> None:
    assert chunked(8).num_skipped_tokens(computed) == skipped


@pytest.mark.parametrize("manager", [sliding(1), sliding(4), sliding(6), sliding(9, 2), chunked(8), chunked(12)])
def test_the_next_skip_is_told_in_advance(manager: Any) -> None:
    for computed in range(60):
        now = manager.num_skipped_blocks(computed)
        first = next(at for at in range(computed + 1, 200) if manager.num_skipped_blocks(at) > now)
        assert computed < manager.next_skip(computed) <= first


def test_skipped_blocks_are_freed_and_leave_the_null_block() -> None:
    manager = sliding(4)
    manager.open(0, [], 0)
    held = manager.pool.take(5)
    manager.deal(0, held)
    manager.drop_skipped(0, 13)
    assert manager.held[0] == [NULL_BLOCK, NULL_BLOCK, *held[2:]]
    assert manager.pool.free_blocks()[-2:] == [held[1], held[0]]
    manager.drop_skipped(0, 13)
    manager.drop_skipped(0, 5)
    assert manager.held[0] == [NULL_BLOCK, NULL_BLOCK, *held[2:]], "nothing is freed twice"
    manager.free(0)
    manager.pool.check_invariants([])


# ---- prefix hits


def test_a_window_full_of_cached_blocks_is_a_hit() -> None:
    """A window of eight needs the two blocks before the next token; what lies before them may be gone."""
    manager = sliding(8)
    blocks = _cached(manager, 3, 4)
    assert _hit(manager, 40) == [NULL_BLOCK, NULL_BLOCK, NULL_BLOCK, blocks[3], blocks[4]]
    assert _hit(manager, 19) == [], "one block of it alone is not enough"


def test_the_longest_hit_wins() -> None:
    manager = sliding(8)
    blocks = _cached(manager, 1, 2, 3, 6, 7)
    assert _hit(manager, 40)[-2:] == [blocks[6], blocks[7]]
    assert _hit(manager, 31) == [NULL_BLOCK, NULL_BLOCK, blocks[2], blocks[3]]


def test_a_leading_run_is_a_hit_however_short() -> None:
    manager = sliding(12)
    blocks = _cached(manager, 0, 1)
    assert _hit(manager, 40) == [blocks[0], blocks[1]]


def test_drafts_need_one_block_more_which_is_dropped() -> None:
    manager = sliding(5)
    blocks = _cached(manager, 3, 4)
    assert _hit(manager, 40) == [NULL_BLOCK] * 4 + [blocks[4]]
    assert _hit(manager, 40, drop_last=True) == [NULL_BLOCK] * 3 + [blocks[3]]


def test_only_the_end_of_an_aligned_stretch_can_be_hit() -> None:
    manager = sliding(5)
    assert manager.publishable(0, 8, 16) == [False, False, False, True] * 2
    assert manager.publishable(0, 8, 4) is None, "every block ends such a stretch"
    blocks = _cached(manager, 2, 3, 4)
    assert _hit(manager, 40, alignment=8)[-1] == blocks[3]


def test_chunks_before_the_last_one_count_as_computed() -> None:
    manager = chunked(8)
    assert _hit(manager, 17) == [NULL_BLOCK] * 4
    blocks = _cached(manager, 4)
    assert _hit(manager, 23) == [NULL_BLOCK] * 4 + [blocks[4]]
    assert _hit(manager, 15) == [NULL_BLOCK] * 2


# ---- in a scheduler


def _memory_of(window: KVCacheGroup, *others: KVCacheGroup) -> list[int]:
    """Blocks that a request of 40 tokens holds after each step of eight."""
    toy = ToyEngine(groups=(*others, window), max_num_batched_tokens=8)
    request = toy.add("a", 40, max_tokens=4)
    held = []
    while request.request_id in toy.scheduler.requests:
        toy.step()
        held.append(toy.scheduler.num_blocks_of(request))
    return held[:5]


def test_a_window_bounds_what_is_held() -> None:
    window = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=5)
    assert _memory_of(window) == [2, 3, 3, 3, 3]
    assert _memory_of(window, FULL) == [4, 7, 9, 11, 13]


def test_chunks_bound_what_is_held() -> None:
    assert _memory_of(KVCacheGroup(kind=GroupKind.CHUNKED_LOCAL, window=8), FULL) == [4, 6, 8, 10, 12]


def test_a_hit_serves_every_group() -> None:
    toy = ToyEngine(groups=(FULL, KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=5)), max_num_batched_tokens=64)
    text = prompt_of("text", 21)
    toy.add("a", text[:20], max_tokens=1)
    toy.drain()
    toy.add("b", text)
    output = toy.step()
    assert output.num_computed.tolist() == [20]
    full, window = output.scheduled_new_reqs[0].block_ids
    assert NULL_BLOCK not in full
    assert window[:4] == [NULL_BLOCK] * 4


def test_a_long_prompt_needs_little_memory_in_a_windowed_model() -> None:
    """Ten blocks would not hold 60 tokens of full attention."""
    window = KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=8)
    toy = ToyEngine(groups=(window,), num_gpu_blocks=11, max_num_batched_tokens=8)
    request = toy.add("a", 60, max_tokens=4)
    toy.drain()
    assert request.num_output_tokens == 4


def test_what_lies_before_the_window_is_given_back_before_more_is_taken() -> None:
    """A request that was admitted for a load, and goes on from further along: slot 0 as well as any other."""
    memory = Memory(20, groups=(KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=4),))
    for slot, name in enumerate(("first", "second")):
        request = memory.admit(name, 24, 0, num_external_computed_tokens=8, delay_cache_blocks=True)
        before = memory.blocks(request)
        request.num_computed_tokens = 16
        assert memory.kv.allocate_slots(Demand(request, 8, memory.kv.no_hits)) is None
        after = memory.blocks(request)
        assert [block == NULL_BLOCK for block in after] == [True, True, False, False, False, False]
        assert before[1] not in after
        assert request.slot == slot, "it keeps its row"
        memory.kv.check_invariants()
