"""The coordinator: one view of the blocks of all attention groups of a model.

    NoPrefixCacheCoordinator   prefix caching off: nothing is looked up or published
    UnitaryCoordinator         one full-attention group

A hybrid coordinator (several groups, fixed-point hit length) would implement the same protocol; the manager above and
the scheduler would not notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tokenyard.kv.full_attention import FullAttentionManager
from tokenyard.kv.hashing import BlockHasher
from tokenyard.kv.pool import BlockPool
from tokenyard.request import Request
from tokenyard.table import IntArray

__all__ = ["NO_HITS", "Blocks", "ComputedBlocks", "Coordinator", "NoPrefixCacheCoordinator", "UnitaryCoordinator"]

Blocks = tuple[list[int], ...]
"""Block ids per KV-cache group."""


class ComputedBlocks(NamedTuple):
    """A prefix-cache hit."""

    blocks: Blocks
    num_tokens: int


class Need(NamedTuple):
    """Blocks an allocation takes out of the free queue."""

    new: int
    evictable_hits: int

    @property
    def total(self) -> int:
        return self.new + self.evictable_hits


class Coordinator(Protocol):
    """What the KV-cache manager asks of the groups."""

    num_groups: int

    def find_longest_cache_hit(self, request: Request, max_length: int) -> ComputedBlocks:
        """The longest cached prefix of at most ``max_length`` tokens, common to all groups."""

    def need(self, slot: int, num_tokens: int, hits: Blocks) -> Need:
        """Blocks to take so that ``num_tokens`` positions have a place, on top of ``hits`` and what ``slot`` holds."""

    def need_run(self, capacity: IntArray, ends: IntArray) -> IntArray:
        """The same, new blocks only, for rows that hold ``capacity`` positions and go beyond it, to ``ends``."""

    def open(self, slot: int, hits: Blocks) -> None:
        """A request takes ``slot`` with these cached blocks."""

    def grow_run(self, slots: Sequence[int], counts: Sequence[int], taken: Sequence[int]) -> dict[int, Blocks]:
        """Deal blocks taken from the pool out to slots; returns, by slot, what it got."""

    def publish_run(self, requests: Sequence[Request], num_tokens: Sequence[int]) -> list[int]:
        """Make full blocks within ``num_tokens`` findable; returns the positions at which the next ones become so."""

    def held(self, slot: int) -> Blocks:
        """All blocks of ``slot``."""

    def free(self, slot: int) -> None:
        """Give all blocks of ``slot`` back, tail first."""

    def num_common_prefix_blocks(self, slot: int) -> list[int]:
        """Leading blocks shared by all holders, per group."""

    def holders(self) -> list[list[int]]:
        """Every block list (for invariant checks)."""


NO_HITS = ComputedBlocks(([],), 0)


class NoPrefixCacheCoordinator:
    """One full-attention group without prefix caching."""

    num_groups = 1

    def __init__(self, pool: BlockPool, block_size: int, *, drop_last_hit: bool = False) -> None:
        self.pool = pool
        self.group = FullAttentionManager(pool, block_size, drop_last_hit=drop_last_hit)

    def find_longest_cache_hit(self, request: Request, max_length: int) -> ComputedBlocks:
        return NO_HITS

    def need(self, slot: int, num_tokens: int, hits: Blocks) -> Need:
        num_held = len(self.group.held[slot]) if slot >= 0 else 0
        return Need(
            self.group.num_new_blocks(num_held + len(hits[0]), num_tokens), self.pool.num_evictable(hits[0])
        )

    def need_run(self, capacity: IntArray, ends: IntArray) -> IntArray:
        return self.group.num_new_blocks_run(capacity, ends)

    def open(self, slot: int, hits: Blocks) -> None:
        self.group.open(slot, hits[0])

    def grow_run(self, slots: Sequence[int], counts: Sequence[int], taken: Sequence[int]) -> dict[int, Blocks]:
        return {slot: (blocks,) for slot, blocks in self.group.grow_run(slots, counts, taken).items()}

    def publish_run(self, requests: Sequence[Request], num_tokens: Sequence[int]) -> list[int]:
        raise AssertionError("nothing is published without prefix caching")

    def held(self, slot: int) -> Blocks:
        return (list(self.group.held[slot]),)

    def free(self, slot: int) -> None:
        self.group.free(slot)

    def num_common_prefix_blocks(self, slot: int) -> list[int]:
        return [0]

    def holders(self) -> list[list[int]]:
        return list(self.group.held.values())


class UnitaryCoordinator(NoPrefixCacheCoordinator):
    """One full-attention group with prefix caching."""

    def __init__(
        self, pool: BlockPool, block_size: int, hasher: BlockHasher, *, drop_last_hit: bool = False
    ) -> None:
        super().__init__(pool, block_size, drop_last_hit=drop_last_hit)
        self.hasher = hasher

    def find_longest_cache_hit(self, request: Request, max_length: int) -> ComputedBlocks:
        blocks = self.group.find_longest_cache_hit(self.hasher.extend(request), max_length)
        return ComputedBlocks((blocks,), len(blocks) * self.group.block_size)

    def publish_run(self, requests: Sequence[Request], num_tokens: Sequence[int]) -> list[int]:
        return self.group.publish_run(
            [request.slot for request in requests], [request.block_hashes for request in requests], num_tokens
        )

    def num_common_prefix_blocks(self, slot: int) -> list[int]:
        return [self.group.num_common_prefix_blocks(slot)]
