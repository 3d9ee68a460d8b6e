"""The block pool: reference counts, the free queue and the prefix index over one set of blocks.

    free + held = total - 1        block 0 is the null block: never handed out, never freed
    ref[b] == 0  <=>  b is in the free queue
    hash_of[b] is not None  <=>  b is in one prefix index, index_of[b], under that hash

The null block may stand in any list of blocks; it is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import cast

from tokenyard.failures import Failures
from tokenyard.kv.blocks.free_queue import FreeQueue
from tokenyard.kv.blocks.prefix_index import PrefixIndex

__all__ = ["NULL_BLOCK", "BlockPool", "PoolListener", "append_freed", "unhashed_first"]

NULL_BLOCK = 0
"""Stands for a position without KV; exists in every pool."""


class PoolListener:
    """Is told when cached content is lost: override what you want to know.

    One that raises changes nothing: the others are told, and the error leaves the call that has lost the content.
    """

    def block_evicted(self, block_hash: bytes, group_id: int, block: int) -> None:
        """A cached block is handed out for other content: until its new owner writes, it still holds the old one."""

    def block_forgotten(self, block_hash: bytes, group_id: int) -> None:
        """A block's content turned out to be worthless."""

    def all_forgotten(self) -> None:
        """The cache was reset."""


HashOf = Sequence[bytes | None]
"""Block id -> the hash of its cached content."""


PutBack = Callable[[FreeQueue, Sequence[int], HashOf, Collection[int]], None]
"""Gives freed blocks, in order of eviction, their places in the free queue; see :attr:`BlockPool.prompt_tails`."""


def append_freed(queue: FreeQueue, freed: Sequence[int], hash_of: HashOf, prompt_tails: Collection[int]) -> None:
    """Whatever they hold, freed blocks are used again after those that are free already (vLLM 0.22)."""
    queue.append_n(freed)


def unhashed_first(queue: FreeQueue, freed: Sequence[int], hash_of: HashOf, prompt_tails: Collection[int]) -> None:
    """Freed blocks that hold nothing worth keeping are used again before all others (vLLM since 0.24)."""
    if all(map(hash_of.__getitem__, freed)):
        queue.append_n(freed)
        return
    queue.prepend_n([block for block in freed if hash_of[block] is None and block not in prompt_tails])
    queue.append_n([block for block in freed if hash_of[block] is not None or block in prompt_tails])


