"""What an allocation brings: new blocks of a step, a shortage with its numbers, hit statistics."""

from __future__ import annotations

import itertools
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tokenyard.core.arrays import Int32Array, IntArray
from tokenyard.core.rows import Row

__all__ = [
    "NO_LOOKUPS",
    "BlockDeltas",
    "Blocks",
    "ComputedBlocks",
    "KVLimit",
    "KVShortage",
    "PrefixCacheStats",
    "StepBlocks",
]


# ---------------------------------------------------------------------------------------------------------------------
# A refused allocation, as a value: what was needed, what there was, and which limit refused it.


class KVLimit(StrEnum):
    """Which check of ``allocate_slots`` refused."""

    FULL_SEQUENCE = "full_sequence"
    """The whole sequence does not fit the free blocks (``scheduler_reserve_full_isl``, or it preempted itself)."""
    BLOCKS = "blocks"
    """This step's tokens do not fit the free blocks."""
    WATERMARK = "watermark"
    """They would fit, but for the watermark."""
    STATE_NOT_READY = "state_not_ready"
    """No shortage: the Mamba state that ends its prefix hit is written in this very step."""


class KVShortage(NamedTuple):
    """Numbers of a refusal, all in blocks."""

    limit: KVLimit
    needed: int
    """Blocks the request had to take from the free queue: new ones plus its own evictable hits."""
    free: int
    """Blocks in the free queue, evictable cached ones included."""
    cached_hits: int
    """Number of ``needed`` blocks that are cached blocks of this very request and lie in the free queue."""
    reserved: int = 0
    """Blocks kept for asynchronous loads in flight."""
    watermark: int = 0
    """Blocks kept free by the watermark."""
    pinned: int = 0
    """Blocks held for finished turns by a policy."""

    @property
    def missing(self) -> int:
        """Blocks short."""
        return self.needed + self.reserved + self.watermark - self.free


# ---------------------------------------------------------------------------------------------------------------------
# Hit statistics of the prefix cache.


class PrefixCacheStats:
    """Prefix-cache use since the last report, in requests and tokens; preempted requests apart, as in vLLM."""

    requests: int
    queries: int
    hits: int
    preempted_requests: int
    preempted_queries: int
    preempted_hits: int
    reset: bool
    """The cache was reset since the last report."""

    def __init__(self) -> None:
        self.requests = self.queries = self.hits = 0
        self.preempted_requests = self.preempted_queries = self.preempted_hits = 0
        self.reset = False

    @property
    def is_empty(self) -> bool:
        """Nothing has happened."""
        return not (self.requests or self.preempted_requests or self.reset)

    def record(self, num_tokens: int, num_hits: int, *, preempted: bool) -> None:
        """Count one lookup of ``num_tokens`` tokens, ``num_hits`` of them found."""
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


NO_LOOKUPS = PrefixCacheStats()
"""Reported after nearly every step; never written to."""


# ---------------------------------------------------------------------------------------------------------------------
# A prefix-cache hit, and blocks that requests get in one step.
#
#     rows       [ 0      3         7 ]          rows of the step that got any
#     offsets    [ 0 1      3         4 ]        row rows[i] got block_ids[offsets[i]:offsets[i + 1]]
#     block_ids  [ b9 | b4 b5 | b12 ]            one offsets and one block_ids per KV-cache group

Blocks = tuple[list[int], ...]
"""Block ids per KV-cache group."""


class ComputedBlocks(NamedTuple):
    """A prefix-cache hit."""

    blocks: Blocks
    num_tokens: int
    junction: int = 0
    """Where the longest hit of a single group ends, if that is beyond ``num_tokens``: prompts share that much."""


class BlockDeltas(NamedTuple):
    """Blocks that rows of a step got in it, per KV-cache group; of an admitted request all its blocks."""

    rows: IntArray
    """Rows that got any, shape ``[k]``."""
    offsets: tuple[IntArray, ...]
    """Per group, shape ``[k + 1]``."""
    block_ids: tuple[Int32Array, ...]
    """Per group, shape ``[offsets[-1]]``; the null block stands for positions without KV."""

    def by_row(self) -> dict[int, Blocks]:
        """Row -> its blocks per group, as lists."""
        if not len(self.rows):
            return {}
        per_group = (
            [ids[start:end] for start, end in pairwise(bounds.tolist())]
            for bounds, ids in zip(self.offsets, [each.tolist() for each in self.block_ids], strict=True)
        )
        return dict(zip(self.rows.tolist(), zip(*per_group, strict=True), strict=True))


class StepBlocks:
    """Gathers the blocks that the rows of a step got, row after row."""

    num_groups: int
    num_rows: int
    """Rows that got any."""
    taken: Row
    """Their numbers, each followed by how many blocks, and which, per group."""

    def __init__(self, num_groups: int) -> None:
        self.num_groups = num_groups
        self.num_rows = 0
        self.taken = Row()

    def add_row(self, row: int, blocks: Row, start: int) -> None:
        """The row has got ``blocks`` from place ``start`` on, of a model with one group."""
        self.num_rows += 1
        self.taken.append(row)
        self.taken.append(blocks.size - start)
        self.taken.extend_from(blocks, start)

    def add(self, row: int, blocks: Blocks) -> None:
        """The row has got these blocks, per group."""
        self.num_rows += 1
        self.taken.append(row)
        for each in blocks:
            self.taken.append(len(each))
            self.taken.extend(each)

    def by_row(self) -> dict[int, Blocks]:
        """Return row -> its blocks per group, as lists."""
        taken, found = self.taken.as_list(), {}
        at = 0
        while at < len(taken):
            row = taken[at]
            at += 1
            blocks = []
            for _ in range(self.num_groups):
                end = at + 1 + taken[at]
                blocks.append(taken[at + 1 : end])
                at = end
            found[row] = tuple(blocks)
        return found

    def deltas(self) -> BlockDeltas:
        """Return them as columns, not to be changed."""
        by_row = self.by_row()
        rows = np.array(list(by_row), np.int64)
        rows.flags.writeable = False
        offsets, block_ids = [], []
        for group in range(self.num_groups):
            per_row = [blocks[group] for blocks in by_row.values()]
            bounds = np.array([0, *itertools.accumulate(map(len, per_row))], np.int64)
            ids = np.array([*itertools.chain.from_iterable(per_row)], np.int32)
            bounds.flags.writeable = ids.flags.writeable = False
            offsets.append(bounds)
            block_ids.append(ids)
        return BlockDeltas(rows, tuple(offsets), tuple(block_ids))
