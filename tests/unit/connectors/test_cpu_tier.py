"""The CPU tier's book-keeping."""

from __future__ import annotations

import pytest

from tokenyard.connectors.tiers import CPUTier, LookupResult
from tokenyard.core.kv.events import BlockRemoved, BlockStored, short_hash
from tokenyard.errors import ConfigError


def keys(*names: str) -> list[bytes]:
    return [name.encode() for name in names]


def filled(num_blocks: int, *names: str, events: bool = False) -> CPUTier:
    """A tier with these blocks ready."""
    tier = CPUTier(num_blocks, events=events)
    for key in keys(*names):
        assert tier.reserve(key) is not None
        tier.complete(key)
    return tier


def test_a_leading_run_is_found() -> None:
    tier = filled(4, "a", "b", "d")
    assert tier.find(keys("a", "b", "c", "d")) == LookupResult(2)
    assert tier.find(keys("c")) == LookupResult(0)
    assert tier.cpu_blocks == (1, 4)


def test_a_block_being_written_is_neither_there_nor_absent() -> None:
    tier = filled(4, "a")
    tier.reserve(b"b")
    assert tier.find(keys("a", "b")) == LookupResult(1, undecided=True)
    assert tier.reserve(b"b") is None
    tier.complete(b"b")
    assert tier.find(keys("a", "b")) == LookupResult(2)


def test_the_beginning_of_a_chain_goes_last() -> None:
    tier = filled(3, "a", "b", "c")
    tier.touch(keys("a", "b", "c"))
    tier.reserve(b"x")
    assert b"c" not in tier
    assert tier.find(keys("a", "b")) == LookupResult(2)


def test_held_blocks_and_blocks_being_written_stay() -> None:
    tier = filled(2, "a", "b")
    tier.hold(keys("a"))
    assert tier.reserve(b"c") is not None
    assert b"b" not in tier
    assert tier.reserve(b"d") is None, "one is read, the other is being written"
    tier.release(keys("a"))
    assert tier.reserve(b"d") is not None
    tier.check_invariants()


def test_every_content_has_a_place_of_its_own() -> None:
    tier = filled(3, "a", "b", "c")
    assert sorted(tier.sources(keys("a", "b", "c"))) == [0, 1, 2]
    freed = tier.sources(keys("a"))
    tier.touch(keys("b", "c"))
    assert (tier.reserve(b"d"),) == freed


def test_a_lost_block_goes_with_its_last_reader() -> None:
    tier = filled(2, "a")
    tier.hold(keys("a"))
    tier.hold(keys("a"))
    tier.lost(b"a")
    assert tier.find(keys("a")).num_blocks == 0
    tier.release(keys("a"))
    assert not tier.reset()
    tier.release(keys("a"))
    assert tier.cpu_blocks == (2, 2)
    tier.check_invariants()


def test_a_reset_waits_for_whoever_uses_it() -> None:
    tier = filled(3, "a", "b")
    tier.hold(keys("a"))
    assert not tier.reset()
    tier.release(keys("a"))
    tier.reserve(b"c")
    assert not tier.reset()
    tier.complete(b"c")
    assert tier.reset()
    assert tier.cpu_blocks == (3, 3)
    assert tier.find(keys("a")) == LookupResult(0)
    tier.check_invariants()


def test_statistics_count_blocks_since_the_last_call() -> None:
    tier = filled(2, "a", "b")
    tier.sources(keys("a"))
    tier.reserve(b"c")
    assert tier.take_stats() == {"cpu_hit_blocks": 1, "cpu_stored_blocks": 2, "cpu_evicted_blocks": 1}
    assert not any(tier.take_stats().values())


def test_events_carry_the_medium() -> None:
    tier = filled(1, "a", events=True)
    tier.reserve(b"b")
    tier.complete(b"b")
    tier.reset()
    stored, removed, stored_b, removed_b = tier.take_events()
    assert isinstance(stored, BlockStored)
    assert (stored.block_hashes, stored.medium) == ([short_hash(b"a")], "CPU")
    assert removed == BlockRemoved([short_hash(b"a")], "CPU")
    assert isinstance(stored_b, BlockStored)
    assert removed_b == BlockRemoved([short_hash(b"b")], "CPU")
    assert tier.take_events() == ()


def test_a_tier_needs_a_block() -> None:
    with pytest.raises(ConfigError, match="num_cpu_blocks"):
        CPUTier(0)


def test_what_is_promised_stays_until_the_next_promise() -> None:
    tier = filled(2, "a", "b")
    tier.promise(keys("a", "b"))
    assert tier.reserve(b"c") is None
    tier.promise(keys("b"))
    assert tier.reserve(b"c") is not None
    assert tier.find(keys("b")) == LookupResult(1)
    tier.check_invariants()
