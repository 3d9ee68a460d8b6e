"""Growth of running requests: each gets room in turn, as far as memory allows."""

from __future__ import annotations

import pytest
from tests.support.memory import Memory
from tests.support.toy_engine import make_request, prompt_of

from tokenyard.core.kv.allocation import KVLimit, KVShortage
from tokenyard.core.request import Request

TEXT = prompt_of("text", 64)


@pytest.fixture
def rows(memory: Memory) -> list[Request]:
    """Three requests that hold two full blocks each; three blocks are free."""
    return [memory.admit(name, 8) for name in ("a", "b", "c")]


def test_rows_within_their_blocks_take_nothing(memory: Memory) -> None:
    request = memory.admit("r", 5)
    memory.new_step()
    assert memory.grow({request: 8}) == 1
    assert len(memory.blocks(request)) == 2
    assert memory.new_blocks() == {}


def test_rows_that_cross_a_boundary_get_blocks_in_order(memory: Memory, rows: list[Request]) -> None:
    memory.new_step()
    assert memory.grow(dict.fromkeys(rows, 9)) == 3
    assert [memory.blocks(row)[2:] for row in rows] == [[7], [8], [9]]
    assert memory.new_blocks() == {row.request_id: (memory.blocks(row)[2:],) for row in rows}
    assert [memory.kv.capacity(row) for row in rows] == [12, 12, 12]


def test_a_row_may_take_several_blocks(memory: Memory, rows: list[Request]) -> None:
    assert memory.grow({rows[0]: 8, rows[1]: 17, rows[2]: 8}) == 3
    assert memory.blocks(rows[1]) == [3, 4, 7, 8, 9]
    assert memory.free == 0


@pytest.mark.parametrize(
    ("ends", "served", "left"),
    [
        ([9, 9, 9], 3, 0),
        ([9, 9, 13], 2, 1),
        ([9, 13, 9], 2, 0),
        ([13, 13, 8], 1, 1),
        ([21, 9, 9], 0, 3),
        ([8, 21, 8], 1, 3),
        ([13, 9, 9], 2, 0),
        ([13, 9, 8], 3, 0),
    ],
)
def test_the_leading_rows_that_fit_are_served(
    memory: Memory, rows: list[Request], ends: list[int], served: int, left: int
) -> None:
    assert memory.grow(dict(zip(rows, ends, strict=True))) == served
    assert memory.free == left
    memory.kv.check_invariants()


def test_the_first_row_not_served_is_unchanged(memory: Memory, rows: list[Request]) -> None:
    held = [memory.blocks(row) for row in rows]
    assert memory.grow({rows[0]: 9, rows[1]: 17, rows[2]: 9}) == 1
    assert [memory.blocks(row) for row in rows[1:]] == held[1:]
    assert memory.kv.shortage_of(rows[1], 17, 0) == KVShortage(KVLimit.BLOCKS, needed=3, free=2, cached_hits=0)


def test_a_full_pool_serves_rows_that_need_nothing(memory: Memory, rows: list[Request]) -> None:
    memory.admit("rest", 12)
    assert memory.free == 0
    assert memory.grow({rows[0]: 8, rows[1]: 8, rows[2]: 9}) == 2


def test_lookahead_comes_on_top_within_max_model_len() -> None:
    memory = Memory(max_model_len=10)
    request = memory.admit("r", 5)
    assert memory.grow({request: 6}, num_lookahead_tokens=2) == 1
    assert len(memory.blocks(request)) == 2
    assert memory.grow({request: 7}, num_lookahead_tokens=20) == 1
    assert len(memory.blocks(request)) == 3
    assert memory.free == 6


def test_growth_evicts_the_least_recently_used(memory: Memory) -> None:
    old, new = (memory.admit(name, prompt_of(name, 8)) for name in ("old", "new"))
    runner = memory.admit("runner", 20)
    memory.finish(old, new)
    assert memory.free == 4
    memory.grow({runner: 24})
    assert memory.kv.pool.free_blocks() == [1, 4, 3], "old's tail went first"
    assert memory.kv.get_computed_blocks(make_request("x", prompt_of("old", 8))).num_tokens == 4


# ---- publication


def test_a_block_is_published_when_a_step_computes_its_last_token(memory: Memory) -> None:
    request = memory.admit("r", TEXT[:6])
    memory.sample(request, TEXT[6])
    memory.grow({request: 7})
    assert memory.num_cached == 1
    memory.sample(request, TEXT[7])
    assert memory.num_cached == 1, "the token is known, not computed"
    memory.grow({request: 8})
    assert memory.num_cached == 2
    assert memory.kv.get_computed_blocks(make_request("x", TEXT[:12])).num_tokens == 8


def test_drafts_beyond_the_known_tokens_are_never_published(memory: Memory) -> None:
    """Nine positions are computed, six tokens are verified."""
    request = memory.admit("r", TEXT[:5])
    memory.sample(request, TEXT[5])
    request.spec_token_ids = [1, 2, 3]
    assert memory.grow({request: 9}) == 1
    assert len(memory.blocks(request)) == 3
    assert memory.num_cached == 1
    assert len(request.block_hashes) == 1


def test_a_chunked_prefill_publishes_as_it_goes(memory: Memory) -> None:
    request = memory.admit("r", TEXT[:14], 3)
    published = [memory.num_cached]
    for end in (6, 8, 13, 14):
        memory.grow({request: end})
        published.append(memory.num_cached)
    assert published == [0, 1, 2, 3, 3]


def test_rows_not_served_publish_nothing(memory: Memory) -> None:
    memory.admit("rest", 24)
    first, second = memory.admit("a", 14, 3), memory.admit("b", 14, 3)
    assert memory.free == 1
    assert memory.grow({first: 8, second: 8}) == 1
    assert memory.kv.get_computed_blocks(make_request("x", prompt_of("a", 14))).num_tokens == 8
    assert memory.kv.get_computed_blocks(make_request("y", prompt_of("b", 14))).num_tokens == 0


def test_without_caching_growth_publishes_nothing() -> None:
    memory = Memory(enable_prefix_caching=False)
    request = memory.admit("r", 3)
    memory.sample(request, 70, 71, 72)
    assert memory.grow({request: 6}) == 1
    assert len(memory.blocks(request)) == 2
    assert memory.num_cached == 0
    memory.kv.check_invariants()
