"""The block pool: reference counts, the free queue and the prefix index over one set of blocks.

    free + held = total - 1        block 0 is the null block: never handed out, never freed
    ref[b] == 0  <=>  b is in the free queue
    hash_of[b] is not None  <=>  b is in the prefix index under that hash
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenyard.kv.free_queue import FreeQueue
from tokenyard.kv.prefix_index import PrefixIndex

__all__ = ["NULL_BLOCK", "BlockPool"]

NULL_BLOCK = 0
"""Stands for a position without KV; exists in every pool."""


class BlockPool:
    """Hands out, shares, caches and takes back blocks."""

    __slots__ = ("free_queue", "hash_of", "index", "num_blocks", "ref")

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.free_queue = FreeQueue(range(1, num_blocks))
        self.index = PrefixIndex()
        self.ref = [0] * num_blocks
        self.hash_of: list[bytes | None] = [None] * num_blocks

    @property
    def num_free(self) -> int:
        """Blocks in the free queue, cached evictable ones included."""
        return len(self.free_queue)

    @property
    def usage(self) -> float:
        """Fraction of the blocks (null block aside) that are held."""
        usable = self.num_blocks - 1
        return 1.0 - self.num_free / usable if usable else 0.0

    def take(self, n: int) -> list[int]:
        """``n`` blocks from the front of the free queue, each with one reference; their cached content is forgotten.

        The caller has checked ``n <= num_free``.
        """
        blocks = self.free_queue.popleft_n(n)
        ref, hash_of = self.ref, self.hash_of
        for block in blocks:
            ref[block] = 1
            old = hash_of[block]
            if old is not None:
                self.index.discard(old, block)
                hash_of[block] = None
        return blocks

    def num_evictable(self, blocks: Sequence[int]) -> int:
        """How many of ``blocks`` lie in the free queue."""
        return list(map(self.ref.__getitem__, blocks)).count(0)

    def touch(self, blocks: Iterable[int]) -> None:
        """Take a reference on cached blocks; free ones leave the queue."""
        ref, free = self.ref, self.free_queue
        for block in blocks:
            if not ref[block]:
                free.remove(block)
            ref[block] += 1

    def release(self, ordered: Iterable[int]) -> None:
        """Drop one reference each; those without any left join the queue in the given order."""
        ref = self.ref
        freed = []
        for block in ordered:
            left = ref[block] - 1
            ref[block] = left
            if not left:
                freed.append(block)
        self.free_queue.append_n(freed)

    def publish(self, blocks: Sequence[int], hashes: Sequence[bytes]) -> None:
        """Make full blocks findable by their hashes."""
        hash_of = self.hash_of
        for block, block_hash in zip(blocks, hashes, strict=True):
            hash_of[block] = block_hash
        self.index.add_n(hashes, blocks)

    def reset(self) -> bool:
        """Forget all cached content; False, and nothing changes, while a block is held."""
        if self.num_free != self.num_blocks - 1:
            return False
        self.index.clear()
        self.hash_of = [None] * self.num_blocks
        return True

    def check_invariants(self, holders: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless counts, queue and index agree with the block lists of all holders."""
        expected = [0] * self.num_blocks
        for blocks in holders:
            for block in blocks:
                expected[block] += block != NULL_BLOCK
        assert expected == self.ref, "reference counts differ from the holders"
        free = list(self.free_queue)
        assert NULL_BLOCK not in free, "the null block is free"
        assert all(not self.ref[block] for block in free), "a held block is in the free queue"
        held = sum(count > 0 for count in self.ref)
        assert len(free) + held == self.num_blocks - 1, "free + held is not the total"
        cached = [block for block, block_hash in enumerate(self.hash_of) if block_hash is not None]
        for block in cached:
            block_hash = self.hash_of[block]
            assert block_hash is not None
            assert block in self.index.all_blocks(block_hash), f"block {block} is cached but not in the index"
        found = sum(len(self.index.all_blocks(key)) for key in {self.hash_of[block] for block in cached} if key)
        assert found == len(cached), "the index knows blocks that carry no hash"
