"""The pool of KV blocks: who holds them, in which order free ones are handed out, what each can be found by.

    free + held = total - 1        block 0 is the null block: never handed out, never freed
    holders[b] == 0  <=>  b is in the free queue
    content[b] is not None  <=>  a lookup of that hash in group_of[b] finds b, or an older block with the same

Free blocks form a ring that begins and ends at the null block: ``after[0]`` is handed out next, ``before[0]`` was freed
last. A block that is freed keeps its content, and can be found by it, until it is handed out again.

Blocks whose content falls into one bucket form a chain: ``bucket[home]``, ``chained[...]``, ... 0. The oldest is first,
so that of blocks with equal content the oldest is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from tokenyard.core.kv.hashing import digests
from tokenyard.core.request import BlockHash, Request
from tokenyard.core.rows import Int32s, Int64s, Row, int32s, int64s

__all__ = ["NULL_BLOCK", "BlockPool", "Chooser", "EvictsFirst", "HashOf", "PoolListener", "PutBack"]

NULL_BLOCK = 0
"""Stands for a position without KV; exists in every pool."""

HashOf = Sequence[BlockHash | None]
"""Block id -> the hash of its cached content."""

EvictsFirst = Callable[[Sequence[int], Sequence[BlockHash | None]], Sequence[bool]]
"""Which of freed blocks, the end of a sequence first, are used again before all others, by their contents."""

PutBack = EvictsFirst | bool
"""Where freed blocks go in the free queue: True, those without content to its front (vLLM since 0.24); False, all to
its end, whatever they hold (vLLM 0.22); else the rule of a policy."""


class Chooser(Protocol):
    """Chooses which free block is given up, in the place of the ring's first: see ``core/sched/eviction.py``."""

    def found(self, request: Request, blocks: Sequence[int]) -> None:
        """A request is admitted, and finds these blocks at its beginning."""

    def written(self, request: Request, start: int, stop: int) -> None:
        """Blocks of a request can be found by their content from now on."""

    def left(self, request: Request) -> None:
        """A request is about to let go of all its blocks."""

    def freed(self, blocks: Iterable[int]) -> None:
        """Blocks are about to be let go of, in this order."""

    def choose(self) -> int:
        """Return the free block that is needed now; there is one."""

    def clear(self) -> None:
        """All cached content is forgotten."""


class PoolListener:
    """Is notified when cached content is lost: override what you want to know.

    One that raises closes the scheduler.
    """

    def block_evicted(self, block_hash: bytes, group_id: int, block: int) -> None:
        """A cached block is handed out for other content: until its new owner writes, it still holds the old one."""

    def block_forgotten(self, block_hash: bytes, group_id: int) -> None:
        """A block's content turned out to be worthless."""

    def all_forgotten(self) -> None:
        """The cache was reset."""


