"""Blocks on storage that other engines share: what is there is only known when it is looked for.

Nothing is evicted here, and nothing can be held against others: whoever shares the storage may delete what is old. A
block that has gone when it is to be loaded is a failed load, from which the scheduler recovers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from tokenyard.connectors.plan import Address
from tokenyard.connectors.tier import LookupResult
from tokenyard.kv.events import KVEvent

__all__ = ["DiskTier"]


class DiskTier:
    """The scheduler's view of ``stored``, for example :class:`~tokenyard.connectors.block_files.BlockFiles`."""

    cpu_blocks = None

    def __init__(self, stored: Container[bytes], on_stored: Callable[[bytes], object] | None = None) -> None:
        """``on_stored`` is told of blocks that have been written: a replay, which writes none, puts them there."""
        self._there = stored
        self._on_stored = on_stored
        self._unfit: set[bytes] = set()
        """Blocks that could not be read, until somebody stores them again."""
        self._pending: set[bytes] = set()
        self._hits = self._stored = self._lost = 0

    def find(self, hashes: Sequence[bytes]) -> LookupResult:
        for number, block_hash in enumerate(hashes):
            if block_hash in self._unfit or block_hash not in self._there:
                return LookupResult(number)
        return LookupResult(len(hashes))

    def promise(self, hashes: Sequence[bytes]) -> None:
        """See :meth:`hold`."""

    def hold(self, hashes: Sequence[bytes]) -> None:
        """Nothing keeps others from deleting it."""

    def release(self, hashes: Sequence[bytes]) -> None:
        """See :meth:`hold`."""

    def sources(self, hashes: Sequence[bytes]) -> tuple[Address, ...]:
        self._hits += len(hashes)
        return tuple(hashes)

    def reserve(self, block_hash: bytes) -> Address | None:
        fit = block_hash not in self._unfit
        if block_hash in self._pending or (fit and block_hash in self._there):
            return None
        self._pending.add(block_hash)
        return block_hash

    def complete(self, block_hash: bytes) -> None:
        self._pending.discard(block_hash)
        if self._on_stored is not None:
            self._on_stored(block_hash)
        if block_hash in self._there:
            self._unfit.discard(block_hash)
            self._stored += 1

    def touch(self, hashes: Sequence[bytes]) -> None:
        """Whoever cleans up can see from the files when they were read."""

    def lost(self, block_hash: bytes) -> None:
        self._unfit.add(block_hash)
        self._lost += 1

    def reset(self) -> bool:
        """Other engines use it too. After a change of the weights, take another namespace."""
        return False

    def take_events(self) -> Sequence[KVEvent]:
        return ()

    def take_stats(self) -> Mapping[str, int]:
        stats = {"disk_hit_blocks": self._hits, "disk_stored_blocks": self._stored, "disk_lost_blocks": self._lost}
        self._hits = self._stored = self._lost = 0
        return stats
