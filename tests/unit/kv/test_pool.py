"""The block pool: what is handed out, shared, evicted and taken back, and in which order."""

from __future__ import annotations

import pytest

from tokenyard.core.kv.block_pool import NULL_BLOCK, BlockPool

A, B, C = b"a", b"b", b"c"


def test_the_null_block_is_never_handed_out() -> None:
    pool = BlockPool(5)
    assert pool.num_free == 4
    assert pool.take(4) == [1, 2, 3, 4]
    assert NULL_BLOCK not in pool.free_queue
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
    assert list(pool.free_queue) == [4, 5, 3, 2, 1]
    pool.check_invariants([])


def test_a_shared_block_is_free_when_the_last_holder_lets_go() -> None:
    pool = BlockPool(4)
    held = pool.take(2)
    pool.touch(held[:1])
    pool.release(reversed(held))
    assert list(pool.free_queue) == [3, 2]
    assert list(pool.ref) == [0, 1, 0, 0]
    pool.release(held[:1])
    assert list(pool.free_queue) == [3, 2, 1]


def test_taking_a_cached_block_evicts_its_content() -> None:
    pool = BlockPool(3)
    pool.publish(pool.take(2), [A, B])
    pool.release([1, 2])
    assert (pool.indexes[0].get(A), pool.indexes[0].get(B)) == (1, 2)
    assert pool.take(1) == [1]
    assert pool.indexes[0].get(A) is None
    assert pool.hash_of == [None, None, B]
    pool.check_invariants([[1]])


def test_evicting_one_of_two_equal_blocks_keeps_the_other_findable() -> None:
    pool = BlockPool(4)
    pool.publish(pool.take(2), [A, A])
    pool.release([1, 2])
    assert pool.take(2) == [3, 1]
    assert pool.indexes[0].get(A) == 2
    pool.check_invariants([[3, 1]])


def test_touching_a_free_block_takes_it_out_of_the_queue() -> None:
    pool = BlockPool(4)
    pool.publish(pool.take(1), [A])
    pool.release([1])
    assert list(pool.free_queue) == [2, 3, 1]
    assert pool.num_evictable([1]) == 1
    pool.touch([1])
    assert list(pool.free_queue) == [2, 3]
    assert pool.num_evictable([1]) == 0
    pool.touch([1])
    assert pool.ref[1] == 2
    assert pool.indexes[0].get(A) == 1, "touched content stays"
    pool.check_invariants([[1], [1]])


def test_a_touched_block_that_returns_is_evicted_last() -> None:
    pool = BlockPool(4)
    pool.publish(pool.take(3), [A, B, C])
    pool.release([1, 2, 3])
    pool.touch([1])
    pool.release([1])
    assert pool.take(2) == [2, 3]
    assert pool.indexes[0].get(A) == 1


def test_reset_forgets_everything_when_nothing_is_held() -> None:
    pool = BlockPool(4)
    pool.publish(pool.take(2), [A, B])
    pool.release([2, 1])
    assert pool.reset() is True
    assert pool.num_cached == 0
    assert pool.hash_of == [None] * 4
    assert list(pool.free_queue) == [3, 2, 1], "the order of eviction stays"
    pool.check_invariants([])


def test_reset_is_refused_while_a_block_is_held() -> None:
    pool = BlockPool(4)
    pool.publish(pool.take(2), [A, B])
    pool.release([2])
    assert pool.reset() is False
    assert pool.indexes[0].get(B) == 2
    assert pool.hash_of == [None, A, B, None]


def test_groups_keep_their_content_apart() -> None:
    """The same tokens have other KV in another group."""
    pool = BlockPool(4, num_groups=2)
    first, second = pool.take(2)
    pool.publish([first], [A], group_id=0)
    pool.publish([second], [A], group_id=1)
    assert [index.get(A) for index in pool.indexes] == [first, second]
    assert pool.num_cached == 2
    pool.release([second])
    assert pool.take(2) == [3, second]
    assert [index.get(A) for index in pool.indexes] == [first, None]
    pool.check_invariants([[first], [3, second]])


def test_the_null_block_in_a_list_is_passed_over() -> None:
    pool = BlockPool(4)
    (block,) = pool.take(1)
    pool.publish([NULL_BLOCK, block], [A, B])
    assert (pool.indexes[0].get(A), pool.indexes[0].get(B)) == (None, block)
    pool.touch([NULL_BLOCK, block])
    assert list(pool.ref) == [0, 2, 0, 0]
    pool.release([NULL_BLOCK, block])
    pool.release([block, NULL_BLOCK])
    assert list(pool.free_queue) == [2, 3, block]
    assert pool.num_evictable([NULL_BLOCK, block, NULL_BLOCK]) == 1
    pool.check_invariants([[NULL_BLOCK]])


@pytest.mark.parametrize("damage", ["ref", "lost", "twice", "unindexed", "phantom", "stale", "null"])
def test_the_invariants_notice_damage(damage: str) -> None:
    pool = BlockPool(5)
    held = pool.take(2)
    pool.publish(held, [A, B])
    pool.check_invariants([held])
    if damage == "ref":
        pool.ref[1] += 1
    elif damage == "lost":
        pool.free_queue.remove(4)
    elif damage == "twice":
        pool.free_queue.append(1)
    elif damage == "unindexed":
        pool.indexes[0].discard(A, 1)
    elif damage == "phantom":
        pool.hash_of[1] = B
    elif damage == "stale":
        pool.hash_of[1] = None
    else:
        pool.free_queue.append(NULL_BLOCK)
    with pytest.raises(AssertionError):
        pool.check_invariants([held])
