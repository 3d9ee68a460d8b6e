"""Layers that keep a request's last tokens in one block: taken once, never shared, no part of a hit."""

from __future__ import annotations

import pytest
from tests.support.toy_engine import ToyEngine, prompt_of

from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup
from tokenyard.core.kv.block_pool import BlockPool
from tokenyard.core.kv.circular import CircularBufferManager
from tokenyard.core.kv.groups import GroupBlocks, hash_block_size
from tokenyard.errors import ConfigError

FULL = KVCacheGroup()


def ring(block_size: int = 0) -> KVCacheGroup:
    return KVCacheGroup(kind=GroupKind.CIRCULAR_BUFFER, block_size=block_size)


def test_one_block_is_taken_whatever_the_length_and_given_back() -> None:
    pool = BlockPool(10)
    manager = CircularBufferManager(GroupBlocks(pool, 4))
    free = pool.num_free
    assert manager.need(-1, 1000, (), 0).new == 1
    manager.open(0, [], 0)
    assert len(manager.grow(0, 1000)) == 1
    assert (manager.need(0, 2000, (), 1000).new, manager.grow(0, 2000)) == (0, [])
    manager.drop_skipped(0, 2000)
    assert pool.num_free == free - 1
    manager.free(0)
    assert pool.num_free == free


def test_what_a_connector_brings_needs_the_block_once() -> None:
    manager = CircularBufferManager(GroupBlocks(BlockPool(10), 4))
    manager.open(0, [], 0)
    manager.allocate_external(0, 40)
    held = list(manager.held[0])
    manager.allocate_external(0, 80)
    assert len(held) == 1
    assert manager.held[0] == held


def test_hits_are_those_of_the_other_groups_and_the_ring_is_new() -> None:
    engine = ToyEngine(groups=(FULL, ring()))
    engine.add("a", prompt_of("shared", 40), max_tokens=1)
    engine.update(engine.schedule())
    again = engine.add("b", prompt_of("shared", 40))
    engine.schedule()
    full, own = engine.scheduler.kv.get_block_ids(again)
    assert (again.num_cached_tokens, len(full), len(own)) == (36, 10, 1)
    assert set(own).isdisjoint(full)


def test_hits_are_multiples_of_a_ring_that_is_larger_than_a_block() -> None:
    engine = ToyEngine(groups=(FULL, ring(16)))
    engine.add("a", prompt_of("shared", 60), max_tokens=1)
    engine.update(engine.schedule())
    again = engine.add("b", prompt_of("shared", 60))
    engine.schedule()
    assert again.num_cached_tokens == 48


def test_hashes_are_of_blocks_that_can_be_found_again() -> None:
    cache = CacheConfig(num_gpu_blocks=10, block_size=16, groups=(FULL, ring(4)))
    assert (hash_block_size(cache), cache.shared_block_sizes, cache.group_block_sizes) == (16, (16,), (16, 4))


def test_rings_alone_are_refused() -> None:
    with pytest.raises(ConfigError, match="circular buffers stand beside other groups"):
        CacheConfig(num_gpu_blocks=10, groups=(ring(), ring()))
