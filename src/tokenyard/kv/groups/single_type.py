"""Blocks of one KV-cache group: what all attention types share.

A type differs in what it may forget (:meth:`SingleTypeManager.num_skipped_tokens`), in what counts as a prefix hit
(:meth:`SingleTypeManager.find_longest_cache_hit`) and in what it needs at most; the block lists are the same.

    held[slot]   [ null null | b3 b7 b9 | b12 ]
                   skipped     published  not full yet
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from tokenyard.kv.blocks.pool import NULL_BLOCK, BlockPool
from tokenyard.kv.groups.retention import Reachable

__all__ = ["Need", "SingleTypeManager", "align_down"]


class Need(NamedTuple):
    """Blocks an allocation takes out of the free queue."""

    new: int
    hits: Sequence[int] = ()
    """Cached blocks it takes as well, those of them that are in the queue."""


class SingleTypeManager(ABC):
    """Block lists by slot: positions never move while a request holds them."""

    __slots__ = ("block_size", "group_id", "hash_stride", "held", "new_blocks", "num_cached", "pool")

    def __init__(self, pool: BlockPool, block_size: int, group_id: int = 0, hash_stride: int = 1) -> None:
        self.pool = pool
        self.block_size = block_size
        """Tokens per block."""
        self.group_id = group_id
        self.hash_stride = hash_stride
        """Hashed blocks per block of this group: a hash covers all before it, so the last one stands for them."""
        self.held: dict[int, list[int]] = {}
        """Slot -> block ids in position order."""
        self.num_cached: dict[int, int] = {}
        """Slot -> leading blocks that were offered to the prefix index."""
        self.new_blocks: list[int] | None = None
        """Blocks taken since :meth:`take_new_block_ids`, in order, where workers zero them; None: they need not."""

    # ---- what a type decides

    spec_kind: ClassVar[str]
    """The type's name in vLLM's KV events."""

    @property
    def sliding_window(self) -> int | None:
        """Tokens of the sliding window; None for other types."""
        return None

    def extent(self, num_tokens: int, main: int, encoder: int) -> int:
        """Of what an allocation covers, the positions that have a place in this group.

        ``num_tokens`` with lookahead slots, ``main`` without them, ``encoder`` tokens of an encoder's output.
        """
        return num_tokens

    def num_skipped_tokens(self, num_computed: int) -> int:
        """Leading tokens that no later token attends to."""
        return 0

    def next_skip(self, num_computed: int) -> int | None:
        """The next number of computed tokens at which a further block is skipped; None if that never happens."""
        return None

    @property
    def max_admission_blocks(self) -> int | None:
        """Most blocks a request ever holds at once; None if it holds all it has touched."""
        return None

    @abstractmethod
    def find_longest_cache_hit(
        self,
        peers: Sequence[SingleTypeManager],
        hashes: Sequence[bytes],
        max_length: int,
        *,
        drop_last: bool,
        alignment: int,
    ) -> list[list[int]]:
        """Cached blocks of the longest usable prefix of at most ``max_length`` tokens, per group of ``peers``.

        ``peers`` are the groups of this very type and shape, this one included; ``hashes`` are at their block size.
        ``drop_last`` leaves the last matched block to be computed (an EAGLE head needs its hidden states); the length
        is a multiple of ``alignment`` tokens.
        """

    def publishable(
        self, start: int, stop: int, alignment: int, reachable: Reachable | None = None
    ) -> Sequence[bool] | None:
        """Which of the blocks ``start..stop-1`` could ever be part of a hit; None: all.

        A hit is a multiple of ``alignment`` tokens, and ends where ``reachable`` says (None: anywhere).
        """
        return None

    def num_common_prefix_blocks(self, slot: int) -> int:
        """Leading blocks of ``slot`` that every block holder shares."""
        return 0

    # ---- what they share

    def _lookup(self, peers: Sequence[SingleTypeManager], block_hash: bytes) -> list[int] | None:
        """The cached block in every group of ``peers``, or None if one of them misses."""
        found = [self.pool.indexes[peer.group_id].get(block_hash) for peer in peers]
        return None if None in found else found  # type: ignore[return-value]  # ``in`` narrows no list for mypy

    def capacity(self, slot: int) -> int:
        """Positions that the blocks of ``slot`` can store."""
        return len(self.held[slot]) * self.block_size

    def most_held(self, num_tokens: int, *, at_once: bool) -> int:
        """Most blocks that a sequence of ``num_tokens`` ever holds; ``at_once``: that it is asked to find free."""
        return self.need(-1, num_tokens, (), 0, whole=True).new

    def num_skipped_blocks(self, num_computed: int) -> int:
        """Leading blocks that no later token attends to."""
        return self.num_skipped_tokens(num_computed) // self.block_size

    def need(
        self, slot: int, num_tokens: int, hits: Sequence[int], total_computed: int, *, whole: bool = False
    ) -> Need:
        """Blocks to take so that ``num_tokens`` positions have a place, ``total_computed`` of them filled already.

        ``hits`` come on top of what ``slot`` holds. ``whole`` asks for a whole sequence, of which a type that forgets
        never holds all at once.
        """
        required = -(-num_tokens // self.block_size)
        if whole and (cap := self.max_admission_blocks) is not None:
            required = min(required, cap)
        num_held = len(self.held[slot]) if slot >= 0 else 0
        skipped = self.num_skipped_blocks(total_computed)
        new = max(required - max(skipped, num_held + len(hits)), 0)
        return Need(new, hits[skipped - num_held :] if skipped > num_held else hits)

    def open(self, slot: int, hits: Sequence[int], total_computed: int) -> None:
        """Begin a block list with cached blocks, which are touched; skipped positions get the null block."""
        skipped = self.num_skipped_blocks(total_computed)
        kept = hits[skipped:]
        self.pool.touch(kept)
        self.held[slot] = [NULL_BLOCK] * skipped
        self.held[slot] += kept
        self.num_cached[slot] = len(self.held[slot])

    def num_missing(self, slot: int, num_tokens: int) -> int:
        """Blocks to append so that ``num_tokens`` positions have a place."""
        return max(-(-num_tokens // self.block_size) - len(self.held[slot]), 0)

    def grow_run(self, slots: Sequence[int], counts: Sequence[int], taken: Sequence[int]) -> None:
        """Deal blocks taken from the pool out to ``slots``, ``counts[i]`` each."""
        held, at = self.held, 0
        for slot, count in zip(slots, counts, strict=True):
            held[slot].extend(taken[at : at + count])
            at += count
        if self.new_blocks is not None:
            self.new_blocks += taken

    def take_new_block_ids(self) -> list[int]:
        """Blocks taken since the last call, for workers to zero."""
        taken, self.new_blocks = self.new_blocks, []
        return taken or []

    def grow(self, slot: int, num_tokens: int) -> list[int]:
        """Take blocks so that ``num_tokens`` positions have a place; returns what the list has got."""
        count = self.num_missing(slot, num_tokens)
        taken = self.pool.take(count)
        self.grow_run([slot], [count], taken)
        return taken

    def allocate_external(self, slot: int, num_tokens: int) -> None:
        """Take blocks for tokens whose KV comes from outside; ``num_tokens`` in all, found and brought."""
        count = max(-(-num_tokens // self.block_size) - len(self.held[slot]), 0)
        self.grow_run([slot], [count], self.pool.take(count))

    def drop_skipped(self, slot: int, num_computed: int) -> None:
        """Free blocks that no later token attends to; the null block takes their place."""
        held = self.held[slot]
        dropped = []
        for i in range(min(self.num_skipped_blocks(num_computed), len(held)) - 1, -1, -1):
            if held[i] == NULL_BLOCK:
                break
            dropped.append(held[i])
            held[i] = NULL_BLOCK
        self.pool.release(dropped)

    def publish_run(
        self,
        slots: Sequence[int],
        hashes: Sequence[Sequence[bytes]],
        num_tokens: Sequence[int],
        alignment: int = 0,
        reachable: Sequence[Reachable | None] = (),
    ) -> None:
        """Put the full blocks within ``num_tokens[i]`` of each slot into the prefix index, as far as they have hashes.

        ``reachable`` is empty, or says of each slot where hits can end.
        """
        held, num_cached, size, stride = self.held, self.num_cached, self.block_size, self.hash_stride
        is_masked = alignment > size or bool(reachable)
        blocks: list[int] = []
        keys: list[bytes] = []
        for i, (slot, chain, tokens) in enumerate(zip(slots, hashes, num_tokens, strict=True)):
            start, stop = num_cached[slot], tokens // size
            if stop * stride > len(chain):
                stop = len(chain) // stride
            if start >= stop:
                continue
            num_cached[slot] = stop
            if start + 1 == stop:
                blocks.append(held[slot][start])
                keys.append(chain[stop * stride - 1])
            else:
                blocks += held[slot][start:stop]
                keys += chain[(start + 1) * stride - 1 : stop * stride : stride]
            if is_masked:
                ends = reachable[i] if reachable else None
                if alignment > size or ends is not None:
                    mask = self.publishable(start, stop, alignment, ends)
                    if mask is not None:
                        self._keep(blocks, keys, mask)
        self.pool.publish(blocks, keys, self.group_id)

    @staticmethod
    def _keep(blocks: list[int], keys: list[bytes], mask: Sequence[bool]) -> None:
        """Leave out those of the last ``len(mask)`` entries that the mask denies."""
        at = len(blocks) - len(mask)
        blocks[at:] = [block for block, keep in zip(blocks[at:], mask, strict=True) if keep]
        keys[at:] = [key for key, keep in zip(keys[at:], mask, strict=True) if keep]

    def free(self, slot: int) -> None:
        """Give all blocks back, tail first, so that the end of a sequence is evicted before its beginning."""
        self.pool.release(reversed(self.held.pop(slot)))
        del self.num_cached[slot]


def align_down(hits: Sequence[list[int]], block_size: int, alignment: int) -> None:
    """Shorten hits of equal length until they cover a multiple of ``alignment`` tokens."""
    while len(hits[0]) * block_size % alignment:
        for blocks in hits:
            blocks.pop()
