"""The block pool: what is handed out, shared, evicted and taken back, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tokenyard.core.kv.block_pool import NULL_BLOCK, BlockPool
from tokenyard.core.request import BlockHash
from tokenyard.core.rows import Row

A, B, C = b"a", b"b", b"c"


def _publish(pool: BlockPool, blocks: Sequence[int], contents: Sequence[BlockHash]) -> None:
    for block, content in zip(blocks, contents, strict=True):
        pool.publish(block, content, 0)


def test_the_null_block_is_never_handed_out() -> None:
    pool = BlockPool(5)
    assert pool.num_free == 4
    assert pool.take(4) == [1, 2, 3, 4]
    assert NULL_BLOCK not in pool.free_blocks()
    pool.check_invariants([[1, 2, 3, 4]])


def test_usage_leaves_the_null_block_out() -> None:
    pool = BlockPool(5)
    assert pool.usage == 0.0
    pool.take(1)
    assert pool.usage == 0.25
    pool.take(3)
    assert pool.usage == 1.0
    assert BlockPool(1).usage == 0.0


def test_blocks_return_in_the_given_order_and_last_come_last_out() -> None:
    pool = BlockPool(6)
    held = pool.take(3)
    pool.release(reversed(held))
    assert pool.free_blocks() == [4, 5, 3, 2, 1]
    pool.check_invariants([])


def test_a_shared_block_is_free_when_the_last_holder_lets_go() -> None:
    pool = BlockPool(4)
    held = pool.take(2)
    pool.touch(held[:1])
    pool.release(reversed(held))
    assert pool.free_blocks() == [3, 2]
    assert list(pool.holders) == [0, 1, 0, 0]
    pool.release(held[:1])
    assert pool.free_blocks() == [3, 2, 1]


def test_taking_a_cached_block_evicts_its_content() -> None:
    pool = BlockPool(3)
    _publish(pool, pool.take(2), [A, B])
    pool.release([1, 2])
    assert (pool.find(A, 0), pool.find(B, 0)) == (1, 2)
    assert pool.take(1) == [1]
    assert pool.find(A, 0) == NULL_BLOCK
    assert pool.content == [None, None, B]
    pool.check_invariants([[1]])


def test_evicting_one_of_two_equal_blocks_keeps_the_other_findable() -> None:
    pool = BlockPool(4)
    _publish(pool, pool.take(2), [A, A])
    pool.release([1, 2])
    assert pool.take(2) == [3, 1]
    assert pool.find(A, 0) == 2
    pool.check_invariants([[3, 1]])


def test_touching_a_free_block_takes_it_out_of_the_queue() -> None:
    pool = BlockPool(4)
    _publish(pool, pool.take(1), [A])
    pool.release([1])
    assert pool.free_blocks() == [2, 3, 1]
    assert pool.num_evictable([1]) == 1
    pool.touch([1])
    assert pool.free_blocks() == [2, 3]
    assert pool.num_evictable([1]) == 0
    pool.touch([1])
    assert pool.holders[1] == 2
    assert pool.find(A, 0) == 1, "touched content stays"
    pool.check_invariants([[1], [1]])


def test_a_touched_block_that_returns_is_evicted_last() -> None:
    pool = BlockPool(4)
    _publish(pool, pool.take(3), [A, B, C])
    pool.release([1, 2, 3])
    pool.touch([1])
    pool.release([1])
    assert pool.take(2) == [2, 3]
    assert pool.find(A, 0) == 1


def test_reset_forgets_everything_when_nothing_is_held() -> None:
    pool = BlockPool(4)
    _publish(pool, pool.take(2), [A, B])
    pool.release([2, 1])
    assert pool.reset() is True
    assert pool.num_cached == 0
    assert pool.content == [None] * 4
    assert pool.free_blocks() == [3, 2, 1], "the order of eviction stays"
    pool.check_invariants([])


def test_reset_is_refused_while_a_block_is_held() -> None:
    pool = BlockPool(4)
    _publish(pool, pool.take(2), [A, B])
    pool.release([2])
    assert pool.reset() is False
    assert pool.find(B, 0) == 2
    assert pool.content == [None, A, B, None]


def test_groups_keep_their_content_apart() -> None:
    """The same tokens have other KV in another group."""
    pool = BlockPool(4, num_groups=2)
    first, second = pool.take(2)
    pool.publish(first, A, 0)
    pool.publish(second, A, 1)
    assert [pool.find(A, group) for group in (0, 1)] == [first, second]
    assert pool.num_cached == 2
    pool.release([second])
    assert pool.take(2) == [3, second]
    assert [pool.find(A, group) for group in (0, 1)] == [first, NULL_BLOCK]
    pool.check_invariants([[first], [3, second]])


def test_the_null_block_in_a_list_is_passed_over() -> None:
    pool = BlockPool(4)
    (block,) = pool.take(1)
    _publish(pool, [NULL_BLOCK, block], [A, B])
    assert (pool.find(A, 0), pool.find(B, 0)) == (NULL_BLOCK, block)
    pool.touch([NULL_BLOCK, block])
    assert list(pool.holders) == [0, 2, 0, 0]
    pool.release([NULL_BLOCK, block])
    pool.release([block, NULL_BLOCK])
    assert pool.free_blocks() == [2, 3, block]
    assert pool.num_evictable([NULL_BLOCK, block, NULL_BLOCK]) == 1
    pool.check_invariants([[NULL_BLOCK]])


@pytest.mark.parametrize(
    "damage", ["holders", "lost", "twice", "back", "counted", "unchained", "phantom", "stale", "contents", "null"]
)
def test_the_invariants_notice_damage(damage: str) -> None:
    pool = BlockPool(5)
    held = pool.take(2)
    _publish(pool, held, [A, B])
    pool.check_invariants([held])
    if damage == "holders":
        pool.holders[1] += 1
    elif damage == "lost":
        pool.unlink(4)
    elif damage == "twice":
        pool.link(pool.before[NULL_BLOCK], 1)
    elif damage == "back":
        pool.before[4] = NULL_BLOCK
    elif damage == "counted":
        pool.num_free += 1
    elif damage == "unchained":
        pool.bucket[pool.home(hash(A), 0)] = 0
    elif damage == "phantom":
        pool.content[1] = B
    elif damage == "stale":
        pool.content[1] = None
    elif damage == "contents":
        pool.num_cached += 1
    else:
        pool.link(pool.before[NULL_BLOCK], NULL_BLOCK)
    with pytest.raises(AssertionError):
        pool.check_invariants([held])


# ---- several blocks with one content


def test_the_oldest_block_is_found_and_the_next_oldest_after_it() -> None:
    pool = BlockPool(10)
    blocks = pool.take(4)
    _publish(pool, blocks, [A, A, A, A])
    assert (pool.find(A, 0), pool.blocks_with(A, 0), pool.num_cached) == (1, [1, 2, 3, 4], 1)
    pool.forget(1)
    assert (pool.find(A, 0), pool.blocks_with(A, 0)) == (2, [2, 3, 4])
    pool.forget(3)
    assert pool.blocks_with(A, 0) == [2, 4]
    pool.forget_content([A])
    assert (pool.find(A, 0), pool.blocks_with(A, 0), pool.num_cached) == (NULL_BLOCK, [], 0)
    pool.publish(4, A, 0)
    assert pool.blocks_with(A, 0) == [4], "what was forgotten can come back"
    pool.check_invariants([blocks])


def test_publishing_a_block_again_changes_nothing() -> None:
    pool = BlockPool(4)
    held = pool.take(2)
    _publish(pool, held, [A, A])
    pool.publish(1, A, 0)
    assert (pool.blocks_with(A, 0), pool.num_cached) == ([1, 2], 1)
    pool.check_invariants([held])


def test_contents_in_one_bucket_are_kept_apart() -> None:
    """Numbers whose last bits agree, as digests of a long run do now and then."""
    pool = BlockPool(20)
    alike = [7 + (i << 58) for i in range(8)]
    assert len({pool.home(hash(each), 0) for each in alike}) < len(alike)
    held = pool.take(9)
    _publish(pool, held, [*alike, 8])
    assert [pool.find(each, 0) for each in alike] == held[:8]
    for gone in range(0, 8, 2):
        pool.forget(held[gone])
    assert [pool.find(each, 0) for each in alike] == [NULL_BLOCK, 2, NULL_BLOCK, 4, NULL_BLOCK, 6, NULL_BLOCK, 8]
    assert (pool.find(8, 0), pool.num_cached) == (9, 5)
    pool.check_invariants([held])


# ---- against lists and dictionaries

CONTENTS = st.sampled_from([A, B, C, 1, 2, 3, 7 + (1 << 31), 7 + (1 << 58), -1, -2])
"""Few, so that several blocks have one; -1 and -2 have one hash in Python."""
PLACES = st.integers(0, 11)
COMMANDS = st.lists(st.tuples(st.sampled_from(["take", "hold", "release", "publish", "forget"]), PLACES, CONTENTS))


class Lists:
    """What a pool does, with free blocks in a list, holders in another, and per content a list of its blocks."""

    def __init__(self, num_blocks: int, *, unhashed_first: bool) -> None:
        self.pool = BlockPool(num_blocks, put_back=unhashed_first)
        self.unhashed_first = unhashed_first
        self.free, self.held = list(range(1, num_blocks)), list[int]()
        self.cached: dict[BlockHash, list[int]] = {}

    def take(self, place: int, content: BlockHash) -> None:
        if self.free:
            block = self.free.pop(0)
            self._lose(block)
            assert self.pool.take_one() == block
            self.held.append(block)

    def hold(self, place: int, content: BlockHash) -> None:
        block = 1 + place % (self.pool.num_blocks - 1)
        self.free = [each for each in self.free if each != block]
        self.pool.hold(block)
        self.held.append(block)

    def release(self, place: int, content: BlockHash) -> None:
        if self.held:
            block = self.held.pop(place % len(self.held))
            self.pool.release([block])
            first = self.unhashed_first and not self._has_content(block)
            if block not in self.held:
                self.free.insert(0 if first else len(self.free), block)

    def publish(self, place: int, content: BlockHash) -> None:
        block = self.held[place % len(self.held)] if self.held else NULL_BLOCK
        if not self._has_content(block):
            self.pool.publish(block, content, 0)
            if block != NULL_BLOCK:
                self.cached.setdefault(content, []).append(block)

    def forget(self, place: int, content: BlockHash) -> None:
        self.pool.forget(place % self.pool.num_blocks)
        self._lose(place % self.pool.num_blocks)

    def _has_content(self, block: int) -> bool:
        return any(block in blocks for blocks in self.cached.values())

    def _lose(self, block: int) -> None:
        left = {content: [each for each in blocks if each != block] for content, blocks in self.cached.items()}
        self.cached = {content: blocks for content, blocks in left.items() if blocks}


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(200))
@given(commands=COMMANDS, unhashed_first=st.booleans())
def test_it_behaves_like_lists(commands: list[tuple[str, int, BlockHash]], *, unhashed_first: bool) -> None:
    lists = Lists(8, unhashed_first=unhashed_first)
    pool = lists.pool
    for command, place, content in commands:
        getattr(lists, command)(place, content)
        assert pool.free_blocks() == lists.free
        assert [pool.blocks_with(each, 0) for each in lists.cached] == list(lists.cached.values())
        assert all(pool.find(each, 0) == blocks[0] for each, blocks in lists.cached.items())
        assert (pool.num_free, pool.num_cached) == (len(lists.free), len(lists.cached))
        pool.check_invariants([lists.held])


# ---- where freed blocks go


def test_freed_blocks_without_content_may_go_first() -> None:
    """vLLM since 0.24: the end of a sequence, which was not full, is handed out next."""
    pool = BlockPool(7, put_back=True)
    held = pool.take(4)
    _publish(pool, held[:2], [A, B])
    pool.release(reversed(held))
    assert pool.free_blocks() == [4, 3, 5, 6, 2, 1]
    pool.check_invariants([])


def test_a_group_may_put_them_first_whatever_the_rule() -> None:
    pool = BlockPool(6)
    held = pool.take(3)
    pool.publish(held[0], A, 0)
    pool.release(reversed(held), unhashed_first=True)
    assert pool.free_blocks() == [3, 2, 4, 5, 1]


def test_a_policy_chooses_by_content_and_is_asked_about_freed_blocks_alone() -> None:
    asked: list[tuple[list[int], list[BlockHash | None]]] = []

    def evicts_first(freed: Sequence[int], contents: Sequence[BlockHash | None]) -> list[bool]:
        asked.append((list(freed), list(contents)))
        return [content == B for content in contents]

    pool = BlockPool(8, put_back=evicts_first)
    held = pool.take(4)
    _publish(pool, held[:3], [A, B, B])
    pool.hold(held[0])
    pool.release([NULL_BLOCK, *reversed(held)])
    assert asked == [([4, 3, 2], [None, B, B])]
    assert pool.free_blocks() == [3, 2, 5, 6, 7, 4]
    row = Row()
    row.extend(held[:1])
    pool.release_row(row)
    assert (row.size, pool.free_blocks()) == (0, [3, 2, 5, 6, 7, 4, 1])
    pool.check_invariants([])
