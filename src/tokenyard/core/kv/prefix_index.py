"""The prefix index: which blocks hold which hashed content.

Equal content can stand in several blocks (two requests that filled the same block side by side): block tables are
append-only, so duplicates are kept, and a lookup answers with the oldest.

    PrefixIndex      a dictionary: what the interpreter is fastest with
    NumberedIndex    a column, where hashes are consecutive numbers, as a replay's are     compiled only: interpreted,
    FlatIndex        a table in a column, for other hashes                                 both are slower
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenyard.compiled import column, core_is_compiled, longer
from tokenyard.core.request import BlockHash

__all__ = ["FlatIndex", "NumberedIndex", "PrefixIndex", "make_index"]


class PrefixIndex:
    """Block hash -> blocks, in order of publication."""

    __slots__ = ("_more", "first", "group_id")

    def __init__(self, group_id: int = 0) -> None:
        self.group_id = group_id
        """KV-cache group whose blocks it knows."""
        self.first: dict[BlockHash, int] = {}
        """Block hash -> the oldest block with this content; for reading."""
        self._more: dict[BlockHash, list[int]] = {}
        """Further blocks of a hash, only where there are any."""

    def __len__(self) -> int:
        """Distinct hashes."""
        return len(self.first)

    def get(self, block_hash: BlockHash) -> int | None:
        """The oldest block with this content."""
        return self.first.get(block_hash)

    def all_blocks(self, block_hash: BlockHash) -> list[int]:
        """Every block with this content, oldest first."""
        first = self.get(block_hash)
        return [] if first is None else [first, *self._more.get(block_hash, ())]

    def longest_prefix(self, hashes: Sequence[BlockHash]) -> list[int]:
        """The blocks of the longest leading run of known hashes."""
        first, found = self.first, []
        for block_hash in hashes:
            block = first.get(block_hash)
            if block is None:
                break
            found.append(block)
        return found

    def add(self, block_hash: BlockHash, block: int) -> None:
        """Publish a block."""
        self.add_n([block_hash], [block])

    def add_n(self, hashes: list[BlockHash], blocks: list[int]) -> None:
        """Publish several blocks, in order; both are lists."""
        oldest = list(map(self.first.setdefault, hashes, blocks))
        if oldest != blocks:
            for block_hash, block, known in zip(hashes, blocks, oldest, strict=True):
                if block != known:
                    self._more.setdefault(block_hash, []).append(block)

    def discard(self, block_hash: BlockHash, block: int) -> None:
        """Forget one block; KeyError if it was not published under this hash."""
        self.discard_n([block_hash], [block])

    def discard_n(self, hashes: list[BlockHash], blocks: list[int]) -> None:
        """Forget several blocks; KeyError if one was not published under its hash."""
        first, more = self.first, self._more
        if more and not more.keys().isdisjoint(hashes):
            for block_hash, block in zip(hashes, blocks, strict=True):
                self._discard_one(block_hash, block)
            return
        oldest = list(map(first.pop, hashes))
        if oldest != blocks:
            first.update(zip(hashes, oldest, strict=True))
            wrong = [block for block, known in zip(blocks, oldest, strict=True) if block != known]
            raise KeyError(wrong[0])

    def _discard_one(self, block_hash: BlockHash, block: int) -> None:
        """Forget one of perhaps several blocks with the same content."""
        others = self._more.get(block_hash)
        if self.get(block_hash) == block:
            self._point(block_hash, others.pop(0) if others else None)
        elif others is not None and block in others:
            others.remove(block)
        else:
            raise KeyError(block)
        if others is not None and not others:
            del self._more[block_hash]

    def _point(self, block_hash: BlockHash, block: int | None) -> None:
        """``block`` is the oldest with this content now; None: there is none."""
        if block is None:
            del self.first[block_hash]
        else:
            self.first[block_hash] = block

    def clear(self) -> None:
        """Forget everything."""
        self.first.clear()
        self._more.clear()


class NumberedIndex(PrefixIndex):
    """The same where hashes are consecutive numbers, as a replay's are: a column in place of the dictionary.

    (Per block that is published and forgotten, compiled: 50 ns less; interpreted, where it is not used, 40 ns more.)
    """

    __slots__ = ("_count", "_oldest")

    def __init__(self, group_id: int = 0) -> None:
        PrefixIndex.__init__(self, group_id)
        self._oldest = column(-1, 1024)
        """Number -> the oldest block with this content, or -1."""
        self._count = 0
        """Numbers that have a block."""

    def __len__(self) -> int:
        return self._count

    def get(self, block_hash: BlockHash) -> int | None:
        number = int(block_hash)
        block = self._oldest[number] if number < len(self._oldest) else -1
        return block if block >= 0 else None

    def longest_prefix(self, hashes: Sequence[Any]) -> list[int]:
        oldest, found = self._oldest, []
        room = len(oldest)
        for number in hashes:
            block = oldest[number] if number < room else -1
            if block < 0:
                break
            found.append(block)
        return found

    def add_n(self, hashes: list[Any], blocks: list[int]) -> None:
        oldest = self._oldest
        room = len(oldest)
        for i, number in enumerate(hashes):
            if number >= room:
                oldest = self._oldest = longer(self._oldest, -1, number)
                room = len(oldest)
            block, known = blocks[i], oldest[number]
            if known < 0:
                oldest[number] = block
                self._count += 1
            elif known != block:
                self._more.setdefault(number, []).append(block)

    def discard_n(self, hashes: list[Any], blocks: list[int]) -> None:
        oldest, more = self._oldest, self._more
        room = len(oldest)
        for i, number in enumerate(hashes):
            block = blocks[i]
            if number >= room or oldest[number] != block or (more and number in more):
                self._discard_one(number, block)
            else:
                oldest[number] = -1
                self._count -= 1

    def _point(self, block_hash: BlockHash, block: int | None) -> None:
        if block is None:
            self._count -= 1
        self._oldest[int(block_hash)] = -1 if block is None else block

    def clear(self) -> None:
        self._oldest = column(-1, 1024)
        self._count = 0
        self._more.clear()


# ---------------------------------------------------------------------------------------------------------------------
# A table with open addressing: a block stands at its home, or in the first place behind that was empty when it came.
#
#     table    | b7 | -1 | b3 | b9 | -1 | ...      -1: empty
#                          home of b3 and b9       the low bits of their tags, which are kept by block
#
# A tag is a part of the hash's own hash; equal tags are rare, and the hashes are compared then. What leaves is not
# marked: those behind it that may stand nearer to their homes move up.


def _tag(block_hash: BlockHash) -> int:
    """From 0 to 2**31 - 1; consecutive numbers do not get homes side by side, where their runs would meet."""
    return (hash(block_hash) & 0x7FFFFFFF) * 0x61C88647 >> 15 & 0x7FFFFFFF


class FlatIndex(PrefixIndex):
    """The same in a table that is a column: nothing is allocated for a block that comes or goes.

    (Per block that is published and forgotten, compiled: a third of what the dictionary takes.)
    """

    __slots__ = ("_count", "_keys", "_mask", "_table", "_tags")

    def __init__(self, num_blocks: int, group_id: int = 0) -> None:
        PrefixIndex.__init__(self, group_id)
        places = 1 << (2 * num_blocks).bit_length()
        self._table = column(-1, places)
        """Half of the places is empty at least."""
        self._mask = places - 1
        self._tags = column(0, num_blocks)
        """Block -> the tag of the hash under which it stands in the table."""
        self._keys: list[BlockHash | None] = [None] * num_blocks
        """Block -> that hash."""
        self._count = 0
        """Blocks in the table."""

    def __len__(self) -> int:
        return self._count

    def _place(self, tag: int, block_hash: BlockHash) -> int:
        """Where the block with this content stands, or where it would come."""
        table, mask = self._table, self._mask
        at = tag & mask
        while True:
            block = table[at]
            if block < 0:
                return at
            if self._tags[block] == tag:
                known = self._keys[block]
                if known is block_hash or known == block_hash:
                    return at
            at = (at + 1) & mask

    def _place_of(self, block: int) -> int:
        """Where a block stands that is in the table; its hash is not looked at."""
        table, mask = self._table, self._mask
        at = self._tags[block] & mask
        while table[at] != block:
            at = (at + 1) & mask
        return at

    def _put(self, at: int, block: int, tag: int, block_hash: BlockHash) -> None:
        self._table[at] = block
        self._tags[block] = tag
        self._keys[block] = block_hash

    def get(self, block_hash: BlockHash) -> int | None:
        block = self._table[self._place(_tag(block_hash), block_hash)]
        return block if block >= 0 else None

    def longest_prefix(self, hashes: Sequence[BlockHash]) -> list[int]:
        found = []
        for block_hash in hashes:
            block = self._table[self._place(_tag(block_hash), block_hash)]
            if block < 0:
                break
            found.append(block)
        return found

    def add_n(self, hashes: list[BlockHash], blocks: list[int]) -> None:
        for i, block_hash in enumerate(hashes):
            block, tag = blocks[i], _tag(block_hash)
            at = self._place(tag, block_hash)
            known = self._table[at]
            if known < 0:
                self._put(at, block, tag, block_hash)
                self._count += 1
            elif known != block:
                self._more.setdefault(block_hash, []).append(block)

    def discard_n(self, hashes: list[BlockHash], blocks: list[int]) -> None:
        more, keys = self._more, self._keys
        for i, block_hash in enumerate(hashes):
            block = blocks[i]
            if keys[block] is not block_hash or (more and block_hash in more):
                self._discard_one(block_hash, block)
            else:
                self._empty(self._place_of(block))

    def _point(self, block_hash: BlockHash, block: int | None) -> None:
        tag = _tag(block_hash)
        at = self._place(tag, block_hash)
        if block is None:
            self._empty(at)
        else:
            self._keys[self._table[at]] = None
            self._put(at, block, tag, block_hash)

    def _empty(self, hole: int) -> None:
        """Take out the block in this place."""
        table, mask, at = self._table, self._mask, hole
        self._keys[table[hole]] = None
        self._count -= 1
        while True:
            at = (at + 1) & mask
            block = table[at]
            if block < 0:
                break
            if (at - self._tags[block]) & mask >= (at - hole) & mask:  # its home is not behind the hole
                table[hole] = block
                hole = at
        table[hole] = -1

    def clear(self) -> None:
        FlatIndex.__init__(self, len(self._keys), self.group_id)


def make_index(num_blocks: int, group_id: int = 0, *, numbered: bool = False) -> PrefixIndex:
    """The index that is quickest for blocks below ``num_blocks``; ``numbered``: hashes are consecutive numbers."""
    if not core_is_compiled():
        return PrefixIndex(group_id)
    return NumberedIndex(group_id) if numbered else FlatIndex(num_blocks, group_id)
