"""Blocks are numbered so that equal hashes have equal ids, as long as they are remembered."""

from __future__ import annotations

from hashlib import blake2s
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from tokenyard.record import request_records as block_ids
from tokenyard.record.request_records import BlockIds, HashedBlocks

PROMPTS = st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=12)


def hashes(prompt: list[int]) -> list[bytes]:
    """A hash per block, of the block and all before it."""
    return [blake2s(repr(prompt[: end + 1]).encode()).digest() for end in range(len(prompt))]


def numbered(ids: BlockIds, named: list[bytes], start: int = 0) -> list[int]:
    """The ids of blocks from ``start`` on."""
    runs = HashedBlocks(ids, named, start, len(named)).made()
    return [
        number for first, count in zip(runs[::2], runs[1::2], strict=True) for number in range(first, first + count)
    ]


@given(prompts=PROMPTS)
def test_equal_blocks_have_equal_ids_and_others_have_not(prompts: list[list[int]]) -> None:
    ids, seen = BlockIds(), dict[bytes, int]()
    for prompt in prompts:
        named = hashes(prompt)
        for name, number in zip(named, numbered(ids, named), strict=True):
            assert seen.setdefault(name, number) == number
    assert sorted(set(seen.values())) == list(range(len(seen)))


@given(answered=st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=9), st.integers(0, 9)), max_size=12))
def test_an_answer_has_the_ids_that_a_prompt_has_which_goes_on_with_it(answered: list[tuple[list[int], int]]) -> None:
    ids, whole = BlockIds(), BlockIds()
    for conversation, num_prompt in answered:
        named = hashes(conversation)
        parts = numbered(ids, named[:num_prompt]) + numbered(ids, named, min(num_prompt, len(named)))
        assert parts == numbered(whole, named)
        assert parts == numbered(ids, named), "a prompt that goes on with the answer"


@given(prompts=PROMPTS, last=st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_what_is_forgotten_gets_ids_that_nobody_else_has(prompts: list[list[int]], last: list[int]) -> None:
    with mock.patch.object(block_ids, "_GENERATION", 5):
        ids, given_out = BlockIds(), dict[int, bytes]()
        for prompt in [*prompts, last]:
            named = hashes(prompt)
            for name, number in zip(named, numbered(ids, named), strict=True):
                assert given_out.setdefault(number, name) == name
        assert numbered(ids, hashes(last)) == numbered(ids, hashes(last)), "what came just now is remembered"
