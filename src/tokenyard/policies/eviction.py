"""Orders of eviction: which cached block is given up when one is needed.

lru              least recently used; as a queue without an order decides, block by block
lfu              fewest uses over all time, then least recently used
lru-k            O'Neil et al., SIGMOD 1993      the K-th last use is longest ago; blocks with fewer uses go first
cost-aware       Cao and Irani, USITS 1997       GreedyDual: seconds to compute it again, times uses, ageing
workflow-aware   after KVFlow (2507.07400) and SAGA (2605.00528): blocks of jobs that are over first, then those
                 whose next use is farthest, as far as requests say
belady           Belady, 1966                    the next use is farthest: a bound, which reads the workload
"""

from __future__ import annotations

from math import inf
from typing import TypeAlias

from tokenyard.core.config import require_int
from tokenyard.core.sched.eviction import CachedBlock, EvictionOrder, Rank
from tokenyard.errors import ConfigError, near_names
from tokenyard.policies.named import class_from_file, made_by
from tokenyard.vocabulary import file_and_class

__all__ = ["LFU", "LRU", "LRUK", "Belady", "CostAware", "EvictionChoice", "WorkflowAware", "eviction_of"]


class LRU(EvictionOrder):
    """The block that was used longest ago goes first, of one request its last."""

    changes_by_itself = False

    def rank(self, block: CachedBlock, now: float) -> Rank:
        return block.last_used


class LFU(EvictionOrder):
    """The block that the fewest requests had goes first, over all time; of equals the least recently used."""

    changes_by_itself = False

    def rank(self, block: CachedBlock, now: float) -> Rank:
        return block.uses, block.last_used


class LRUK(EvictionOrder):
    """The block whose ``k``-th last use is longest ago goes first; those with fewer uses before all others."""

    changes_by_itself = False

    def __init__(self, k: int = 2) -> None:
        require_int("k", k, 1, 8)
        self._k = k

    def rank(self, block: CachedBlock, now: float) -> Rank:
        times = block.times
        return times[-self._k] if len(times) >= self._k else -inf, block.last_used


class CostAware(EvictionOrder):
    """The block that is cheapest to compute again goes first: seconds times uses, above the worth of the last block
    that went (GreedyDual-Size-Frequency), so that what was dear once does not stay for ever.
    """

    changes_by_itself = False

    def __init__(self) -> None:
        self._floor = 0.0
        """The worth of the last block that went."""
        self._worth: dict[CachedBlock, float] = {}

    def used(self, block: CachedBlock, now: float) -> None:
        self._worth[block] = self._floor + block.uses * (block.recompute_seconds or 1.0)

    def evicted(self, block: CachedBlock, now: float) -> None:
        self._floor = max(self._floor, self._worth.pop(block, 0.0))

    def rank(self, block: CachedBlock, now: float) -> Rank:
        return self._worth.get(block, 0.0), block.last_used


class WorkflowAware(EvictionOrder):
    """Blocks that no unfinished job has used go first, then the one that is needed last, as far as requests say
    (``meta["next_use_s"]``: seconds from the end of a turn to the next), then the least recently used.
    """

    changes_by_itself = False

    def rank(self, block: CachedBlock, now: float) -> Rank:
        expected = block.next_use
        return bool(block.jobs), -expected if expected < inf else 0.0, block.last_used


class Belady(EvictionOrder):
    """The block whose next use is farthest goes first. No order has more hits where blocks are used one by one: it
    reads the requests to come from the workload, in the replay of one engine.
    """

    changes_by_itself = False
    looks_ahead = True

    def rank(self, block: CachedBlock, now: float) -> Rank:
        return -block.next_use, -block.position


EVICTION_ORDERS: dict[str, type[EvictionOrder]] = {
    "belady": Belady,
    "cost-aware": CostAware,
    "lfu": LFU,
    "lru": LRU,
    "lru-k": LRUK,
    "workflow-aware": WorkflowAware,
}
EvictionChoice: TypeAlias = str | EvictionOrder | type[EvictionOrder]
"""A name, ``FILE.py:CLASS``, a class, or an object for one engine."""


def eviction_of(choice: EvictionChoice | None) -> EvictionOrder | None:
    """Return the order of one engine; None: there is none. ConfigError for what makes none."""
    if choice is None or isinstance(choice, EvictionOrder):
        return choice
    if isinstance(choice, type) and issubclass(choice, EvictionOrder):
        return made_by(choice, "eviction", choice.__name__)
    if isinstance(choice, str):
        if file_and_class(choice)[0]:
            order: EvictionOrder = class_from_file(choice, EvictionOrder, "eviction", "tokenyard.EvictionOrder")()
            return order
        if choice in EVICTION_ORDERS:
            return EVICTION_ORDERS[choice]()
        near = near_names(choice.lower(), list(EVICTION_ORDERS), 1, 0.6)
        meant = f"did you mean {near[0]}? " if near else ""
        fix = f"{meant}use one of: {', '.join(EVICTION_ORDERS)}; or FILE.py:CLASS for one of your own"
        raise ConfigError("eviction", choice, fix)
    fix = "give a name, a class derived from tokenyard.EvictionOrder, an object of one, or FILE.py:CLASS"
    raise ConfigError("eviction", choice, fix)
