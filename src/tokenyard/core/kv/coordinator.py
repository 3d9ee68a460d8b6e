"""The coordinator: one view of the blocks of all KV-cache groups of a model, and the columns that say when a running
request needs it.

    SingleGroupCoordinator   one full-attention group: runs of requests are served in one stroke
    HybridCoordinator        any groups: requests that need blocks, or may drop some, are served one by one
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from tokenyard.core.columns import Int32Array, IntArray, counting, difference, int32s, int64s, total, units
from tokenyard.core.kv.allocation import NO_BLOCKS, BlockDeltas, Blocks, NewBlocks
from tokenyard.core.kv.block_pool import BlockPool
from tokenyard.core.kv.groups import Extent, FullAttentionManager, GroupBlocks, Need, PrefixQuery, SingleTypeManager
from tokenyard.core.request import Request
from tokenyard.core.table import NEVER, RequestTable
from tokenyard.core.table_rows import gather, rows_from


class ComputedBlocks(NamedTuple):
    """A prefix-cache hit."""

    blocks: Blocks
    num_tokens: int
    junction: int = 0
    """Where the longest hit of a single group ends, if that is beyond ``num_tokens``: prompts share that much."""


class PerStepBlocks(NamedTuple):
    """Blocks that rows got in several steps, one each, in the order in which they asked."""

    rows: IntArray
    at: IntArray
    """The step, counted from 1."""
    blocks: Int32Array

    def of(self, step: int) -> BlockDeltas:
        """What one of the steps handed out."""
        first, last = self.at.searchsorted((step, step + 1))
        return BlockDeltas(self.rows[first:last], (counting(last - first + 1),), (self.blocks[first:last],))


class Coordinator(Protocol):
    """What the KV-cache manager asks of the groups."""

    num_groups: int

    @property
    def managers(self) -> Sequence[SingleTypeManager]:
        """One per KV-cache group."""

    def find_longest_cache_hit(self, request: Request, max_length: int) -> ComputedBlocks:
        """The longest cached prefix of at most ``max_length`` tokens, common to all groups; all blocks are hashed."""

    def need(self, slot: int, extent: Extent, hits: Blocks, total_computed: int, *, whole: bool = False) -> Need:
        """Blocks to take so that the positions of ``extent`` have a place, over all groups."""

    def most_held(self, extent: Extent, *, at_once: bool) -> int:
        """Most blocks that a sequence of ``extent`` ever holds, or ``at_once``: is asked to find free."""

    def open(self, slot: int, hits: Blocks, total_computed: int) -> None:
        """A request takes ``slot`` with these cached blocks."""

    def allocate_external(self, slot: int, num_tokens: int) -> None:
        """Take blocks for tokens that a connector brings, group by group, before any is taken for new tokens."""

    def drop_skipped(self, slot: int, num_computed: int) -> None:
        """Free what no later token of ``slot`` attends to."""

    def grow(self, slot: int, extent: Extent) -> Blocks:
        """Take blocks so that the positions of ``extent`` have a place; returns the new ones."""

    def grow_run(self, slots: IntArray, reach: IntArray, main: IntArray, new: NewBlocks) -> int:
        """:meth:`grow` for running requests in order, as many leading rows as memory allows.

        ``slots``, ``reach`` and ``main`` have shape ``[n]``. Returns how many rows were served; what they got is noted
        in ``new`` and in the table's block tables.
        """

    def publish_run(self, requests: Sequence[Request], num_tokens: Sequence[int]) -> None:
        """Make full blocks within ``num_tokens`` findable."""

    def held(self, slot: int) -> Blocks:
        """All blocks of ``slot``."""

    def free(self, slot: int) -> None:
        """Give all blocks of ``slot`` back, tail first."""

    def num_common_prefix_blocks(self, slot: int) -> list[int]:
        """Leading blocks shared by all holders, per group."""

    def holders(self) -> list[list[int]]:
        """Every block list (for invariant checks)."""

    def capacity(self, slot: int) -> int:
        """Positions that the blocks of ``slot`` can store."""


class SingleGroupCoordinator:
    """One full-attention group; without prefix caching nothing is looked up or published."""

    num_groups = 1

    def __init__(
        self, pool: BlockPool, table: RequestTable, block_size: int, *, caches: bool = True, drop_last_hit: bool = False
    ) -> None:
        self._caches = caches
        self._drop_last_hit = drop_last_hit
        self.pool = pool
        self.table = table
        self.group = FullAttentionManager(GroupBlocks(pool, block_size))
        self.managers = (self.group,)

    def find_longest_cache_hit(self, request: Request, max_length: int) -> ComputedBlocks:
        group = self.group
        query = PrefixQuery(request.block_hashes, max_length, self._drop_last_hit, group.block_size)
        (blocks,) = group.find_longest_cache_hit((group,), query)
        return ComputedBlocks((blocks,), len(blocks) * group.block_size)

    def need(self, slot: int, extent: Extent, hits: Blocks, total_computed: int, *, whole: bool = False) -> Need:
        return self.group.need(slot, extent.num_tokens, hits[0], total_computed, whole=whole)

    def most_held(self, extent: Extent, *, at_once: bool) -> int:
        return self.group.most_held(extent.num_tokens, at_once=at_once)

    def open(self, slot: int, hits: Blocks, total_computed: int) -> None:
        self.group.open(slot, hits[0], total_computed)
        self.table.set_seal_at(slot, (len(hits[0]) + 1) * self.group.block_size if self._caches else NEVER)

    def allocate_external(self, slot: int, num_tokens: int) -> None:
        self.group.allocate_external(slot, num_tokens)

    def drop_skipped(self, slot: int, num_computed: int) -> None:
        """Full attention forgets nothing."""

    def grow(self, slot: int, extent: Extent) -> Blocks:
        new = self.group.grow(slot, extent.num_tokens)
        self.table.set_capacity(slot, self.capacity(slot))
        return (new,)

    def grow_run(self, slots: IntArray, reach: IntArray, main: IntArray, new: NewBlocks) -> int:
        capacity, size = self.table.capacity, self.group.block_size
        rows = rows_from(reach, capacity, slots, 1)
        if not len(rows):
            return len(slots)
        targets, served = gather(slots, rows), len(slots)
        own = gather(capacity, targets)
        needs = units(difference(gather(reach, rows), own), size)
        count = total(needs)
        if count > self.pool.num_free:
            fitting = int(needs.cumsum().searchsorted(self.pool.num_free, side="right"))
            served = int(rows[fitting])
            targets, own, needs = targets[:fitting], own[:fitting], needs[:fitting]
            count = total(needs)
        if count:
            new.add_run(targets, needs, self._take_and_deal(targets, units(own, size), needs, count))
            self.table.add_capacity(targets, needs, size)
        return served

    def _take_and_deal(self, slots: IntArray, starts: IntArray, counts: IntArray, count: int) -> Int32Array:
        """Take ``count`` blocks and deal them out; ``slots[i]`` gets ``counts[i]``, from place ``starts[i]`` on.

        A slot may occur several times, each time for the blocks that follow.
        """
        taken = self.pool.take(count)
        self.group.deal(slots.tolist(), counts.tolist(), taken)
        blocks = int32s(taken)
        self.table.append_blocks(slots, starts, counts, blocks)
        return blocks

    def block_boundaries(self, slots: IntArray, reach: IntArray, steps: int) -> tuple[IntArray, IntArray]:
        """Rows that need one more block in steps 1 to ``steps``, and those steps, in the order in which they ask.

        Before the first of them the rows reach up to ``reach``, and in every step one position further. A row is there
        as often as it needs a block.
        """
        size, capacity = self.group.block_size, self.table.capacity
        rows = rows_from(reach, capacity, slots, 1 - steps)
        if not len(rows):
            return rows, rows
        first = difference(gather(capacity, gather(slots, rows)), gather(reach, rows)) + 1
        if steps > size:
            times = (steps - first) // size + 1
            rows, first = rows.repeat(times), first.repeat(times)
            first = first + (counting(len(first)) - (times.cumsum() - times).repeat(times)) * size
        order = first.argsort(kind="stable") if steps <= size else np.lexsort((rows, first))
        return rows[order], first[order]

    def grow_steps(self, slots: IntArray, reach: IntArray, steps: int) -> PerStepBlocks:
        """:meth:`grow_run` for ``steps`` further steps, each of which reaches one position further; all of them fit."""
        rows, at = self.block_boundaries(slots, reach, steps)
        if not len(rows):
            return PerStepBlocks(rows, at, NO_BLOCKS)
        size, targets = self.group.block_size, gather(slots, rows)
        starts = (gather(reach, rows) + at - 1) // size
        blocks = self._take_and_deal(targets, starts, np.ones_like(rows), len(rows))
        self.table.set_capacity(targets, (starts + 1) * size)
        return PerStepBlocks(rows, at, blocks)

    def publish_run(self, requests: Sequence[Request], num_tokens: Sequence[int]) -> None:
        slots, size, num_cached = [request.slot for request in requests], self.group.block_size, self.group.num_cached
        self.group.publish_run(slots, [request.block_hashes for request in requests], num_tokens)
        self.table.set_seal_at(int64s(slots), int64s([(num_cached[slot] + 1) * size for slot in slots]))

    def held(self, slot: int) -> Blocks:
        return (list(self.group.held[slot]),)

    def free(self, slot: int) -> None:
        self.group.free(slot)

    def num_common_prefix_blocks(self, slot: int) -> list[int]:
        return [self.group.num_common_prefix_blocks(slot) if self._caches else 0]

    def holders(self) -> list[list[int]]:
        return list(self.group.held.values())

    def capacity(self, slot: int) -> int:
        return self.group.capacity(slot)
