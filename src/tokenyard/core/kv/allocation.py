"""What an allocation brings: new blocks of a step, a shortage with its numbers, hit statistics."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from tokenyard.core.columns import NO_ROWS, Int32Array, IntArray, counting, int64s, joined
from tokenyard.core.table_rows import gather, scatter

__all__ = ["NO_BLOCKS", "NO_LOOKUPS", "BlockDeltas", "Blocks", "KVLimit", "KVShortage", "NewBlocks", "PrefixCacheStats"]


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

    __slots__ = ("hits", "preempted_hits", "preempted_queries", "preempted_requests", "queries", "requests", "reset")

    def __init__(self) -> None:
        self.requests = self.queries = self.hits = 0
        self.preempted_requests = self.preempted_queries = self.preempted_hits = 0
        self.reset = False
        """The cache was reset since the last report."""

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
# Blocks that requests get in one step: gathered while it is decided, handed over as a value when it ends.
#
#     rows       [ 0      3         7 ]          rows of the step that got any
#     offsets    [ 0 1      3         4 ]        row rows[i] got block_ids[offsets[i]:offsets[i + 1]]
#     block_ids  [ b9 | b4 b5 | b12 ]            one offsets and one block_ids per KV-cache group

Blocks = tuple[list[int], ...]
"""Block ids per KV-cache group."""


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

    @property
    def num_blocks(self) -> int:
        """Blocks, over all rows and groups."""
        return sum(map(len, self.block_ids))


_NO_OFFSETS = np.zeros(1, np.int64)
NO_BLOCKS: Int32Array = np.zeros(0, np.int32)
"""No block at all; read-only."""
for _each in (_NO_OFFSETS, NO_BLOCKS):
    _each.flags.writeable = False


class _Run(NamedTuple):
    """Blocks dealt in one stroke to running requests of a model with one KV-cache group."""

    slots: IntArray
    counts: IntArray
    blocks: Int32Array


class NewBlocks:
    """Gathers by slot: rows are known only when the step is complete."""

    __slots__ = ("_by_slot", "_num_groups", "_runs", "nothing")

    def __init__(self, num_groups: int) -> None:
        self._num_groups = num_groups
        self._runs: list[_Run] = []
        self._by_slot: dict[int, Sequence[Int32Array]] = {}
        self.nothing = BlockDeltas(NO_ROWS, (_NO_OFFSETS,) * num_groups, (NO_BLOCKS,) * num_groups)
        """What a step has in which no request gets a block."""

    def __bool__(self) -> bool:
        """Whether a request got a block."""
        return bool(self._runs or self._by_slot)

    def clear(self) -> None:
        """A new step begins."""
        if self._runs or self._by_slot:
            self._runs, self._by_slot = [], {}

    def add_run(self, slots: IntArray, counts: IntArray, blocks: Int32Array) -> None:
        """``counts[i]`` of ``blocks`` go to ``slots[i]``, in order; the model has one group."""
        self._runs.append(_Run(slots, counts, blocks))

    def add(self, slot: int, blocks: Sequence[Int32Array]) -> None:
        """The request in ``slot`` got these blocks per group, or, if it was admitted, holds them; they stay as they
        are.
        """
        self._by_slot[slot] = blocks

    def drop(self, slot: int) -> None:
        """The request in ``slot`` gave its blocks back within the step."""
        self._by_slot.pop(slot, None)
        if self._runs:
            self._split_runs()
            self._by_slot.pop(slot, None)

    def _split_runs(self) -> None:
        """Keep everything by slot: seldom needed, so that strokes need not look."""
        for run in self._runs:
            at = 0
            for slot, count in zip(run.slots.tolist(), run.counts.tolist(), strict=True):
                self._by_slot[slot] = (run.blocks[at : at + count],)
                at += count
        self._runs = []

    def deltas(self, slots: IntArray, row_of_slot: IntArray) -> BlockDeltas:
        """The blocks of the requests in ``slots``, the rows of a step.

        ``row_of_slot`` is scratch space, one entry per slot. A request that got blocks but no tokens (its KV is being
        loaded) is left out: its admission brings all its blocks.
        """
        if len(self._runs) == 1 and not self._by_slot:
            scatter(row_of_slot, slots, counting(len(slots)))
            run = self._runs[0]
            one_each = len(run.blocks) == len(run.slots)
            bounds = counting(len(run.slots) + 1) if one_each else int64s([0, *accumulate(run.counts.tolist())])
            return BlockDeltas(gather(row_of_slot, run.slots), (bounds,), (run.blocks,))
        self._split_runs()
        return self._gathered(slots, row_of_slot)

    def _gathered(self, slots: IntArray, row_of_slot: IntArray) -> BlockDeltas:
        asked = int64s(list(self._by_slot))
        scatter(row_of_slot, asked, int64s([-1] * len(asked)))
        scatter(row_of_slot, slots, counting(len(slots)))
        rows: list[int] = gather(row_of_slot, asked).tolist()
        given = [(row, blocks) for row, blocks in zip(rows, self._by_slot.values(), strict=True) if row >= 0]
        if not given:
            return self.nothing
        given.sort()
        offsets, block_ids = [], []
        for group in range(self._num_groups):
            columns = [blocks[group] for _, blocks in given]
            offsets.append(int64s([0, *accumulate(map(len, columns))]))
            block_ids.append(joined(columns))
        return BlockDeltas(int64s([row for row, _ in given]), tuple(offsets), tuple(block_ids))