class BlockPool:
    """Hands out, shares, caches and takes back blocks."""

    num_blocks: int
    num_groups: int
    num_free: int
    """Blocks in the free queue, cached evictable ones included."""
    num_cached: int
    """Distinct contents, over all groups."""
    unhashed_first: bool
    evicts_first: EvictsFirst | None
    """A policy's own rule; None: vLLM's."""
    chooser: Chooser | None
    """Chooses the block that is given up; None: the ring's first goes."""
    holders: Int32s
    """Requests that hold the block."""
    after: Int32s
    before: Int32s
    content: list[BlockHash | None]
    """What the block can be found by; None: nothing."""
    key: Int64s
    """A number for it, which equal contents share."""
    group_of: Int32s
    """KV-cache group of the content: the same tokens have other KV in another group."""
    bucket: Int32s
    chained: Int32s
    mask: int
    prompt_tails: dict[int, int]
    """Block -> tokens of its prompt up to a hash within it, while the hash of the whole block is not known.

    No lookup finds it; vLLM 0.33 keeps it as cached content all the same.
    """
    listeners: tuple[PoolListener, ...]
    """Notified in this order; see :meth:`subscribe`."""

    def __init__(self, num_blocks: int, num_groups: int = 1, *, put_back: PutBack = False) -> None:
        self.num_blocks = num_blocks
        self.num_groups = num_groups
        self.num_free = num_blocks - 1
        self.num_cached = 0
        self.evicts_first = put_back if callable(put_back) else None
        self.unhashed_first = put_back is True
        self.chooser = None
        self.holders = int32s(0, num_blocks)
        self.after = int32s(0, num_blocks)
        self.before = int32s(0, num_blocks)
        for block in range(num_blocks):
            self.after[block] = block + 1 if block + 1 < num_blocks else 0
            self.before[block] = block - 1 if block else num_blocks - 1
        self.content = [None] * num_blocks
        self.key = int64s(0, num_blocks)
        self.group_of = int32s(0, num_blocks)
        self.mask = (1 << (2 * num_blocks).bit_length()) - 1
        self.bucket = int32s(0, self.mask + 1)
        self.chained = int32s(0, num_blocks)
        self.prompt_tails = {}
        self.listeners = ()

    def subscribe(self, listener: PoolListener) -> None:
        """Notify ``listener`` of all cached content that is lost from now on."""
        self.listeners += (listener,)

    @property
    def usage(self) -> float:
        """Fraction of the blocks, without the null block, that requests hold."""
        usable = self.num_blocks - 1
        return 1.0 - self.num_free / usable if usable else 0.0

    # ---- the free queue

    def take_one(self) -> int:
        """Return the next free block, whose content is forgotten; the caller has checked that there is one."""
        if self.chooser is not None:
            self.bring_forward(self.chooser.choose())  # cold
        block = self.after[0]
        after = self.after[block]
        self.after[0] = after
        self.before[after] = 0
        self.num_free -= 1
        content = self.content[block]
        if content is not None:
            self.unchain(block)
            if self.listeners:
                self.tell_evicted(content, self.group_of[block], block)
        if self.prompt_tails:
            self.prompt_tails.pop(block, None)  # cold
        self.holders[block] = 1
        return block

    def bring_forward(self, block: int) -> None:
        """Make a free block the next one to be handed out."""
        if block != self.after[0]:
            self.unlink(block)
            self.link(0, block)

    def take(self, count: int) -> list[int]:
        """Return ``count`` free blocks, as :meth:`take_one` does."""
        return [self.take_one() for _ in range(count)]

    def hold(self, block: int) -> None:
        """Count one more request that holds the block."""
        if block != NULL_BLOCK:
            if self.holders[block] == 0:
                self.unlink(block)
            self.holders[block] += 1

    def touch(self, blocks: Iterable[int]) -> None:
        """Hold several blocks."""
        for block in blocks:
            self.hold(block)

    def release_row(self, blocks: Row) -> None:
        """Give up blocks of a request, the last one first, which is evicted first; the row is empty afterwards."""
        if self.evicts_first is not None:
            self.release(reversed(blocks.as_list()))
            blocks.size = 0
            return
        front = 0
        for i in range(blocks.size - 1, -1, -1):
            front = self.give_up(blocks.data[i], self.unhashed_first, front)
        blocks.size = 0

    def release(self, ordered: Iterable[int], unhashed_first: bool = False) -> None:
        """Give up blocks, the first to be evicted given first.

        ``unhashed_first``: those without content go to the front of the queue, whatever the pool's own rule.
        """
        if self.evicts_first is not None and not unhashed_first:
            self.release_by_policy(list(ordered))
            return
        front = 0
        first = self.unhashed_first or unhashed_first
        for block in ordered:
            front = self.give_up(block, first, front)

    def give_up(self, block: int, unhashed_first: bool, front: int) -> int:
        """Count one request less that holds the block; the last one's goes into the free queue.

        Returns the block behind which the next one without content goes: ``front``, or this one.
        """
        if block == NULL_BLOCK:
            return front
        self.holders[block] -= 1
        if self.holders[block]:
            return front
        if unhashed_first and self.content[block] is None and block not in self.prompt_tails:
            self.link(front, block)
            return block
        self.link(self.before[0], block)
        return front

    def release_by_policy(self, ordered: list[int]) -> None:
        """Give up blocks, whose places in the free queue a policy chooses."""
        freed = []
        for block in ordered:
            if block != NULL_BLOCK:
                self.holders[block] -= 1
                if not self.holders[block]:
                    freed.append(block)
        if not freed or self.evicts_first is None:
            return
        front = 0
        for block, first in zip(freed, self.evicts_first(freed, [self.content[each] for each in freed]), strict=True):
            self.link(front if first else self.before[0], block)
            if first:
                front = block

    def unlink(self, block: int) -> None:
        """Take a block out of the ring."""
        before, after = self.before[block], self.after[block]
        self.after[before] = after
        self.before[after] = before
        self.num_free -= 1

    def link(self, before: int, block: int) -> None:
        """Put a block into the ring, behind another."""
        after = self.after[before]
        self.after[before] = block
        self.before[after] = block
        self.before[block] = before
        self.after[block] = after
        self.num_free += 1

    def free_blocks(self) -> list[int]:
        """Return the free blocks, the next one to be handed out first."""
        free, at = [], self.after[0]
        while at:
            free.append(at)
            at = self.after[at]
        return free

    def first_free(self, count: int) -> list[int]:
        """Return the next ``count`` blocks to be handed out, or all that are free."""
        first: list[int] = []
        at = self.after[0]
        while at and len(first) < count:
            first.append(at)
            at = self.after[at]
        return first

    def num_evictable(self, blocks: Iterable[int]) -> int:
        """Return how many of ``blocks`` lie in the free queue."""
        count = 0
        for block in blocks:
            if block != NULL_BLOCK and self.holders[block] == 0:
                count += 1
        return count

    # ---- content

    def home(self, key: int, group: int) -> int:
        """Return the bucket of a content; consecutive numbers keep apart."""
        return (key ^ (key >> 29) ^ (group * 40503)) & self.mask

    def find(self, content: BlockHash, group: int) -> int:
        """Return the oldest block of the group with this content, or 0."""
        key = hash(content)
        block = self.bucket[(key ^ (key >> 29) ^ (group * 40503)) & self.mask]
        while block:
            if self.key[block] == key and self.group_of[block] == group and self.content[block] == content:
                break
            block = self.chained[block]
        return block

    def blocks_with(self, content: BlockHash, group: int) -> list[int]:
        """Return all blocks of the group with this content, the oldest first."""
        key, found = hash(content), []
        block = self.bucket[self.home(key, group)]
        while block:
            if self.key[block] == key and self.group_of[block] == group and self.content[block] == content:
                found.append(block)
            block = self.chained[block]
        return found

    def publish(self, block: int, content: BlockHash, group: int) -> None:
        """Let the block be found by its content from now on."""
        if block == NULL_BLOCK:
            return
        if self.prompt_tails:
            self.prompt_tails.pop(block, None)
        if self.content[block] is not None:
            if self.group_of[block] == group and self.content[block] == content:
                return
            self.unchain(block)
        key = hash(content)
        home = (key ^ (key >> 29) ^ (group * 40503)) & self.mask
        last = self.bucket[home]
        is_new = True
        if last == 0:
            self.bucket[home] = block
        else:
            while True:
                if self.key[last] == key and self.group_of[last] == group and self.content[last] == content:
                    is_new = False
                if self.chained[last] == 0:
                    break
                last = self.chained[last]
            self.chained[last] = block
        self.num_cached += is_new
        self.key[block] = key
        self.group_of[block] = group
        self.content[block] = content

    def unchain(self, block: int) -> None:
        """Let the block be found no longer."""
        key, group, content = self.key[block], self.group_of[block], self.content[block]
        home = (key ^ (key >> 29) ^ (group * 40503)) & self.mask
        before, at = 0, self.bucket[home]
        is_last = True
        while at:
            if at == block:
                if before:
                    self.chained[before] = self.chained[at]
                else:
                    self.bucket[home] = self.chained[at]
            elif self.key[at] == key and self.group_of[at] == group and self.content[at] == content:
                is_last = False
            before = at if at != block else before
            at = self.chained[at]
        self.chained[block] = 0
        self.content[block] = None
        self.num_cached -= is_last

    def tell_evicted(self, content: BlockHash, group: int, block: int) -> None:
        """Tell listeners that a block with this content is handed out for another."""
        for listener in self.listeners:
            listener.block_evicted(digests([content])[0], group, block)

    def forget(self, block: int) -> None:
        """Forget a block's content, if it has any: it is worthless."""
        self.prompt_tails.pop(block, None)
        content, group = self.content[block], self.group_of[block]
        if content is not None:
            self.unchain(block)
            for listener in self.listeners:
                listener.block_forgotten(digests([content])[0], group)

    def forget_content(self, contents: Iterable[BlockHash]) -> None:
        """Forget these contents wherever they are."""
        for content in contents:
            for group in range(self.num_groups):
                for block in self.blocks_with(content, group):
                    self.forget(block)

    def note_prompt_tail(self, block: int, num_tokens: int) -> None:
        """A block without a hash holds a prompt up to ``num_tokens``, where a hash ends; see :attr:`prompt_tails`."""
        if block != NULL_BLOCK and self.content[block] is None:
            self.prompt_tails[block] = num_tokens

    def reset(self) -> bool:
        """Forget all cached content; False, and nothing changes, while a block is held."""
        if self.num_free != self.num_blocks - 1:
            return False
        self.content = [None] * self.num_blocks
        self.bucket = int32s(0, self.mask + 1)
        self.chained = int32s(0, self.num_blocks)
        self.num_cached = 0
        self.prompt_tails.clear()
        if self.chooser is not None:
            self.chooser.clear()
        for listener in self.listeners:
            listener.all_forgotten()
        return True

    def check_invariants(self, held: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless counts, ring and chains agree with the block lists of all holders."""
        expected = [0] * self.num_blocks
        for blocks in held:
            for block in blocks:
                expected[block] += block != NULL_BLOCK
        assert expected == list(self.holders), "reference counts differ from the holders"
        free = self.free_blocks()
        assert sorted(free) == [b for b in range(1, self.num_blocks) if not expected[b]], "a held block is free"
        assert len(free) == self.num_free, "free blocks are counted wrongly"
        backwards, at = [], self.before[0]
        while at:
            backwards.append(at)
            at = self.before[at]
        assert backwards == free[::-1], "the ring differs from the back"
        cached = [block for block in range(self.num_blocks) if self.content[block] is not None]
        assert NULL_BLOCK not in cached, "the null block has content"
        chained = []
        for home in range(self.mask + 1):
            at = self.bucket[home]
            while at:
                assert self.home(self.key[at], self.group_of[at]) == home, f"block {at} is in another's bucket"
                chained.append(at)
                at = self.chained[at]
        assert sorted(chained) == cached, "an index knows blocks that carry no hash"
        assert self.num_cached == len({(self.group_of[b], self.content[b]) for b in cached}), "contents are miscounted"
        assert self.prompt_tails.keys().isdisjoint(cached), "a block is cached whole and in part"
