"""The free queue: blocks nobody holds, least recently used first.

An ``OrderedDict`` is a doubly linked list with a hash index, written in C: every operation below is O(1) per block,
removal from the middle included. Blocks that still carry a hash are eviction candidates; they leave the queue from the
front when memory is needed, or from the middle when a request hits them again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

__all__ = ["FreeQueue"]


class FreeQueue:
    """Block ids in eviction order."""

    __slots__ = ("_blocks", "_pop")

    def __init__(self, blocks: Iterable[int] = ()) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict.fromkeys(blocks)
        self._pop = self._blocks.popitem

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block: object) -> bool:
        return block in self._blocks

    def __iter__(self) -> Iterator[int]:
        """From the first to be evicted to the last."""
        return iter(self._blocks)

    def popleft(self) -> int:
        """Take the least recently used block; KeyError if the queue is empty."""
        return self._pop(last=False)[0]

    def popleft_n(self, n: int) -> list[int]:
        """Take the ``n`` least recently used blocks, in order."""
        pop = self._pop
        return [pop(last=False)[0] for _ in range(n)]

    def append(self, block: int) -> None:
        """Put a block at the end."""
        self._blocks[block] = None

    def append_n(self, blocks: Iterable[int]) -> None:
        """Put blocks at the end; the first of them will be evicted first."""
        free = self._blocks
        for block in blocks:
            free[block] = None

    def remove(self, block: int) -> None:
        """Take a block out of the middle; KeyError if it is not free."""
        del self._blocks[block]

    def remove_n(self, blocks: Iterable[int]) -> None:
        """Take several blocks out of the middle."""
        free = self._blocks
        for block in blocks:
            del free[block]
