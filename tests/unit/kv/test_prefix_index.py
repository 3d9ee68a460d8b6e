"""The prefix index: several blocks may hold the same content, the oldest answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.core.kv.prefix_index import FlatIndex, NumberedIndex, PrefixIndex
from tokenyard.core.request import BlockHash

A, B, C = b"a", b"b", b"c"

Index = Callable[[], PrefixIndex]
indexes = pytest.mark.parametrize("make", [PrefixIndex, partial(FlatIndex, 10)], ids=["dictionary", "table"])


@indexes
def test_an_unknown_hash_has_no_block(make: Index) -> None:
    index = make()
    assert index.get(A) is None
    assert index.all_blocks(A) == []
    assert len(index) == 0


@indexes
def test_the_oldest_block_wins(make: Index) -> None:
    index = make()
    for block in (5, 3, 9):
        index.add(A, block)
    assert index.get(A) == 5
    assert index.all_blocks(A) == [5, 3, 9]
    assert len(index) == 1


@indexes
def test_publishing_a_block_again_changes_nothing(make: Index) -> None:
    index = make()
    index.add(A, 5)
    index.add(A, 5)
    assert index.all_blocks(A) == [5]


@indexes
def test_the_next_oldest_is_promoted(make: Index) -> None:
    index = make()
    index.add_n([A, A, A, A], [5, 3, 9, 1])
    index.discard(A, 5)
    assert (index.get(A), index.all_blocks(A)) == (3, [3, 9, 1])
    index.discard(A, 9)
    assert index.all_blocks(A) == [3, 1]
    index.discard(A, 3)
    index.discard(A, 1)
    assert index.get(A) is None
    assert len(index) == 0


@indexes
def test_a_hash_that_was_forgotten_can_come_back(make: Index) -> None:
    index = make()
    index.add_n([A, A], [5, 3])
    index.discard(A, 5)
    index.discard(A, 3)
    index.add(A, 7)
    assert index.all_blocks(A) == [7]


@indexes
@pytest.mark.parametrize("published", [[], [5], [5, 3]])
def test_forgetting_what_was_never_published_is_our_own_mistake(make: Index, published: list[int]) -> None:
    index = make()
    index.add_n([A] * len(published), published)
    with pytest.raises((KeyError, ValueError)):
        index.discard(A, 8)


@indexes
def test_the_longest_prefix_ends_at_the_first_unknown_hash(make: Index) -> None:
    index = make()
    index.add_n([A, B, B], [1, 2, 4])
    assert index.longest_prefix([A, B]) == [1, 2]
    assert index.longest_prefix([A, C, B]) == [1]
    assert index.longest_prefix([C, A, B]) == []
    assert index.longest_prefix([]) == []


@indexes
def test_clear_forgets_duplicates_too(make: Index) -> None:
    index = make()
    index.add_n([A, A, B], [1, 2, 3])
    index.clear()
    assert len(index) == 0
    assert [index.all_blocks(key) for key in (A, B)] == [[], []]
    index.add(A, 2)
    assert index.all_blocks(A) == [2]


@indexes
@given(commands=st.lists(st.tuples(st.booleans(), st.sampled_from([A, B, C]), st.integers(0, 8)), max_size=80))
def test_it_behaves_like_a_dict_of_lists(make: Index, commands: list[tuple[bool, bytes, int]]) -> None:
    index = make()
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


@pytest.mark.parametrize("make", [NumberedIndex, partial(FlatIndex, 41)], ids=["column", "table"])
@given(commands=COMMANDS)
def test_what_is_in_a_column_is_found_as_in_a_dictionary(
    make: Index,
    commands: list[tuple[bool, list[tuple[int, int]]]],
) -> None:
    plain, other, of_block = PrefixIndex(), make(), dict[int, int]()
    for adds, pairs in commands:
        if adds:
            published = {block: of_block.get(block, number) for number, block in pairs}
            # Only what answers for its content is published again.
            again = [block for block in published if block in of_block and plain.get(of_block[block]) != block]
            published = {block: number for block, number in published.items() if block not in again}
            of_block |= published
            for index in (plain, other):
                index.add_n(list(published.values()), list(published))
        else:
            gone = [block for block in dict.fromkeys(block for _, block in pairs) if block in of_block]
            numbers: list[BlockHash] = [of_block.pop(block) for block in gone]
            for index in (plain, other):
                index.discard_n(numbers, gone)
        assert len(plain) == len(other)
        asked = [number for number, _ in pairs]
        assert [plain.all_blocks(each) for each in asked] == [other.all_blocks(each) for each in asked]
        assert plain.longest_prefix(asked) == other.longest_prefix(asked)


def test_a_number_without_a_block_cannot_be_forgotten() -> None:
    index = NumberedIndex()
    index.add_n([7, 9000], [1, 2])
    for number, block in ((7, 2), (8, 1), (20_000, 1)):
        with pytest.raises(KeyError):
            index.discard(number, block)
    index.clear()
    assert (len(index), index.get(7), index.longest_prefix([7])) == (0, None, [])


def test_different_hashes_in_one_place_of_the_table_are_kept_apart() -> None:
    index, alike = FlatIndex(20), [7 + (i << 31) for i in range(10)]
    index.add_n([*alike, 8], list(range(1, 12)))
    assert [index.get(each) for each in alike] == list(range(1, 11))
    for gone in range(0, 10, 2):
        index.discard(alike[gone], gone + 1)
    assert [index.get(each) for each in alike] == [None, 2, None, 4, None, 6, None, 8, None, 10]
    assert (index.get(8), len(index)) == (11, 6)
