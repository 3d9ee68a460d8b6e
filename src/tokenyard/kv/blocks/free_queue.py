"""The free queue: blocks nobody holds, least recently used first.

A doubly linked list over block ids, kept in two plain lists: every operation is O(1) per block, removal from the middle
included. Blocks that still carry a hash are eviction candidates; they leave the queue from the front when memory is
needed, or from the middle when a request hits them again.

(An ``OrderedDict`` is the same list in C, but has to lay its table out anew again and again while blocks come and go:
measured here, a batch that leaves and returns costs it three times as much.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["FreeQueue"]

_END = -1
"""Stands before the first block and behind the last one; as an index, the extra place at the end of both lists."""
_OUT = -2
"""Neighbour of a block that is not in the queue."""


class FreeQueue:
    """Ids below ``num_blocks``, each at most once, in eviction order; ``blocks`` are there from the beginning."""

    __slots__ = ("_next", "_previous", "size")

    def __init__(self, num_blocks: int, blocks: Iterable[int] = ()) -> None:
        self._next = [_OUT] * (num_blocks + 1)
        self._previous = [_OUT] * (num_blocks + 1)
        self._next[_END] = self._previous[_END] = _END
        self.size = 0
        self.append_n(blocks)

    def __len__(self) -> int:
        return self.size

    def __contains__(self, block: int) -> bool:
        return self._previous[block] != _OUT

    def __iter__(self) -> Iterator[int]:
        """From the first to be evicted to the last."""
        block = self._next[_END]
        while block != _END:
            yield block
            block = self._next[block]

    def popleft(self) -> int:
        """Take the least recently used block; KeyError if the queue is empty."""
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[int]:
        """Take the ``n`` least recently used blocks, in order; KeyError, and nothing changes, if there are fewer."""
        if n > self.size:
            raise KeyError(f"{n} blocks taken, {self.size} are free")
        following, previous = self._next, self._previous
        taken = []
        block = following[_END]
        for _ in range(n):
            taken.append(block)
            previous[block] = _OUT
            block = following[block]
        following[_END] = block
        previous[block] = _END
        self.size -= n
        return taken

    def append(self, block: int) -> None:
        """Put a block at the end."""
        self.append_n((block,))

    def append_n(self, blocks: Iterable[int]) -> None:
        """Put blocks at the end; the first of them will be evicted first."""
        following, previous = self._next, self._previous
        last = previous[_END]
        count = 0
        for block in blocks:
            following[last] = block
            previous[block] = last
            last = block
            count += 1
        following[last] = _END
        previous[_END] = last
        self.size += count

    def prepend_n(self, blocks: Iterable[int]) -> None:
        """Put blocks at the front; the first of them will be taken next."""
        following, previous = self._next, self._previous
        first, last = following[_END], _END
        count = 0
        for block in blocks:
            following[last] = block
            previous[block] = last
            last = block
            count += 1
        following[last] = first
        previous[first] = last
        self.size += count

    def remove(self, block: int) -> None:
        """Take a block out of the middle; KeyError if it is not free."""
        self.remove_n((block,))

    def remove_n(self, blocks: Iterable[int]) -> None:
        """Take several blocks out of the middle; KeyError at the first that is not free."""
        following, previous = self._next, self._previous
        count = 0
        try:
            for block in blocks:
                before, behind = previous[block], following[block]
                if before == _OUT:
                    raise KeyError(block)
                following[before] = behind
                previous[behind] = before
                previous[block] = _OUT
                count += 1
        finally:
            self.size -= count
