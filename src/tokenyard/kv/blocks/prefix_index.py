"""The prefix index: which blocks hold which hashed content.

Equal content can stand in several blocks (two requests that filled the same block side by side): block tables are
append-only, so duplicates are kept, and a lookup answers with the oldest.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

__all__ = ["PrefixIndex"]


class PrefixIndex:
    """Block hash -> blocks, in order of publication."""

    __slots__ = ("_more", "first", "group_id")

    def __init__(self, group_id: int = 0) -> None:
        self.group_id = group_id
        """KV-cache group whose blocks it knows."""
        self.first: dict[bytes, int] = {}
        """Block hash -> the oldest block with this content; for reading."""
        self._more: dict[bytes, list[int]] = {}
        """Further blocks of a hash, only where there are any."""

    def __len__(self) -> int:
        """Distinct hashes."""
        return len(self.first)

    def get(self, block_hash: bytes) -> int | None:
        """The oldest block with this content."""
        return self.first.get(block_hash)

    def all_blocks(self, block_hash: bytes) -> list[int]:
        """Every block with this content, oldest first."""
        first = self.first.get(block_hash)
        return [] if first is None else [first, *self._more.get(block_hash, ())]

    def longest_prefix(self, hashes: Sequence[bytes]) -> list[int]:
        """The blocks of the longest leading run of known hashes."""
        found: list[int] = []
        # list.extend keeps what it got before the lookup of the first unknown hash raises.
        with suppress(KeyError):
            found.extend(map(self.first.__getitem__, hashes))
        return found

    def add(self, block_hash: bytes, block: int) -> None:
        """Publish a block."""
        self.add_n([block_hash], [block])

    def add_n(self, hashes: Sequence[bytes], blocks: Sequence[int]) -> None:
        """Publish several blocks, in order."""
        oldest = list(map(self.first.setdefault, hashes, blocks))
        if oldest != blocks:
            for block_hash, block, first in zip(hashes, blocks, oldest, strict=True):
                if first != block:
                    self._more.setdefault(block_hash, []).append(block)

    def discard(self, block_hash: bytes, block: int) -> None:
        """Forget one block; KeyError if it was not published under this hash."""
        if block_hash not in self._more:
            first = self.first.pop(block_hash)
            if first != block:
                self.first[block_hash] = first
                raise KeyError(block)
            return
        others = self._more[block_hash]
        if self.first[block_hash] == block:
            self.first[block_hash] = others.pop(0)
        else:
            others.remove(block)
        if not others:
            del self._more[block_hash]

    def discard_n(self, hashes: Sequence[bytes], blocks: list[int]) -> None:
        """Forget several blocks; KeyError if one was not published under its hash."""
        if self._more and not self._more.keys().isdisjoint(hashes):
            for block_hash, block in zip(hashes, blocks, strict=True):
                self.discard(block_hash, block)
        elif list(map(self.first.pop, hashes)) != blocks:
            raise KeyError(f"one of the blocks {blocks} is published under another hash")

    def clear(self) -> None:
        """Forget everything."""
        self.first.clear()
        self._more.clear()
