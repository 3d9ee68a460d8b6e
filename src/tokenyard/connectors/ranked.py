"""A tier's eviction by an order of the GPU's cache: the same ``rank``, of what a tier knows of its blocks.

A tier knows contents alone: uses, and when the last ones were, counted in uses. Positions, jobs and seconds it does not
know: ``position`` is 0, ``jobs`` is empty, ``recompute_seconds`` 0.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

from tokenyard.core.sched.calls import asked
from tokenyard.core.sched.eviction import CachedBlock, EvictionOrder, rank_of
from tokenyard.errors import ConfigError, PolicyError


class RankedKeys:
    """Keys of a tier in the order of an ``EvictionOrder``: an ``EvictionPolicy``."""

    def __init__(self, order: EvictionOrder) -> None:
        """ConfigError for an order that reads what is to come: a tier does not know that."""
        if order.looks_ahead:
            raise ConfigError("eviction_policy", type(order).__name__, "looks ahead, which a tier cannot: use another")
        self._order = order
        self._known: dict[bytes, CachedBlock] = {}
        self._heap: list[tuple[tuple[float, ...], int, bytes]] = []
        """Rank, last use, key; those of keys that were used since are out of date."""
        self._here: dict[bytes, int] = {}
        """Keys in the tier, with the number of their last use."""
        self._now = 0

    def add(self, key: bytes) -> None:
        self._here[key] = 0
        self.touch(key)

    def touch(self, key: bytes) -> None:
        self._now += 1
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = CachedBlock(self, key, 0, 0)
        known.uses += 1
        known.hits += self._here[key] > 0
        known.times.append(self._now)
        known.last_used = self._here[key] = self._now
        asked(PolicyError, self._order, "used", self._order.used, known, float(self._now))
        heappush(self._heap, (self._rank(key), self._now, key))

    def evict(self, is_free: Callable[[bytes], bool]) -> bytes | None:
        if self._order.changes_by_itself:
            self._heap = sorted((self._rank(key), last, key) for key, last in self._here.items())
        held, found = [], None
        while self._heap and found is None:
            entry = heappop(self._heap)
            if self._here.get(entry[2]) != entry[1]:
                continue
            if is_free(entry[2]):
                found = entry[2]
            else:
                held.append(entry)
        for entry in held:
            heappush(self._heap, entry)
        if found is not None:
            asked(PolicyError, self._order, "evicted", self._order.evicted, self._known[found], float(self._now))
            del self._here[found]
        return found

    def discard(self, key: bytes) -> None:
        self._here.pop(key, None)

    def clear(self) -> None:
        self._here.clear()
        self._heap.clear()

    def _rank(self, key: bytes) -> tuple[float, ...]:
        return rank_of(self._order, self._known[key], float(self._now))

    # ---- what a block asks for

    def next_use(self, known: CachedBlock) -> float:
        """Not known here."""
        return inf

    def seconds_of(self, known: CachedBlock) -> float:
        """Not known here."""
        return 0.0
