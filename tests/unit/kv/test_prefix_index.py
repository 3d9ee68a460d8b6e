"""The prefix index: several blocks may hold the same content, the oldest answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.core.kv.block_pool import PrefixIndex

A, B, C = b"a", b"b", b"c"


def test_an_unknown_hash_has_no_block() -> None:
    index = PrefixIndex()
    assert index.get(A) is None
    assert index.all_blocks(A) == []
    assert len(index) == 0


def test_the_oldest_block_wins() -> None:
    index = PrefixIndex()
    for block in (5, 3, 9):
        index.add(A, block)
    assert index.get(A) == 5
    assert index.all_blocks(A) == [5, 3, 9]
    assert len(index) == 1


def test_publishing_a_block_again_changes_nothing() -> None:
    index = PrefixIndex()
    index.add(A, 5)
    index.add(A, 5)
    assert index.all_blocks(A) == [5]


def test_the_next_oldest_is_promoted() -> None:
    index = PrefixIndex()
    index.add_n([A, A, A, A], [5, 3, 9, 1])
    index.discard(A, 5)
    assert (index.get(A), index.all_blocks(A)) == (3, [3, 9, 1])
    index.discard(A, 9)
    assert index.all_blocks(A) == [3, 1]
    index.discard(A, 3)
    index.discard(A, 1)
    assert index.get(A) is None
    assert len(index) == 0


def test_a_hash_that_was_forgotten_can_come_back() -> None:
    index = PrefixIndex()
    index.add_n([A, A], [5, 3])
    index.discard(A, 5)
    index.discard(A, 3)
    index.add(A, 7)
    assert index.all_blocks(A) == [7]


@pytest.mark.parametrize("published", [[], [5], [5, 3]])
def test_forgetting_what_was_never_published_is_our_own_mistake(published: list[int]) -> None:
    index = PrefixIndex()
    index.add_n([A] * len(published), published)
    with pytest.raises((KeyError, ValueError)):
        index.discard(A, 8)


def test_the_longest_prefix_ends_at_the_first_unknown_hash() -> None:
    index = PrefixIndex()
    index.add_n([A, B, B], [1, 2, 4])
    assert index.longest_prefix([A, B]) == [1, 2]
    assert index.longest_prefix([A, C, B]) == [1]
    assert index.longest_prefix([C, A, B]) == []
    assert index.longest_prefix([]) == []


def test_clear_forgets_duplicates_too() -> None:
    index = PrefixIndex()
    index.add_n([A, A, B], [1, 2, 3])
    index.clear()
    assert len(index) == 0
    assert [index.all_blocks(key) for key in (A, B)] == [[], []]
    index.add(A, 2)
    assert index.all_blocks(A) == [2]


@given(commands=st.lists(st.tuples(st.booleans(), st.sampled_from([A, B, C]), st.integers(0, 8)), max_size=80))
def test_it_behaves_like_a_dict_of_lists(commands: list[tuple[bool, bytes, int]]) -> None:
    index = PrefixIndex()
    model: dict[bytes, list[int]] = {A: [], B: [], C: []}
    for adds, key, block in commands:
        if adds and not any(block in blocks for blocks in model.values()):
            index.add(key, block)
            model[key].append(block)
        elif not adds and block in model[key]:
            index.discard(key, block)
            model[key].remove(block)
        for each, blocks in model.items():
            assert index.all_blocks(each) == blocks
            assert index.get(each) == (blocks[0] if blocks else None)
        assert len(index) == sum(bool(blocks) for blocks in model.values())