class BlockPool:
    """Hands out, shares, caches and takes back blocks."""

    __slots__ = (
        "_put_back",
        "cached",
        "failures",
        "free_queue",
        "hash_of",
        "index_of",
        "indexes",
        "listeners",
        "num_blocks",
        "prompt_tails",
        "ref",
    )

    def __init__(
        self,
        num_blocks: int,
        num_groups: int = 1,
        *,
        put_back: PutBack = append_freed,
    ) -> None:
        self._put_back = put_back
        self.num_blocks = num_blocks
        self.failures = Failures()
        """What listeners have raised."""
        self.free_queue = FreeQueue(num_blocks, range(1, num_blocks))
        self.indexes = [PrefixIndex(group_id) for group_id in range(num_groups)]
        """Per KV-cache group: the same tokens have other KV in another group."""
        self.cached = [index.first for index in self.indexes]
        """What each of them knows; for counting."""
        self.ref = [0] * num_blocks
        self.hash_of: list[bytes | None] = [None] * num_blocks
        self.index_of = [self.indexes[0]] * num_blocks
        self.prompt_tails: dict[int, int] = {}
        """Block -> tokens of its prompt up to a hash within it, while the hash of the whole block is not known.

        No lookup finds it; vLLM 0.33 keeps it as cached content all the same.
        """
        self.listeners: tuple[PoolListener, ...] = ()
        """Told in this order; see :meth:`subscribe`."""

    def subscribe(self, listener: PoolListener) -> None:
        """Have ``listener`` told of all content that is lost from now on."""
        self.listeners += (listener,)

    @property
    def num_free(self) -> int:
        """Blocks in the free queue, cached evictable ones included."""
        return self.free_queue.size

    @property
    def usage(self) -> float:
        """Fraction of the blocks (null block aside) that are held."""
        usable = self.num_blocks - 1
        return 1.0 - self.free_queue.size / usable if usable else 0.0

    def take(self, n: int) -> list[int]:
        """``n`` blocks from the front of the free queue, each with one reference; their cached content is forgotten.

        The caller has checked ``n <= num_free``.
        """
        blocks = self.free_queue.popleft_n(n)
        ref = self.ref
        held = list(map(self.hash_of.__getitem__, blocks))
        if held and all(held):
            self._evict(blocks, cast("list[bytes]", held))
        elif any(held):
            cached = {block: block_hash for block, block_hash in zip(blocks, held, strict=True) if block_hash}
            self._evict(list(cached), list(cached.values()))
        for block in blocks:
            ref[block] = 1
        self._forget_tails(blocks)
        return blocks

    def _forget_tails(self, blocks: Iterable[int]) -> None:
        if self.prompt_tails:
            for block in blocks:
                self.prompt_tails.pop(block, None)

    def _evict(self, blocks: list[int], hashes: list[bytes]) -> None:
        """Forget these hashes, which the blocks hold, in order."""
        hash_of, index_of = self.hash_of, self.index_of
        for block in blocks:
            hash_of[block] = None
        if len(self.indexes) == 1:
            self.indexes[0].discard_n(hashes, blocks)
        else:
            for block, old in zip(blocks, hashes, strict=True):
                index_of[block].discard(old, block)
        if self.listeners:
            for block, old in zip(blocks, hashes, strict=True):
                self._tell_evicted(old, block)

    def _tell_evicted(self, block_hash: bytes, block: int) -> None:
        for listener in self.listeners:
            try:
                listener.block_evicted(block_hash, self.index_of[block].group_id, block)
            except Exception as error:  # noqa: BLE001 - whatever it is, the pool adds up first
                self.failures.note(error, "PoolListener.block_evicted")

    def forget(self, block: int) -> None:
        """Drop a block's cached content, if it has any."""
        self._forget_tails([block])
        old = self.hash_of[block]
        if old is not None:
            self.hash_of[block] = None
            self.index_of[block].discard(old, block)
            for listener in self.listeners:
                try:
                    listener.block_forgotten(old, self.index_of[block].group_id)
                except Exception as error:  # noqa: BLE001 - whatever it is, the pool adds up first
                    self.failures.note(error, "PoolListener.block_forgotten")

    def forget_content(self, hashes: Iterable[bytes]) -> None:
        """Drop this cached content wherever it is."""
        for block_hash in hashes:
            for index in self.indexes:
                for block in index.all_blocks(block_hash):
                    self.forget(block)

    def num_evictable(self, blocks: Sequence[int]) -> int:
        """How many of ``blocks`` lie in the free queue."""
        # The null block has no references either, but is not in the queue.
        return list(map(self.ref.__getitem__, blocks)).count(0) - blocks.count(NULL_BLOCK)

    def touch(self, blocks: Sequence[int]) -> None:
        """Take a reference on cached blocks; free ones leave the queue."""
        ref = self.ref
        held = [block for block in blocks if block != NULL_BLOCK] if NULL_BLOCK in blocks else blocks
        self.free_queue.remove_n([block for block in held if not ref[block]])
        for block in held:
            ref[block] += 1

    def release(self, ordered: Iterable[int]) -> None:
        """Drop one reference each; those without any left join the queue, the first to be evicted given first."""
        ref, freed = self.ref, list(ordered)
        if NULL_BLOCK in freed:
            freed = [block for block in freed if block != NULL_BLOCK]
        counts = list(map(ref.__getitem__, freed))
        if counts.count(1) == len(counts):  # nobody shares any of them
            for block in freed:
                ref[block] = 0
        else:
            for block in freed:
                ref[block] -= 1
            freed = [block for block in freed if not ref[block]]
        self._put_back(self.free_queue, freed, self.hash_of, self.prompt_tails)

    def publish(self, blocks: Sequence[int], hashes: Sequence[bytes], group_id: int = 0) -> None:
        """Make full blocks of a group findable by their hashes."""
        hash_of, index_of, index = self.hash_of, self.index_of, self.indexes[group_id]
        if NULL_BLOCK in blocks:
            pairs = [pair for pair in zip(blocks, hashes, strict=True) if pair[0] != NULL_BLOCK]
            blocks, hashes = [block for block, _ in pairs], [block_hash for _, block_hash in pairs]
        for block, block_hash in zip(blocks, hashes, strict=True):
            hash_of[block] = block_hash
        if len(self.indexes) > 1:  # a single one is every block's from the beginning
            for block in blocks:
                index_of[block] = index
        index.add_n(hashes, blocks)
        self._forget_tails(blocks)

    def note_prompt_tail(self, block: int, num_tokens: int) -> None:
        """A block without a hash holds a prompt up to ``num_tokens``, where a hash ends; see :attr:`prompt_tails`."""
        if block != NULL_BLOCK and self.hash_of[block] is None:
            self.prompt_tails[block] = num_tokens

    @property
    def num_cached(self) -> int:
        """Distinct hashes, over all groups."""
        return sum(map(len, self.cached))

    def reset(self) -> bool:
        """Forget all cached content; False, and nothing changes, while a block is held."""
        if self.num_free != self.num_blocks - 1:
            return False
        for index in self.indexes:
            index.clear()
        self.hash_of = [None] * self.num_blocks
        self.prompt_tails.clear()
        for listener in self.listeners:
            try:
                listener.all_forgotten()
            except Exception as error:  # noqa: BLE001 - as above
                self.failures.note(error, "PoolListener.all_forgotten")
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
            assert block in self.index_of[block].all_blocks(block_hash), f"block {block} is cached but not indexed"
        known = {(id(self.index_of[block]), self.hash_of[block]) for block in cached}
        found = sum(
            len(index.all_blocks(key)) for index in self.indexes for at, key in known if at == id(index) and key
        )
        assert found == len(cached), "an index knows blocks that carry no hash"
        assert self.num_cached == len(known), "an index knows hashes that no block carries"
        assert self.prompt_tails.keys().isdisjoint(cached), "a block is cached whole and in part"
