"""Which cached block is given up: hits beside references of twenty lines."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import tokenyard as ty
from tokenyard.connectors.tiers import CPUTier
from tokenyard.core.sched.eviction import CachedBlock, EvictionOrder, Rank
from tokenyard.errors import PolicyError
from tokenyard.policies.eviction import EVICTION_ORDERS, LFU, LRU, EvictionChoice
from tokenyard.sim import ConstantLatency, ReplayResult

ONE = ty.SchedulerConfig(max_num_seqs=1, max_model_len=4096, async_scheduling=False)
DOCUMENTS, ROOM = 200, 40
IDS: list[int] = np.random.default_rng(0).zipf(1.1, 4000).tolist()
USED = [each for each in IDS if each <= DOCUMENTS][:500]


def documents(ids: list[int]) -> ty.Workload:
    """One block each, and a token of its own behind it."""
    w = ty.WorkloadBuilder("zipf", seed=0)
    texts = [w.text(16) for _ in range(DOCUMENTS + 1)]
    for at, each in enumerate(ids):
        w.request(at=float(at), prompt=texts[each] + w.text(1), output=1)
    return w.build()


WORKLOAD = documents(USED)


def hits(eviction: EvictionChoice | None) -> int:
    found = ty.replay(
        WORKLOAD,
        ONE,
        ty.CacheConfig(num_gpu_blocks=ROOM + 2),  # the null block, and one for the last token
        ConstantLatency(seconds=0.1),
        eviction=eviction,
        rows=True,
    )
    assert found.rows is not None
    return int((found.rows.requests["cached_tokens"] > 0).sum())


def lru_hits() -> int:
    cache: dict[int, None] = {}
    count = 0
    for each in USED:
        count += each in cache
        cache.pop(each, None)
        if len(cache) == ROOM:
            del cache[next(iter(cache))]
        cache[each] = None
    return count


def lfu_hits() -> int:
    uses: Counter[int] = Counter()
    last: dict[int, int] = {}
    cache: set[int] = set()
    count = 0
    for at, each in enumerate(USED):
        uses[each] += 1
        if each in cache:
            count += 1
        else:
            if len(cache) == ROOM:
                cache.remove(min(cache, key=lambda one: (uses[one], last[one])))
            cache.add(each)
        last[each] = at
    return count


def belady_hits() -> int:
    following = dict[int, int]()
    next_use = [0] * len(USED)
    for at in range(len(USED) - 1, -1, -1):
        next_use[at] = following.get(USED[at], 1 << 30)
        following[USED[at]] = at
    cache: dict[int, int] = {}
    count = 0
    for at, each in enumerate(USED):
        if each in cache:
            count += 1
        elif len(cache) == ROOM:
            del cache[max(cache, key=lambda one: cache[one])]
        cache[each] = next_use[at]
    return count


def test_hits_are_those_of_a_reference() -> None:
    found = {name: hits(name) for name in (None, "lru", "lfu", "belady")}
    assert found == {None: lru_hits(), "lru": lru_hits(), "lfu": lfu_hits(), "belady": belady_hits()}
    assert lru_hits() < lfu_hits() < belady_hits()


@pytest.mark.parametrize("name", EVICTION_ORDERS)
def test_no_order_beats_the_bound(name: str) -> None:
    assert hits(name) <= belady_hits()


def crowd(seed: int) -> ty.Workload:
    w = ty.WorkloadBuilder("crowd", seed=seed)
    shared = [w.text(96) for _ in range(4)]
    for i, at in enumerate(w.poisson(rate=30, n=60)):
        job = w.session(at=at, prefix=shared[i % 4])
        for _ in range(2):
            job.turn(user=int(w.lognormal(4, 0.8)) + 1, output=int(w.lognormal(3, 0.7)) + 1, think=0.2)
    return w.build()


def replayed(eviction: EvictionChoice | None, seed: int = 0) -> ReplayResult:
    config = ty.SchedulerConfig(max_num_seqs=8, max_model_len=2048, max_num_batched_tokens=256)
    cache = ty.CacheConfig(num_gpu_blocks=90)
    return ty.replay(crowd(seed), config, cache, ConstantLatency(seconds=0.02), eviction=eviction, rows=True)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_ring_as_an_order_decides_alike(seed: int) -> None:
    plain, ranked = replayed(None, seed), replayed(LRU, seed)
    assert plain.rows is not None
    assert ranked.rows is not None
    for table in ("requests", "steps", "waits"):
        assert list(map(str, getattr(plain.rows, table))) == list(map(str, getattr(ranked.rows, table)))
    assert plain.rows.report.preemptions == ranked.rows.report.preemptions


class Changing(EvictionOrder):
    """The same as LFU, of every block anew."""

    def rank(self, block: CachedBlock, now: float) -> Rank:
        return block.uses, block.last_used


def test_asked_of_each_block_or_kept_in_a_heap_is_the_same() -> None:
    assert hits(Changing) == hits(LFU)


def test_a_tier_takes_the_same_orders() -> None:
    for order, gone in ((LFU, b"b"), (LRU, b"a")):
        tier = CPUTier(2, order)
        for key in (b"a", b"b"):
            assert tier.reserve(key) is not None
            tier.complete(key)
        tier.touch([b"a"])
        tier.touch([b"a"])
        tier.touch([b"b"])
        assert tier.reserve(b"c") is not None
        assert gone not in tier


def test_what_cannot_choose_is_refused_by_name() -> None:
    with pytest.raises(ty.ConfigError, match="did you mean lfu"):
        hits("lfuu")
    with pytest.raises(ty.ConfigError, match=r"rank.*: is missing"):
        type("Nothing", (EvictionOrder,), {})
    with pytest.raises(ty.ConfigError, match="did you mean rank"):
        type("Slip", (EvictionOrder,), {"rnk": LFU.rank})


def test_an_order_that_answers_nonsense_is_named() -> None:
    class Words(EvictionOrder):
        def rank(self, block: CachedBlock, now: float) -> Rank:
            return "first"  # type: ignore[return-value]

    with pytest.raises(PolicyError, match=r"Words.rank returned 'first': return a number"):
        hits(Words)


def test_what_is_known_of_blocks() -> None:
    seen: dict[int, tuple[int, bool]] = {}

    class Watching(EvictionOrder):
        def rank(self, block: CachedBlock, now: float) -> Rank:
            assert block.recompute_seconds >= 0
            assert block.request is not None
            assert now >= block.last_used >= block.times[-1]
            assert all(one <= other for one, other in pairwise(block.times))
            seen[block.position] = block.hits, bool(block.jobs)
            return block.last_used

    replayed(Watching)
    assert max(seen) > 5
    assert any(found for found, _ in seen.values())
