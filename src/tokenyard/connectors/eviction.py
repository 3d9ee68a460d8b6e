"""Which block a full tier gives up: least recently used, or ARC.

ARC follows Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache" (FAST 2003):

    seen once   B1 (ghosts) | T1    a scan fills this half and nothing else
    seen again  B2 (ghosts) | T2    what came back

A key that comes back while its ghost is remembered moves the border between the halves towards its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from tokenyard.errors import ConfigError

__all__ = ["ARC", "LRU", "EvictionPolicy", "make_eviction_policy"]

IsFree = Callable[[bytes], bool]
"""Whether a key can go: nobody reads or writes its block."""


class EvictionPolicy(Protocol):
    """An order over the keys of a tier."""

    def add(self, key: bytes) -> None:
        """A block is stored; the key is not in the tier."""

    def touch(self, key: bytes) -> None:
        """A block that is in the tier is used."""

    def evict(self, is_free: IsFree) -> bytes | None:
        """Take out the key to give up; None if none can go."""

    def discard(self, key: bytes) -> None:
        """A block left the tier for another reason."""

    def clear(self) -> None:
        """Forget everything."""


def _oldest(keys: OrderedDict[bytes, None], is_free: IsFree) -> bytes | None:
    return next((key for key in keys if is_free(key)), None)


class LRU:
    """Least recently used first."""

    def __init__(self) -> None:
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def add(self, key: bytes) -> None:
        self._keys[key] = None

    def touch(self, key: bytes) -> None:
        self._keys.move_to_end(key)

    def evict(self, is_free: IsFree) -> bytes | None:
        key = _oldest(self._keys, is_free)
        if key is not None:
            del self._keys[key]
        return key

    def discard(self, key: bytes) -> None:
        self._keys.pop(key, None)

    def clear(self) -> None:
        self._keys.clear()


class ARC:
    """Recency and frequency, balanced by what comes back."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._t1: OrderedDict[bytes, None] = OrderedDict()
        self._t2: OrderedDict[bytes, None] = OrderedDict()
        self._b1: OrderedDict[bytes, None] = OrderedDict()
        self._b2: OrderedDict[bytes, None] = OrderedDict()
        self.target = 0.0
        """Blocks that T1 should have."""

    def add(self, key: bytes) -> None:
        if key in self._b1:
            self.target = min(self.target + max(1.0, len(self._b2) / len(self._b1)), self._capacity)
            del self._b1[key]
            self._t2[key] = None
        elif key in self._b2:
            self.target = max(self.target - max(1.0, len(self._b1) / len(self._b2)), 0.0)
            del self._b2[key]
            self._t2[key] = None
        else:
            self._t1[key] = None
        self._forget_ghosts()

    def touch(self, key: bytes) -> None:
        self._t1.pop(key, None)
        self._t2[key] = None
        self._t2.move_to_end(key)

    def evict(self, is_free: IsFree) -> bytes | None:
        halves = [(self._t1, self._b1), (self._t2, self._b2)]
        if len(self._t1) <= self.target:
            halves.reverse()
        for here, ghosts in halves:
            key = _oldest(here, is_free)
            if key is not None:
                del here[key]
                ghosts[key] = None
                return key
        return None

    def _forget_ghosts(self) -> None:
        """|T1| + |B1| <= capacity, and all four together at most twice that."""
        while self._b1 and len(self._t1) + len(self._b1) > self._capacity:
            self._b1.popitem(last=False)
        while self._b2 and len(self._t1) + len(self._t2) + len(self._b1) + len(self._b2) > 2 * self._capacity:
            self._b2.popitem(last=False)

    def discard(self, key: bytes) -> None:
        self._t1.pop(key, None)
        self._t2.pop(key, None)

    def clear(self) -> None:
        for keys in (self._t1, self._t2, self._b1, self._b2):
            keys.clear()
        self.target = 0.0


def make_eviction_policy(name: str, capacity: int) -> EvictionPolicy:
    """``lru`` or ``arc``, as vLLM's ``eviction_policy`` names them; ConfigError for anything else."""
    if name == "lru":
        return LRU()
    if name == "arc":
        return ARC(capacity)
    raise ConfigError("eviction_policy", name, "use lru or arc")
