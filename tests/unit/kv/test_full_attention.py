"""Blocks of one full-attention group: block lists, prefix hits, publication, common prefixes."""

from __future__ import annotations

import pytest

from tokenyard.core.kv.block_pool import BlockPool
from tokenyard.core.kv.groups import FullAttentionManager, GroupBlocks, PrefixQuery

HASHES = [b"h0", b"h1", b"h2", b"h3", b"h4"]


@pytest.fixture
def group() -> FullAttentionManager:
    return FullAttentionManager(GroupBlocks(BlockPool(12), 4))


def _open(group: FullAttentionManager, slot: int, hits: list[int], new: int) -> list[int]:
    group.open(slot, hits, 4 * len(hits))
    taken = group.pool.take(new)
    group.deal(slot, taken)
    return taken


def _publish(group: FullAttentionManager, slot: int, num_tokens: int) -> None:
    group.publish(slot, HASHES, num_tokens, 4, None)


def _hit(group: FullAttentionManager, max_length: int, *, drop_last: bool = False, alignment: int = 4) -> list[int]:
    return group.find_longest_cache_hit([group], PrefixQuery(HASHES, max_length, drop_last, alignment))[0]


@pytest.mark.parametrize(
    ("held", "tokens", "new"), [(0, 0, 0), (0, 1, 1), (0, 4, 1), (0, 5, 2), (1, 4, 0), (1, 5, 1), (3, 4, 0), (2, 17, 3)]
)
def test_new_blocks_cover_the_last_token(group: FullAttentionManager, held: int, tokens: int, new: int) -> None:
    _open(group, 0, [], held)
    need = group.need(0, tokens, [], 0)
    assert (need.new, need.hits) == (new, [])
    assert group.num_missing(0, tokens) == new


def test_hits_stand_for_new_blocks(group: FullAttentionManager) -> None:
    held = _open(group, 0, [], 2)
    need = group.need(-1, 13, held, 8)
    assert (need.new, need.hits) == (2, held)


def test_a_list_begins_with_its_hits(group: FullAttentionManager) -> None:
    new = _open(group, 0, [], 2)
    _publish(group, 0, 8)
    group.free(0)
    again = _open(group, 1, new, 1)
    assert group.held[1] == [*new, *again]
    assert group.num_cached[1] == 2
    group.pool.check_invariants(group.held.values())


def test_blocks_are_dealt_in_order(group: FullAttentionManager) -> None:
    for slot in (4, 2):
        group.open(slot, [], 0)
    assert (group.grow(4, 8), group.grow(2, 1)) == ([1, 2], [3])
    assert group.held == {4: [1, 2], 2: [3]}


def test_only_full_blocks_are_published_and_each_once(group: FullAttentionManager) -> None:
    _open(group, 0, [], 3)
    for tokens, published in ((3, 0), (7, 1), (7, 1), (12, 3), (5, 3)):
        _publish(group, 0, tokens)
        assert (group.pool.num_cached, group.num_cached[0]) == (published, published)
    assert [group.pool.blocks_with(key, 0) for key in HASHES[:3]] == [[1], [2], [3]]


def test_the_same_content_in_two_lists_is_kept_twice(group: FullAttentionManager) -> None:
    for slot in (0, 1):
        _open(group, slot, [], 1)
        _publish(group, slot, 4)
    assert group.pool.blocks_with(HASHES[0], 0) == [1, 2]
    assert _hit(group, 4) == [1]


@pytest.mark.parametrize(("max_length", "hit"), [(12, 3), (11, 2), (8, 2), (7, 1), (3, 0), (100, 3)])
def test_a_hit_never_exceeds_what_is_asked_for(group: FullAttentionManager, max_length: int, hit: int) -> None:
    _open(group, 0, [], 3)
    _publish(group, 0, 12)
    assert _hit(group, max_length) == [1, 2, 3][:hit]


@pytest.mark.parametrize(("published", "hit"), [(0, 0), (1, 0), (3, 2)])
def test_the_last_hit_may_be_left_to_compute(group: FullAttentionManager, published: int, hit: int) -> None:
    _open(group, 0, [], 3)
    _publish(group, 0, 4 * published)
    assert len(_hit(group, 12, drop_last=True)) == hit


def test_a_hit_may_have_to_end_at_a_larger_multiple(group: FullAttentionManager) -> None:
    _open(group, 0, [], 3)
    _publish(group, 0, 12)
    assert _hit(group, 12, alignment=8) == [1, 2]


def test_a_gap_ends_the_hit(group: FullAttentionManager) -> None:
    _open(group, 0, [], 3)
    _publish(group, 0, 12)
    group.pool.forget(2)
    assert _hit(group, 12) == [1]


def test_the_tail_is_freed_first(group: FullAttentionManager) -> None:
    _open(group, 0, [], 3)
    group.free(0)
    assert group.pool.free_blocks()[-3:] == [3, 2, 1]
    assert (group.held, group.num_cached) == ({}, {})


def test_the_common_prefix_is_what_every_holder_shares(group: FullAttentionManager) -> None:
    first = _open(group, 0, [], 3)
    assert group.num_common_prefix_blocks(0) == 3, "alone it shares everything with itself"
    _open(group, 1, first[:2], 1)
    assert group.num_common_prefix_blocks(0) == group.num_common_prefix_blocks(1) == 2
    _open(group, 2, first[:1], 1)
    assert group.num_common_prefix_blocks(1) == 1
    _open(group, 3, [], 1)
    assert group.num_common_prefix_blocks(1) == 0
    group.free(3)
    group.free(2)
    assert group.num_common_prefix_blocks(1) == 2
