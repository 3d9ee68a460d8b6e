"""Token ids out of seeds: the same everywhere, shared exactly where the recording shares."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokenyard.workload.readers.published import append_range, first_ids, id_ranges, num_ids
from tokenyard.workload.tokens import HashedTokens, ListedTokens, Segment, StreamTokens, output_tokens, seed_of

SEEDS = st.integers(-(2**63), 2**63 - 1)
IDS = st.lists(st.integers(0, 2**62), max_size=12)


def hashed(ids: list[int], num_tokens: int, *, block_size: int = 8, scope: int = 1, tail: int = 2) -> HashedTokens:
    return HashedTokens(id_ranges(ids), num_tokens, block_size=block_size, scope=scope, tail=tail)


def test_outputs_are_pinned() -> None:
    """Changing these changes every replay: it needs a line in the changelog."""
    seeds = np.array([0, 1, -1, 2**62], np.int64)
    positions = np.array([0, 1, 100_000, 2**31], np.int64)
    assert output_tokens(seeds, positions).tolist() == [1731737044, 678308833, 2126783140, 2020059972]
    assert seed_of("a", 1) == 3380136236231657789


@given(SEEDS, st.integers(0, 10**6), st.integers(1, 200))
def test_a_prompt_segment_is_what_the_model_says(seed: int, start: int, count: int) -> None:
    positions = np.arange(start, start + count)
    said = output_tokens(np.full(count, seed), positions)
    assert StreamTokens(Segment(seed, start, start + count)).tokens().tolist() == said.tolist()


def test_tokens_are_32_bit_and_spread() -> None:
    tokens = StreamTokens.unique(7, 200_000).tokens()
    assert tokens.dtype == np.int32
    assert tokens.min() >= 0
    assert len(np.unique(tokens)) > 199_900
    assert abs(float(tokens.mean()) / 2**30 - 1) < 0.01


def test_segments_follow_each_other() -> None:
    first, second = Segment(1, 5, 40_000), Segment(2, 0, 3)
    both = StreamTokens(first, second)
    assert len(both) == 39_998
    assert both.tokens().tolist() == [*StreamTokens(first).tokens(), *StreamTokens(second).tokens()]


def test_listed_tokens_are_themselves() -> None:
    ids = np.array([3, 1, 2], np.int32)
    assert len(ListedTokens(ids)) == 3
    assert ListedTokens(ids).tokens() is ids


@given(IDS)
def test_ranges_hold_the_ids(ids: list[int]) -> None:
    ranges = id_ranges(ids)
    assert hashed(ids, 1).hash_ids().tolist() == ids
    assert num_ids(ranges) == len(ids)
    assert all(sum(a) != b[0] for a, b in pairwise(ranges))


@given(IDS, st.integers(0, 14))
def test_kept_prefix_and_append(ids: list[int], keep: int) -> None:
    ranges = first_ids(id_ranges(ids), keep)
    append_range(ranges, 77, 3)
    assert [first + i for first, count in ranges for i in range(count)] == [*ids[:keep], 77, 78, 79]


@given(IDS, IDS, IDS, st.integers(1, 40))
def test_shared_ids_mean_a_shared_prefix_and_no_more(
    common: list[int], left: list[int], right: list[int], block_size: int
) -> None:
    a, b = [*common, *left], [*common, *right]
    shared = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    tokens_a = hashed(a, len(a) * block_size, block_size=block_size, tail=5).tokens()
    tokens_b = hashed(b, len(b) * block_size, block_size=block_size, tail=6).tokens()
    cut = shared * block_size
    assert tokens_a[:cut].tolist() == tokens_b[:cut].tolist()
    if shared < min(len(a), len(b)) and block_size >= 2:
        assert tokens_a[cut : cut + block_size].tolist() != tokens_b[cut : cut + block_size].tolist()


@given(IDS, st.integers(0, 7))
def test_a_partial_last_block_takes_the_first_tokens_of_its_id(ids: list[int], missing: int) -> None:
    full = hashed(ids, len(ids) * 8).tokens()
    cut = max(0, len(full) - missing)
    assert hashed(ids, cut).tokens().tolist() == full[:cut].tolist()


@given(IDS, st.integers(1, 30))
def test_what_ids_leave_out_is_unique(ids: list[int], more: int) -> None:
    length = len(ids) * 8 + more
    one, other = hashed(ids, length, tail=3).tokens(), hashed(ids, length, tail=4).tokens()
    assert len(one) == length
    assert one[: len(ids) * 8].tolist() == other[: len(ids) * 8].tolist()
    assert one[len(ids) * 8 :].tolist() == StreamTokens.unique(3, more).tokens().tolist()
    assert one[-1] != other[-1]


def test_scopes_are_apart() -> None:
    assert hashed([1, 2], 16, scope=1).tokens().tolist() != hashed([1, 2], 16, scope=2).tokens().tolist()


def test_long_prompts_are_expanded_in_pieces() -> None:
    ids = list(range(100, 1700))
    whole = hashed(ids, 1600 * 64, block_size=64).tokens()
    assert whole[64 * 1234 : 64 * 1235].tolist() == hashed([1334], 64, block_size=64).tokens().tolist()
