"""Which block goes when the tier is full."""

from __future__ import annotations

from collections import OrderedDict
from random import Random

import pytest

from tokenyard.connectors.tiers import ARC, LRU, EvictionPolicy, make_eviction_policy
from tokenyard.errors import ConfigError


def key(number: int) -> bytes:
    return number.to_bytes(4, "big")


def anybody(key: bytes) -> bool:
    return True


class Cache:
    """A cache of ``capacity`` keys under a policy."""

    def __init__(self, policy: EvictionPolicy, capacity: int) -> None:
        self.policy, self.capacity = policy, capacity
        self.keys: set[bytes] = set()
        self.hits = 0

    def use(self, number: int) -> None:
        wanted = key(number)
        if wanted in self.keys:
            self.hits += 1
            self.policy.touch(wanted)
            return
        if len(self.keys) == self.capacity:
            gone = self.policy.evict(anybody)
            assert gone in self.keys
            self.keys.remove(gone)
        self.policy.add(wanted)
        self.keys.add(wanted)


def test_lru_gives_up_what_was_used_longest_ago() -> None:
    lru = LRU()
    for number in range(3):
        lru.add(key(number))
    lru.touch(key(0))
    assert [lru.evict(anybody) for _ in range(3)] == [key(1), key(2), key(0)]
    assert lru.evict(anybody) is None


def test_lru_against_a_plain_model() -> None:
    random, cache = Random(1), Cache(LRU(), 10)
    model: OrderedDict[int, None] = OrderedDict()
    for _ in range(2000):
        number = int(random.paretovariate(0.7)) % 40
        cache.use(number)
        model[number] = None
        model.move_to_end(number)
        if len(model) > 10:
            model.popitem(last=False)
        assert cache.keys == {key(each) for each in model}


@pytest.mark.parametrize("name", ["lru", "arc"])
def test_what_is_in_use_does_not_go(name: str) -> None:
    policy = make_eviction_policy(name, 3)
    for number in range(3):
        policy.add(key(number))
    assert policy.evict(lambda each: each == key(2)) == key(2)
    assert policy.evict(lambda each: False) is None
    policy.discard(key(0))
    assert policy.evict(anybody) == key(1)


def test_arc_keeps_what_came_back_through_a_scan() -> None:
    arc, lru = Cache(ARC(10), 10), Cache(LRU(), 10)
    for cache in (arc, lru):
        for _ in range(3):
            for number in range(5):
                cache.use(number)
        for number in range(100, 200):
            cache.use(number)
    assert {key(number) for number in range(5)} <= arc.keys
    assert not {key(number) for number in range(5)} & lru.keys


def test_arc_gives_room_to_the_half_whose_ghosts_come_back() -> None:
    arc = ARC(4)
    for number in range(4):
        arc.add(key(number))
    arc.touch(key(3))
    assert arc.evict(anybody) == key(0)
    assert arc.target == 0
    arc.add(key(0))  # its ghost is remembered: recency deserves more
    assert arc.target == 1


@pytest.mark.parametrize("seed", range(3))
def test_arc_is_never_far_behind_lru_and_stays_within_its_bounds(seed: int) -> None:
    random = Random(seed)
    arc, lru = Cache(ARC(20), 20), Cache(LRU(), 20)
    for step in range(5000):
        number = int(random.paretovariate(0.5)) % 100 if random.random() < 0.6 else 1000 + step % 60
        arc.use(number)
        lru.use(number)
        policy = arc.policy
        assert isinstance(policy, ARC)
        assert len(policy.t1) + len(policy.t2) == len(arc.keys) <= 20
        assert len(policy.b1) + len(policy.b2) <= 20
        assert 0 <= policy.target <= 20
    assert arc.hits > lru.hits


def test_clearing_forgets_ghosts_too() -> None:
    arc = ARC(2)
    arc.add(key(0))
    arc.evict(anybody)
    arc.clear()
    arc.add(key(0))
    assert arc.target == 0


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="use lru or arc"):
        make_eviction_policy("fifo", 3)
