"""The prefix index: several blocks may hold the same content, the oldest answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.core.kv.block_pool import NumberedIndex, PrefixIndex
from tokenyard.core.request import BlockHash

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


NUMBERS = st.sampled_from((1, 2, 3, 4, 1023, 1024, 1025, 5000))
"""Few, so that several blocks have the same content; around the length that a column begins with, and beyond it."""
COMMANDS = st.lists(st.tuples(st.booleans(), st.lists(st.tuples(NUMBERS, st.integers(1, 40)), max_size=8)), max_size=40)


@given(commands=COMMANDS)
def test_numbers_in_a_column_are_found_as_hashes_in_a_dictionary_are(
    commands: list[tuple[bool, list[tuple[int, int]]]],
) -> None:
    plain, numbered, of_block = PrefixIndex(), NumberedIndex(), dict[int, int]()
    for adds, pairs in commands:
        if adds:
            published = {block: of_block.get(block, number) for number, block in pairs}
            # Only what answers for its content is published again.
            again = [block for block in published if block in of_block and plain.get(of_block[block]) != block]
            published = {block: number for block, number in published.items() if block not in again}
            of_block |= published
            for index in (plain, numbered):
                index.add_n(list(published.values()), list(published))
        else:
            gone = [block for block in dict.fromkeys(block for _, block in pairs) if block in of_block]
            numbers: list[BlockHash] = [of_block.pop(block) for block in gone]
            for index in (plain, numbered):
                index.discard_n(numbers, gone)
        assert len(plain) == len(numbered)
        asked = [number for number, _ in pairs]
        assert [plain.all_blocks(each) for each in asked] == [numbered.all_blocks(each) for each in asked]
        assert plain.longest_prefix(asked) == numbered.longest_prefix(asked)


def test_a_number_without_a_block_cannot_be_forgotten() -> None:
    index = NumberedIndex()
    index.add_n([7, 9000], [1, 2])
    for number, block in ((7, 2), (8, 1), (20_000, 1)):
        with pytest.raises(KeyError):
            index.discard(number, block)
    index.clear()
    assert (len(index), index.get(7), index.longest_prefix([7])) == (0, None, [])
