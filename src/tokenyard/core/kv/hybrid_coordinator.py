"""Models whose layers differ: several KV-cache groups over one pool (full + sliding window, chunked local, Mamba, ...).

A prefix hit must serve every group: :mod:`tokenyard.core.kv.hybrid_lookup` finds the longest one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from math import gcd, lcm

import numpy as np

from tokenyard.core.columns import IntArray, int32s, int64s
from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup, MambaCacheMode
from tokenyard.core.kv.allocation import Blocks, NewBlocks
from tokenyard.core.kv.block_pool import BlockPool, unhashed_first
from tokenyard.core.kv.circular import CircularBufferManager
from tokenyard.core.kv.coordinator import ComputedBlocks
from tokenyard.core.kv.groups import (
    ChunkedLocalManager,
    CrossAttentionManager,
    Extent,
    FullAttentionManager,
    GroupBlocks,
    Need,
    Retention,
    SingleTypeManager,
    SlidingWindowManager,
)
from tokenyard.core.kv.hybrid_lookup import AttentionType, HybridLookup
from tokenyard.core.kv.mamba import AlignedMambaManager, MambaManager
from tokenyard.core.profiles import OLDEST, DecisionProfile
from tokenyard.core.request import Request
from tokenyard.core.table import NEVER, RequestTable
from tokenyard.errors import ConfigError
from tokenyard.quick_named_tuple import NamedTuple


class GroupBounds(NamedTuple):
    """What bounds the blocks of a group that forgets."""

    max_num_batched_tokens: int
    max_model_len: int
    num_drafts: int = 0
    """Draft tokens per step, each of which has a Mamba state of its own."""
    num_lookahead_tokens: int = 0
    """Positions that a step needs a place for beyond its tokens."""
    max_steps_in_flight: int = 1
    """Steps whose tokens a window may have to hold at once."""

    @property
    def max_in_flight_tokens(self) -> int:
        """Most tokens that are scheduled and whose window is still held."""
        return self.max_num_batched_tokens * self.max_steps_in_flight


def hash_block_size(config: CacheConfig) -> int:
    """Tokens per hashed block: the greatest common divisor of the block sizes of groups that share prefixes."""
    # Without prefix caching nothing is hashed, and a state's block may be as long as a sequence.
    return gcd(*config.shared_block_sizes) if config.enable_prefix_caching else config.block_size


def _shape(group: KVCacheGroup, size: int) -> tuple[GroupKind, int, int]:
    return group.kind, size, group.window


def _drop_last_hit(config: CacheConfig, *, use_eagle: bool) -> list[bool]:
    """By group: whether its last matched block is dropped. vLLM does so in those marked for it, in all if none is, and
    in those that are looked up together with one.
    """
    unmarked = not any(group.is_eagle for group in config.groups)
    shapes = [_shape(group, size) for group, size in zip(config.groups, config.group_block_sizes, strict=True)]
    pairs = zip(shapes, config.groups, strict=True)
    dropping = {shape for shape, group in pairs if use_eagle and (group.is_eagle or unmarked)}
    return [shape in dropping for shape in shapes]


def _make_manager(
    pool: BlockPool,
    group: KVCacheGroup,
    group_id: int,
    config: CacheConfig,
    bounds: GroupBounds,
    profile: DecisionProfile,
    *,
    num_beyond: int,
) -> SingleTypeManager:
    size = config.group_block_sizes[group_id]
    if group.kind is GroupKind.CIRCULAR_BUFFER:
        return CircularBufferManager(GroupBlocks(pool, size, group_id))
    stride = size // hash_block_size(config)
    # Beside Mamba layers workers must zero new blocks of attention layers, whose old content may be no numbers.
    has_states = any(each.kind is GroupKind.MAMBA for each in config.groups)
    zeroed = has_states and (group.kind is GroupKind.FULL or profile.zeroes_all_attention)
    if group.kind is GroupKind.MAMBA:
        make = AlignedMambaManager if config.mamba_cache_mode is MambaCacheMode.ALIGN else MambaManager
        step = min(bounds.max_in_flight_tokens, bounds.max_model_len)
        return make(GroupBlocks(pool, size, group_id, stride), bounds.num_drafts, step, profile=profile)
    blocks = GroupBlocks(pool, size, group_id, stride, zeroed)
    if group.kind is GroupKind.FULL:
        return FullAttentionManager(blocks)
    if group.kind is GroupKind.CROSS_ATTENTION:
        return CrossAttentionManager(blocks)
    kind: type[SlidingWindowManager | ChunkedLocalManager] = ChunkedLocalManager
    if group.kind is GroupKind.SLIDING_WINDOW:
        kind = SlidingWindowManager
    step, limit = bounds.max_in_flight_tokens, bounds.max_model_len
    longest = kind.longest(group.window, size, step, limit)
    most_held = kind.longest(group.window, size, step + bounds.num_lookahead_tokens, limit)
    return kind(blocks, group.window, longest, most_held, num_beyond=num_beyond)


class HybridCoordinator:
    """Any groups, with or without prefix caching."""

    def __init__(
        self,
        pool: BlockPool,
        table: RequestTable,
        config: CacheConfig,
        bounds: GroupBounds,
        *,
        use_eagle: bool,
        profile: DecisionProfile = OLDEST,
        in_flight: Callable[[Request], int] | None = None,
    ) -> None:
        """``in_flight`` says how many tokens of a request steps in flight compute; None: windows need not know."""
        self._in_flight = in_flight
        self.pool = pool
        self.table = table
        self.num_groups = len(config.groups)
        self._caching = config.enable_prefix_caching
        sizes = config.group_block_sizes
        drops = _drop_last_hit(config, use_eagle=use_eagle)
        publishes = profile.eagle_publishes_block_beyond
        num_beyond = [int(publishes and drop) for drop in drops]
        self.managers = [
            _make_manager(pool, group, i, config, bounds, profile, num_beyond=beyond)
            for i, (group, beyond) in enumerate(zip(config.groups, num_beyond, strict=True))
        ]
        for manager in self.managers if profile.windows_free_unhashed_first else ():
            manager.put_back_dropped = unhashed_first
            manager.put_back_freed = unhashed_first if isinstance(manager, SlidingWindowManager) else None
        self._alignment = lcm(*sizes)
        self._hash_block_size = hash_block_size(config)
        types = self._attention_types(config, sizes, drops)
        self._lookup = HybridLookup(types, len(sizes), self._alignment, self._hash_block_size, profile)
        self._caches_tails = profile.eagle_caches_prompt_tail
        unit_below = self._alignment if any(drops) and profile.eagle_keeps_block_below else 0
        self._retention = Retention(profile.prefix_cache_retention_interval, unit_below)
        # A state is found where it was kept, and no draft model has one.
        has_state = [group.kind is GroupKind.MAMBA for group in config.groups]
        self._kept_again = [
            manager for manager in self.managers if isinstance(manager, AlignedMambaManager) and manager.waits_again
        ]
        shares = [group.shares_prefixes for group in config.groups]
        self._findable = [manager for manager, found in zip(self.managers, shares, strict=True) if found]
        """Groups whose blocks can be found again by another request."""
        self._tailed = [
            manager
            for manager in self._findable
            if isinstance(manager, FullAttentionManager) and manager.hash_stride > 1
        ]
        """Groups of full attention in whose blocks a hash can end before the block does."""
        self._finds_beyond = {
            i
            for i, (beyond, state) in enumerate(zip(num_beyond, has_state, strict=True))
            if beyond and not state and shares[i]
        }
        self._seal_unit = gcd(self._alignment, *(sizes[i] for i in self._finds_beyond))

    def _attention_types(self, config: CacheConfig, sizes: Sequence[int], drops: Sequence[bool]) -> list[AttentionType]:
        """Full attention first: its left-to-right scan gives the tightest bound to begin with."""
        by_shape: dict[tuple[GroupKind, int, int], list[int]] = {}
        for i, (group, size) in enumerate(zip(config.groups, sizes, strict=True)):
            if not group.shares_prefixes:
                continue
            by_shape.setdefault(_shape(group, size), []).append(i)
        types = [AttentionType([self.managers[i] for i in ids], drops[ids[0]]) for ids in by_shape.values()]
        if self._caching and any(t.drop_last_hit and isinstance(t.managers[0], ChunkedLocalManager) for t in types):
            raise ConfigError("method", "eagle", "chunked local attention serves no EAGLE drafts: use another method")
        return sorted(types, key=lambda kind: not kind.is_full)

    def find_longest_cache_hit(self, request: Request, max_length: int) -> ComputedBlocks:
        return self._lookup.longest_hit(request, max_length)

    # ---- allocation

    def need(self, slot: int, extent: Extent, hits: Blocks, total_computed: int, *, whole: bool = False) -> Need:
        needs = [
            manager.need(slot, manager.num_positions(extent), group_hits, total_computed, whole=whole)
            for manager, group_hits in zip(self.managers, hits, strict=True)
        ]
        return Need(sum(need.new for need in needs), [block for need in needs for block in need.hits])

    def most_held(self, extent: Extent, *, at_once: bool) -> int:
        return sum(manager.most_held(manager.num_positions(extent), at_once=at_once) for manager in self.managers)

    def open(self, slot: int, hits: Blocks, total_computed: int) -> None:
        for manager, group_hits in zip(self.managers, hits, strict=True):
            manager.open(slot, group_hits, total_computed)
        self._note_skips(slot, total_computed)
        length = max(len(manager.held[slot]) * manager.block_size for manager in self.managers)
        seal = self._next_seal(length) if self._caching else NEVER
        if self._kept_again and self._caching:
            (request,) = self.table.tenants(np.array([slot]))
            seal = min(seal, self._kept_again[0].last_state(request.num_prompt_tokens) or seal)
        self.table.set_seal_at(slot, seal)

    def _next_seal(self, num_tokens: int) -> int:
        return (num_tokens // self._seal_unit + 1) * self._seal_unit

    def _note_skips(self, slot: int, num_computed: int) -> None:
        skips = [manager.next_skip(num_computed) for manager in self.managers]
        self.table.set_skip_at(slot, min((at for at in skips if at is not None), default=NEVER))

    def allocate_external(self, slot: int, num_tokens: int) -> None:
        for manager in self.managers:
            manager.allocate_external(slot, num_tokens)

    def drop_skipped(self, slot: int, num_computed: int) -> None:
        if self._in_flight is not None:
            (request,) = self.table.tenants(np.array([slot]))
            num_computed = max(num_computed - self._in_flight(request), 0)
        for manager in self.managers:
            manager.drop_skipped(slot, num_computed)
        self._note_skips(slot, num_computed)

    def grow(self, slot: int, extent: Extent) -> Blocks:
        new = tuple(manager.grow(slot, manager.num_positions(extent)) for manager in self.managers)
        self.table.set_capacity(slot, self.capacity(slot))
        return new

    def grow_run(self, slots: IntArray, reach: IntArray, main: IntArray, new: NewBlocks) -> int:
        table, managers = self.table, self.managers
        computed = table.num_computed[slots]
        busy = (reach > table.capacity[slots]) | (computed >= table.skip_at[slots])
        for row in busy.nonzero()[0].tolist():
            slot, extent = int(slots[row]), Extent(int(reach[row]), int(main[row]))
            # What the window has left behind is freed first: it may be what saves this request.
            self.drop_skipped(slot, int(computed[row]))
            missing = sum(manager.num_missing(slot, manager.num_positions(extent)) for manager in managers)
            if missing > self.pool.num_free:
                return row
            if missing:
                new.add(slot, tuple(map(int32s, self.grow(slot, extent))))
                self.table.set_blocks(slot, self.held(slot))
        return len(slots)

    # ---- publication and the end

    def publish_run(self, requests: Sequence[Request], num_tokens: Sequence[int]) -> None:
        # A hit is a multiple of the alignment, so what lies beyond the last multiple cannot be part of one yet.
        unit = 1 if self._lookup.is_of_one_type else self._alignment
        aligned = [tokens // unit * unit for tokens in num_tokens]
        slots = [request.slot for request in requests]
        hashes = [request.block_hashes for request in requests]
        reachable = [self._retention.of(request) for request in requests]
        for manager in self._findable:
            manager.publish_run(slots, hashes, self._ends(manager, num_tokens, aligned), self._alignment, reachable)
        for full in self._tailed:
            self._note_prompt_tails(full, requests, self._ends(full, num_tokens, aligned))
        # A block whose hash is not known yet is looked at again.
        known = [len(chain) * self._hash_block_size for chain in hashes]
        seals = [self._next_seal(min(pair)) for pair in zip(num_tokens, known, strict=True)]
        for row in self._write_states_again(requests, aligned) if self._kept_again else ():
            seals[row] = aligned[row]
        self.table.set_seal_at(int64s(slots), int64s(seals))

    def _ends(self, manager: SingleTypeManager, num_tokens: Sequence[int], aligned: list[int]) -> list[int]:
        """By request: tokens whose blocks a hit of the group may reach, one block beyond the alignment perhaps."""
        if manager.group_id not in self._finds_beyond:
            return aligned
        size = manager.block_size
        return [min(n, end + size) if end else 0 for n, end in zip(num_tokens, aligned, strict=True)]

    def _note_prompt_tails(self, full: FullAttentionManager, requests: Sequence[Request], ends: Sequence[int]) -> None:
        """Note which blocks hold the end of a prompt without being full, up to the last hash within."""
        finds_tail = self._caches_tails and full.group_id in self._finds_beyond
        for request, tokens in zip(requests, ends, strict=True):
            num_hashes = len(request.block_hashes)
            if finds_tail or num_hashes * self._hash_block_size < tokens:
                full.note_prompt_tail(request.slot, num_hashes, request.num_prompt_tokens - (not finds_tail), tokens)

    def _write_states_again(self, requests: Sequence[Request], aligned: Sequence[int]) -> list[int]:
        """States that repeated prompts resume at count as written in this step; rows of the requests that are there."""
        rows = []
        for manager in self._kept_again:
            for row, request in enumerate(requests):
                if aligned[row] == manager.last_state(request.num_prompt_tokens):
                    manager.write_again(request.slot, aligned[row], request.block_hashes)
                    rows.append(row)
        return rows

    def held(self, slot: int) -> Blocks:
        return tuple(list(manager.held[slot]) for manager in self.managers)

    def free(self, slot: int) -> None:
        for manager in self.managers:
            manager.free(slot)

    def num_common_prefix_blocks(self, slot: int) -> list[int]:
        return [manager.num_common_prefix_blocks(slot) if self._caching else 0 for manager in self.managers]

    def holders(self) -> list[list[int]]:
        return list(chain.from_iterable(manager.held.values() for manager in self.managers))

    def capacity(self, slot: int) -> int:
        return min(manager.capacity(slot) for manager in self.managers)
