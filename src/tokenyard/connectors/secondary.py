"""A disk below CPU memory: a tier of two, as vLLM's ``TieringOffloadingSpec`` has it with a secondary tier of files.

    stored in memory     written to the disk beside the next steps; it stays in memory until that is done
    asked for, on disk   read into memory, at the expense of others; the lookup has to be repeated
    the disk is full     what was used longest ago goes (ours: vLLM's own tier of files has no bound)

The GPU sees nothing but memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from tokenyard.connectors.tiers import CPUTier, EvictionChoice, LookupResult
from tokenyard.core.config import MAX_COUNT, require_int


class Drive(Protocol):
    """Moves blocks between memory and the disk, on the clock of its caller."""

    def now(self) -> float:
        """The moment, in seconds."""

    def read(self, num_blocks: int) -> float:
        """Begin to read; returns the moment at which they are in memory."""

    def write(self, num_blocks: int) -> float:
        """Begin to write; returns the moment at which they are on the disk."""


class _Move(NamedTuple):
    """Blocks on their way."""

    ends_at: float
    number: int
    hashes: tuple[bytes, ...]
    is_read: bool


class TieredMemory(CPUTier):
    """CPU memory, with a disk below it."""

    def __init__(
        self, num_blocks: int, num_disk_blocks: int, drive: Drive, eviction_policy: EvictionChoice = "lru"
    ) -> None:
        """``eviction_policy`` is that of memory. ConfigError if a setting cannot work."""
        super().__init__(num_blocks, eviction_policy)
        require_int("num_disk_blocks", num_disk_blocks, 1, MAX_COUNT)
        self.num_disk_blocks = num_disk_blocks
        self._drive = drive
        self._on_disk: OrderedDict[bytes, None] = OrderedDict()
        """Least recently used first."""
        self._moves: list[_Move] = []
        self._num_moves = 0
        self._reading: set[bytes] = set()
        self._writing: set[bytes] = set()
        self._read = self._written = self._dropped = 0

    @property
    def next_moment(self) -> float | None:
        """When the next block is read or written; None if none is under way."""
        return self._moves[0].ends_at if self._moves else None

    def advance(self) -> None:
        """Take in what has been read and written by now."""
        now = self._drive.now()
        while self._moves and self._moves[0].ends_at <= now:
            move = heappop(self._moves)
            for block_hash in move.hashes:
                if move.is_read:
                    self._reading.discard(block_hash)
                    super().complete(block_hash)
                else:
                    self._writing.discard(block_hash)
                    self._keep(block_hash)
            if not move.is_read:
                self.release(move.hashes)

    def find(self, hashes: Sequence[bytes]) -> LookupResult:
        self.advance()
        found = super().find(hashes)
        number = found.num_blocks
        if found.undecided or not self._fetch(hashes[:number], hashes[number:]):
            return found
        return LookupResult(number, undecided=True)

    def complete(self, block_hash: bytes) -> None:
        super().complete(block_hash)
        if block_hash in self._on_disk or block_hash in self._writing:
            return
        self._writing.add(block_hash)
        self.hold((block_hash,))
        self._move(self._drive.write(1), (block_hash,), is_read=False)

    def touch(self, hashes: Sequence[bytes]) -> None:
        super().touch(hashes)
        for block_hash in reversed(hashes):
            if block_hash in self._on_disk:
                self._on_disk.move_to_end(block_hash)

    def reset(self) -> bool:
        """The disk is forgotten, too."""
        if self._moves or not super().reset():
            return False
        self._on_disk.clear()
        return True

    def take_stats(self) -> Mapping[str, int]:
        more = {
            "disk_hit_blocks": self._read,
            "disk_stored_blocks": self._written,
            "disk_evicted_blocks": self._dropped,
        }
        self._read = self._written = self._dropped = 0
        return {**super().take_stats(), **more}

    def check_invariants(self) -> None:
        super().check_invariants()
        assert len(self._on_disk) <= self.num_disk_blocks, "the disk holds more than it has room for"
        moving = {each for move in self._moves for each in move.hashes}
        assert moving == self._reading | self._writing, "a block is on its way that no transfer knows of"
        assert all(each in self for each in moving), "a block on its way has no place in memory"

    def _fetch(self, before: Sequence[bytes], hashes: Sequence[bytes]) -> bool:
        """Begin to read those that are on the disk, from the first on; False if none is, or none has room."""
        if not hashes or hashes[0] not in self._on_disk:
            return False
        self.promise(before)
        read: list[bytes] = []
        for block_hash in hashes:
            if block_hash in self or block_hash not in self._on_disk or self.reserve(block_hash) is None:
                break
            self._on_disk.move_to_end(block_hash)
            read.append(block_hash)
        self.promise(())
        if not read:
            return False
        self._reading.update(read)
        self._read += len(read)
        self._move(self._drive.read(len(read)), tuple(read), is_read=True)
        return True

    def _move(self, ends_at: float, hashes: tuple[bytes, ...], *, is_read: bool) -> None:
        self._num_moves += 1
        heappush(self._moves, _Move(ends_at, self._num_moves, hashes, is_read))

    def _keep(self, block_hash: bytes) -> None:
        """Note a block that has been written to the disk."""
        while len(self._on_disk) >= self.num_disk_blocks:
            self._on_disk.popitem(last=False)
            self._dropped += 1
        self._on_disk[block_hash] = None
        self._written += 1
