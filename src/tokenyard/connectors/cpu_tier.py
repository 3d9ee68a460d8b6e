"""Blocks in CPU memory, by content: which are there, who uses them, which one goes when it is full.

free -> reserved (being written) -> ready -> evicted when nobody reads it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from tokenyard.config import MAX_COUNT, require_int
from tokenyard.connectors.eviction import EvictionPolicy, make_eviction_policy
from tokenyard.connectors.plan import Address
from tokenyard.connectors.tier import LookupResult
from tokenyard.kv.events import BlockRemoved, BlockStored, KVEvent, short_hash

__all__ = ["MEDIUM_CPU", "CPUTier"]

MEDIUM_CPU = "CPU"
"""The medium of its KV events."""


class _Entry:
    """One block of CPU memory with content."""

    __slots__ = ("number", "readers")

    def __init__(self, number: int) -> None:
        self.number = number
        self.readers = 0


class CPUTier:
    """A pool of blocks in CPU memory, numbered from 0."""

    def __init__(self, num_blocks: int, eviction_policy: str = "lru", *, events: bool = False) -> None:
        """``events`` records what enters and leaves. ConfigError if a setting cannot work."""
        require_int("num_cpu_blocks", num_blocks, 1, MAX_COUNT)
        self.num_blocks = num_blocks
        self._order: EvictionPolicy = make_eviction_policy(eviction_policy, num_blocks)
        self._entries: dict[bytes, _Entry] = {}
        self._ready: dict[bytes, _Entry] = {}
        """Those of them that can be read."""
        self._promised: Sequence[bytes] = ()
        self._kept: frozenset[bytes] | None = frozenset()
        """The promised ones as a set; None until somebody asks."""
        self._free: list[int] = []
        self._num_touched = 0
        """Blocks that have ever been used: the others need no list."""
        self._events: list[KVEvent] | None = [] if events else None
        self._hits = self._stored = self._evicted = 0

    def __contains__(self, block_hash: object) -> bool:
        return block_hash in self._entries

    def __len__(self) -> int:
        """Blocks with content, or about to get it."""
        return len(self._entries)

    @property
    def cpu_blocks(self) -> tuple[int, int]:
        return self.num_blocks - len(self._entries), self.num_blocks

    # ---- lookup

    def find(self, hashes: Sequence[bytes]) -> LookupResult:
        found: list[_Entry] = []
        # list.extend keeps what it got before the lookup of the first unknown hash raises.
        with suppress(KeyError):
            found.extend(map(self._ready.__getitem__, hashes))
        number = len(found)
        return LookupResult(number, undecided=number < len(hashes) and hashes[number] in self._entries)

    def promise(self, hashes: Sequence[bytes]) -> None:
        self._promised, self._kept = hashes, None

    def hold(self, hashes: Sequence[bytes]) -> None:
        for block_hash in hashes:
            self._entries[block_hash].readers += 1

    def release(self, hashes: Sequence[bytes]) -> None:
        for block_hash in hashes:
            entry = self._entries[block_hash]
            assert entry.readers > 0, "released more often than held"
            entry.readers -= 1
            if not entry.readers and block_hash not in self._ready:
                self._remove(block_hash)

    def sources(self, hashes: Sequence[bytes]) -> tuple[Address, ...]:
        self._hits += len(hashes)
        return tuple(self._entries[block_hash].number for block_hash in hashes)

    def touch(self, hashes: Sequence[bytes]) -> None:
        ready, order = self._ready, self._order
        for block_hash in reversed(hashes):
            if block_hash in ready:
                order.touch(block_hash)

    # ---- content

    def reserve(self, block_hash: bytes) -> Address | None:
        if block_hash in self._entries:
            return None
        number = self._place()
        if number is None:
            return None
        self._entries[block_hash] = _Entry(number)
        self._order.add(block_hash)
        return number

    def _place(self) -> int | None:
        if self._free:
            return self._free.pop()
        if self._num_touched < self.num_blocks:
            self._num_touched += 1
            return self._num_touched - 1
        victim = self._order.evict(self._can_go)
        if victim is None:
            return None
        self._evicted += 1
        if self._events is not None:
            self._events.append(BlockRemoved([short_hash(victim)], MEDIUM_CPU))
        del self._ready[victim]
        return self._entries.pop(victim).number

    def _can_go(self, block_hash: bytes) -> bool:
        if self._kept is None:
            self._kept = frozenset(self._promised)
        entry = self._ready.get(block_hash)
        return entry is not None and not entry.readers and block_hash not in self._kept

    def complete(self, block_hash: bytes) -> None:
        self._ready[block_hash] = self._entries[block_hash]
        self._stored += 1
        if self._events is not None:
            self._events.append(_stored(block_hash))

    def lost(self, block_hash: bytes) -> None:
        # The reader that found out still holds it: it goes with its last reader.
        if self._ready.pop(block_hash, None) is not None and self._events is not None:
            self._events.append(BlockRemoved([short_hash(block_hash)], MEDIUM_CPU))

    def _remove(self, block_hash: bytes) -> None:
        self._free.append(self._entries.pop(block_hash).number)
        self._order.discard(block_hash)

    def reset(self) -> bool:
        if not all(map(self._can_go, self._entries)):
            return False
        if self._events is not None and self._entries:
            # Not AllBlocksCleared: that speaks of every medium.
            self._events.append(BlockRemoved(list(map(short_hash, self._entries)), MEDIUM_CPU))
        self._entries.clear()
        self._ready.clear()
        self._order.clear()
        self._free.clear()
        self._num_touched = 0
        return True

    # ---- news

    def take_events(self) -> Sequence[KVEvent]:
        if not self._events:
            return ()
        events, self._events = self._events, []
        return events

    def take_stats(self) -> Mapping[str, int]:
        stats = {"cpu_hit_blocks": self._hits, "cpu_stored_blocks": self._stored, "cpu_evicted_blocks": self._evicted}
        self._hits = self._stored = self._evicted = 0
        return stats

    def check_invariants(self) -> None:
        """Raise AssertionError if a block is used twice, or lost."""
        numbers = [entry.number for entry in self._entries.values()]
        assert len(set(numbers)) == len(numbers), "two contents share a block"
        assert not set(numbers) & set(self._free), "a block with content is free"
        assert all(self._entries[key] is entry for key, entry in self._ready.items()), "a block is ready that is gone"
        assert len(numbers) + len(self._free) == self._num_touched <= self.num_blocks, "a block is lost"


def _stored(block_hash: bytes) -> BlockStored:
    """As vLLM's offloading connector announces it: the hash alone, its tokens were told when the GPU stored it."""
    return BlockStored(
        block_hashes=[short_hash(block_hash)],
        parent_block_hash=None,
        token_ids=[],
        block_size=0,
        lora_id=None,
        medium=MEDIUM_CPU,
        lora_name=None,
    )
