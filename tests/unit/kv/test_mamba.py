"""Recurrent layers: one state instead of KV of every token, alone and beside full attention."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.toy_engine import ToyEngine, prompt_of

from tokenyard.core.config import (
    CacheConfig,
    GroupKind,
    KVCacheGroup,
    MambaCacheMode,
    SpeculativeConfig,
    SpeculativeMethod,
)
from tokenyard.core.kv.block_pool import NULL_BLOCK, BlockPool
from tokenyard.core.kv.groups import GroupBlocks, PrefixQuery
from tokenyard.core.kv.mamba import AlignedMambaManager, MambaManager
from tokenyard.core.sched.outcomes import OutcomeKind, Reason
from tokenyard.errors import ConfigError

HASHES = [bytes([i]) for i in range(10)]
FULL, STATE = KVCacheGroup(), KVCacheGroup(kind=GroupKind.MAMBA)


def states(drafts: int = 0) -> MambaManager:
    return MambaManager(GroupBlocks(BlockPool(40), 4), drafts, 64)


def aligned(drafts: int = 0) -> AlignedMambaManager:
    return AlignedMambaManager(GroupBlocks(BlockPool(40), 4), drafts, 64)


def toy(mode: str, *groups: KVCacheGroup, **settings: Any) -> ToyEngine:
    groups = groups or (FULL, STATE)
    caching = mode != "none"
    return ToyEngine(groups=groups, mamba_cache_mode=MambaCacheMode(mode), enable_prefix_caching=caching, **settings)


# ---- what is kept


def test_only_the_last_state_is_kept() -> None:
    manager = states()
    manager.open(0, [], 0)
    held = manager.grow(0, 18)
    manager.drop_skipped(0, 18)
    assert manager.held[0] == [NULL_BLOCK] * 4 + held[4:]


def test_drafts_that_may_be_wrong_keep_an_earlier_state() -> None:
    manager = states(drafts=3)
    manager.open(0, [], 0)
    held = manager.grow(0, 18)
    assert len(held) == 5 + 3, "a place for the state after each draft"
    assert manager.capacity(0) == 20
    manager.drop_skipped(0, 18)
    assert manager.held[0] == [NULL_BLOCK] * 3 + held[3:], "if three of them are wrong, the state after 15 is read"


@pytest.mark.parametrize("drafts", [0, 2, 5])
def test_the_next_skip_is_told_in_advance(drafts: int) -> None:
    def skipped(computed: int) -> int:
        return manager.num_skipped_blocks(max(0, computed - drafts))

    manager = states(drafts)
    for computed in range(40):
        first = next(at for at in range(computed + 1, 60) if skipped(at) > skipped(computed))
        assert manager.next_skip(computed) == first


def test_an_aligned_step_takes_the_block_it_ends_in() -> None:
    manager = aligned()
    manager.open(0, [], 0)
    (first,) = (block for block in manager.grow(0, 12) if block != NULL_BLOCK)
    assert manager.held[0] == [NULL_BLOCK, NULL_BLOCK, first]
    manager.drop_skipped(0, 12)
    second = manager.grow(0, 24)[-1]
    assert manager.held[0] == [NULL_BLOCK, NULL_BLOCK, first, NULL_BLOCK, NULL_BLOCK, second]
    manager.drop_skipped(0, 24)
    assert manager.held[0] == [NULL_BLOCK] * 5 + [second], "what was read has been passed, with nulls in between"
    manager.free(0)
    manager.pool.check_invariants([])


def test_blocks_of_drafts_move_on_with_the_state() -> None:
    manager = aligned(drafts=2)
    manager.open(0, [], 0)
    state, *drafts = manager.grow(0, 4)
    grown = manager.grow(0, 16)
    assert manager.held[0] == [state, NULL_BLOCK, NULL_BLOCK, *drafts, grown[-1]]
    assert grown == [*drafts, grown[-1]], "positions three to five; the drafts' old places have the null block"
    assert manager.pool.num_free == 39 - 4


def test_fewer_drafts_than_before_need_nothing() -> None:
    """vLLM 0.22.1 fails an assertion."""
    manager = aligned(drafts=2)
    manager.open(0, [], 0)
    held = list(manager.grow(0, 18))
    assert (manager.num_missing(0, 15), manager.grow(0, 15), manager.held[0]) == (0, [], held)


# ---- prefix hits


def _cached(manager: MambaManager, *positions: int) -> dict[int, int]:
    blocks = dict(zip(positions, manager.pool.take(len(positions)), strict=True))
    for i, block in blocks.items():
        manager.pool.publish(block, HASHES[i], manager.group_id)
    return blocks


def test_a_hit_is_the_last_cached_state() -> None:
    manager = states()
    blocks = _cached(manager, 0, 3, 6)
    for length, found in ((40, [NULL_BLOCK] * 6 + [blocks[6]]), (27, [NULL_BLOCK] * 3 + [blocks[3]]), (3, [])):
        assert manager.find_longest_cache_hit([manager], PrefixQuery(HASHES, length, drop_last=False, alignment=4)) == [
            found
        ]
    hits = manager.find_longest_cache_hit([manager], PrefixQuery(HASHES, 40, drop_last=False, alignment=16))
    assert hits == [[NULL_BLOCK] * 3 + [blocks[3]]], "seven blocks are no multiple of the alignment"


def test_a_state_written_in_this_step_is_read_in_the_next() -> None:
    there = toy("all", max_num_batched_tokens=64)
    there.add("a", prompt_of("x", 12))
    there.add("b", prompt_of("x", 13))
    there.step()
    assert there.running == ["a"]
    assert (there.admission.reason, there.admission.kind) == (Reason.MAMBA_STATE_NOT_READY, OutcomeKind.STOPPED)
    assert there.admission.smallest_need == 4, "no blocks were short, but it needs some"
    assert (there.admission.request_id, there.admission.kv) == ("b", None), "no lack of blocks"
    output = there.step()
    assert there.running == ["a", "b"]
    assert output.scheduled_new_reqs[0].num_computed_tokens == 12


def test_a_hit_ends_where_both_types_have_something() -> None:
    """Full attention has every block, the state layer what its steps ended with."""
    there = toy("align", max_num_batched_tokens=20)
    there.add("a", prompt_of("x", 30), max_tokens=1)
    there.drain()
    there.add("b", prompt_of("x", 27), max_tokens=1)
    assert there.step().scheduled_new_reqs[0].num_computed_tokens == 20, "the first step ended there"


# ---- in a scheduler


@pytest.mark.parametrize(("mode", "drafts"), [("all", 0), ("align", 0), ("none", 0), ("all", 2), ("align", 2)])
def test_a_request_holds_few_states_however_long(mode: str, drafts: int) -> None:
    spec = SpeculativeConfig(num_speculative_tokens=drafts, method=SpeculativeMethod.EAGLE) if drafts else None
    there = toy(mode, STATE, max_num_batched_tokens=8, speculative=spec)
    request = there.add("a", 40, max_tokens=20, ignore_eos=True)
    most = there.scheduler.kv.most_blocks(60, at_once=False)
    assert most <= 4 + 2 * drafts
    while there.scheduler.has_requests():
        assert there.scheduler.num_blocks_of(request) <= most
        there.step()


def test_workers_zero_the_attention_blocks_they_are_given() -> None:
    there = toy("align")
    there.add("a", 9, max_tokens=9)
    taken = [there.step().new_block_ids_to_zero for _ in range(3)]
    assert [*(taken[0] or ()), *(taken[1] or ())] == there.scheduler.kv.get_block_ids(there.requests["a"])[0]
    assert taken[2] is None, "the tenth token has a place in the third block"
    there.abort("a")
    there.add("b", 8, max_tokens=9)
    output = there.schedule()
    attention, state = there.scheduler.kv.get_block_ids(there.requests["b"])
    assert list(output.new_block_ids_to_zero or ()) == attention
    assert not set(attention) & set(state)


def test_a_model_without_states_zeroes_nothing() -> None:
    there = ToyEngine()
    there.add("a", 9)
    assert there.step().new_block_ids_to_zero is None


# ---- settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mamba_cache_mode": MambaCacheMode.NONE}, "use all or align with prefix caching"),
        ({"mamba_cache_mode": MambaCacheMode.ALL, "enable_prefix_caching": False}, "use none without it"),
        ({"mamba_cache_mode": "some"}, "use one of: none, all, align"),
        ({"mamba_cache_mode": MambaCacheMode.ALL, "block_size": 8}, "states are kept per block of the cache"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], message: str) -> None:
    group = KVCacheGroup(kind=GroupKind.MAMBA, block_size=16)
    with pytest.raises(ConfigError, match=message):
        CacheConfig(num_gpu_blocks=10, groups=(group,), **settings)
