"""Blocks of one full-attention group: every position keeps its KV until the request ends.

A manager of another attention type (sliding window, chunked local, Mamba) answers the same questions with other rules;
the coordinator only knows the questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from tokenyard.kv.pool import BlockPool
from tokenyard.table import IntArray

__all__ = ["FullAttentionManager"]


class FullAttentionManager:
    """Block lists by slot; append-only while a request holds them."""

    __slots__ = ("block_size", "drop_last_hit", "held", "num_cached", "pool")

    def __init__(self, pool: BlockPool, block_size: int, *, drop_last_hit: bool = False) -> None:
        self.pool = pool
        self.block_size = block_size
        self.drop_last_hit = drop_last_hit
        """Leave the last matched block to be computed: an EAGLE head needs its hidden states."""
        self.held: dict[int, list[int]] = {}
        """Slot -> block ids in position order."""
        self.num_cached: dict[int, int] = {}
        """Slot -> leading blocks that are in the prefix index."""

    def find_longest_cache_hit(self, hashes: Sequence[bytes], max_length: int) -> list[int]:
        """Cached blocks of the longest known prefix of at most ``max_length`` tokens."""
        limit = max_length // self.block_size
        found = self.pool.index.longest_prefix(hashes if len(hashes) <= limit else hashes[:limit])
        if self.drop_last_hit and found:
            found.pop()
        return found

    def num_new_blocks(self, num_held: int, num_tokens: int) -> int:
        """Blocks to add to ``num_held`` so that ``num_tokens`` positions have a place."""
        return max(-(-num_tokens // self.block_size) - num_held, 0)

    def num_new_blocks_run(self, capacity: IntArray, ends: IntArray) -> IntArray:
        """:meth:`num_new_blocks` for rows that hold ``capacity`` positions and have to reach beyond it, to ``ends``."""
        return np.asarray((ends - capacity + (self.block_size - 1)) // self.block_size)

    def open(self, slot: int, hits: Sequence[int]) -> None:
        """Begin a block list with cached blocks, which are touched."""
        self.pool.touch(hits)
        self.held[slot] = list(hits)
        self.num_cached[slot] = len(hits)

    def grow_run(self, slots: Sequence[int], counts: Sequence[int], taken: Sequence[int]) -> dict[int, list[int]]:
        """Deal blocks taken from the pool out to ``slots``, ``counts[i]`` each; returns who got which."""
        held, at = self.held, 0
        dealt: dict[int, list[int]] = {}
        for slot, count in zip(slots, counts, strict=True):
            dealt[slot] = new = list(taken[at : at + count])
            held[slot] += new
            at += count
        return dealt

    def publish_run(
        self, slots: Sequence[int], hashes: Sequence[Sequence[bytes]], num_tokens: Sequence[int]
    ) -> list[int]:
        """Put the full blocks within ``num_tokens[i]`` of each slot into the prefix index.

        Returns, per slot, the position at which its next block becomes publishable.
        """
        held, num_cached, size = self.held, self.num_cached, self.block_size
        blocks: list[int] = []
        keys: list[bytes] = []
        seal_at: list[int] = []
        for slot, chain, tokens in zip(slots, hashes, num_tokens, strict=True):
            start, stop = num_cached[slot], tokens // size
            if start < stop:
                blocks += held[slot][start:stop]
                keys += chain[start:stop]
                num_cached[slot] = start = stop
            seal_at.append((start + 1) * size)
        self.pool.publish(blocks, keys)
        return seal_at

    def free(self, slot: int) -> None:
        """Give all blocks back, tail first, so that the end of a sequence is evicted before its beginning."""
        self.pool.release(reversed(self.held.pop(slot)))
        del self.num_cached[slot]

    def num_common_prefix_blocks(self, slot: int) -> int:
        """Leading blocks of ``slot`` that every block holder shares."""
        everyone = len(self.held)
        references = map(self.pool.ref.__getitem__, self.held[slot])
        return sum(1 for _ in takewhile(everyone.__eq__, references))
