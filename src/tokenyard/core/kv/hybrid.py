"""Models whose layers differ: several KV-cache groups over one pool (full + sliding window, chunked local, Mamba, ...).

A prefix hit must serve every group: :mod:`tokenyard.core.kv.hybrid_lookup` finds the longest one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from math import gcd, lcm

from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup, MambaCacheMode
from tokenyard.core.kv.allocation import Blocks, ComputedBlocks, KVLimit, KVShortage, StepBlocks
from tokenyard.core.kv.block_pool import NULL_BLOCK, BlockPool, EvictsFirst
from tokenyard.core.kv.circular import CircularBufferManager
from tokenyard.core.kv.events import StoredIn
from tokenyard.core.kv.groups import (
    ChunkedLocalManager,
    CrossAttentionManager,
    Extent,
    FullAttentionManager,
    GroupBlocks,
    GroupBounds,
    Need,
    Retention,
    SingleTypeManager,
    SlidingWindowManager,
    hash_block_size,
)
from tokenyard.core.kv.hashing import RequestHasher
from tokenyard.core.kv.hybrid_lookup import AttentionType, HybridLookup
from tokenyard.core.kv.mamba import AlignedMambaManager, MambaManager
from tokenyard.core.kv.manager import Demand, KVCacheManager
from tokenyard.core.profiles import OLDEST, DecisionProfile
from tokenyard.core.request import Request
from tokenyard.core.rows import NEVER
from tokenyard.errors import ConfigError


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


class HybridKVCacheManager(KVCacheManager):
    """Any groups, with or without prefix caching."""

    def __init__(
        self,
        config: CacheConfig,
        bounds: GroupBounds,
        *,
        use_eagle: bool = False,
        profile: DecisionProfile = OLDEST,
        hashes_look_ahead: bool = False,
        in_flight: Callable[[Request], int] | None = None,
        hasher: RequestHasher | None = None,
        evicts_first: EvictsFirst | None = None,
    ) -> None:
        KVCacheManager.__init__(
            self,
            config,
            bounds,
            use_eagle=use_eagle,
            profile=profile,
            hashes_look_ahead=hashes_look_ahead,
            hasher=hasher,
            evicts_first=evicts_first,
        )
        self._in_flight = in_flight
        sizes = config.group_block_sizes
        drops = _drop_last_hit(config, use_eagle=use_eagle)
        publishes = profile.eagle_publishes_block_beyond
        num_beyond = [int(publishes and drop) for drop in drops]
        self.managers: list[SingleTypeManager] = [
            _make_manager(self.pool, group, i, config, bounds, profile, num_beyond=beyond)
            for i, (group, beyond) in enumerate(zip(config.groups, num_beyond, strict=True))
        ]
        """One per KV-cache group."""
        for manager in self.managers if profile.windows_free_unhashed_first else ():
            manager.unhashed_first_dropped = True
            manager.unhashed_first_freed = isinstance(manager, SlidingWindowManager)
        self._mamba = [manager for manager in self.managers if isinstance(manager, MambaManager)]
        self._zeroed = [manager for manager in self.managers if manager.new_blocks is not None]
        self._alignment = lcm(*sizes)
        types = self._attention_types(config, sizes, drops)
        self._lookup = HybridLookup(types, len(sizes), self._alignment, self.hash_size, profile)
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
        self._new: dict[Request, Blocks] = {}
        """What requests got in this step; of an admitted one all its blocks."""

    def _attention_types(self, config: CacheConfig, sizes: Sequence[int], drops: Sequence[bool]) -> list[AttentionType]:
        """Full attention first: its left-to-right scan gives the tightest bound to begin with."""
        by_shape: dict[tuple[GroupKind, int, int], list[int]] = {}
        for i, (group, size) in enumerate(zip(config.groups, sizes, strict=True)):
            if group.shares_prefixes:
                by_shape.setdefault(_shape(group, size), []).append(i)
        types = [AttentionType([self.managers[i] for i in ids], drops[ids[0]]) for ids in by_shape.values()]
        has_chunks = any(t.drop_last_hit and isinstance(t.managers[0], ChunkedLocalManager) for t in types)
        if self.enable_caching and has_chunks:
            raise ConfigError("method", "eagle", "chunked local attention serves no EAGLE drafts: use another method")
        return sorted(types, key=lambda kind: not kind.is_full)

    @property
    def can_keep(self) -> bool:
        return False

    @property
    def grows_in_steps(self) -> bool:
        return False

    @property
    def zeroes_blocks(self) -> bool:
        return bool(self._zeroed)

    def most_blocks(self, num_tokens: int, num_encoder_tokens: int = 0, *, at_once: bool = True) -> int:
        extent = Extent(num_tokens, num_tokens, num_encoder_tokens)
        return sum(manager.most_held(manager.num_positions(extent), at_once=at_once) for manager in self.managers)

    # ---- steps

    def new_step_starts(self) -> None:
        if self._new:
            self._new = {}
        for manager in self._mamba:
            manager.new_step_starts()

    def gather_new_blocks(self, row: int, request: Request, step: StepBlocks) -> None:
        got = self._new.get(request)
        if got is not None:
            step.add(row, got)

    def take_new_block_ids(self) -> tuple[int, ...] | None:
        taken = tuple([block for manager in self._zeroed for block in manager.take_new_block_ids()])
        return taken or None

    # ---- lookup

    def longest_hit(self, request: Request) -> ComputedBlocks:
        self.hasher.extend(request)
        return self._lookup.longest_hit(request, request.num_tokens - 1)

    # ---- admission

    def allocate_slots(self, demand: Demand) -> KVShortage | None:
        request, hits = demand.request, demand.hit.blocks
        if any(group.is_being_written(hits[group.group_id]) for group in self._mamba):
            return KVShortage(KVLimit.STATE_NOT_READY, needed=0, free=self.pool.num_free, cached_hits=0)
        num_computed = request.num_computed_tokens + demand.hit.num_tokens + demand.num_external_computed_tokens
        total_computed = min(num_computed, self.max_model_len)
        if demand.full_sequence_must_fit or demand.must_fit:
            known = request.num_tokens if demand.full_sequence_must_fit else 0
            whole = min(max(demand.must_fit, known), self.max_model_len)
            extent = Extent(whole, whole, demand.num_encoder_tokens)
            need = self._need(request.slot, extent, hits, total_computed, whole=True)
            short = self.refusal(KVLimit.FULL_SEQUENCE, need.new, list(need.hits), demand.keep_watermark)
            if short is not None:
                return short
        if request.slot >= 0:
            self._drop_skipped(request, total_computed)
        end = total_computed + demand.num_new_tokens
        extent = Extent(self.reach(end, demand.num_lookahead_tokens), end, demand.num_encoder_tokens)
        # A step is asked about with all that is computed, even beyond max_model_len, as in vLLM.
        need = self._need(request.slot, extent, hits, num_computed)
        short = self.refusal(KVLimit.BLOCKS, need.new, list(need.hits), demand.keep_watermark)
        if short is not None:
            return short
        self._take(demand, extent, num_computed)
        return None

    def _need(self, slot: int, extent: Extent, hits: Blocks, total_computed: int, *, whole: bool = False) -> Need:
        """Blocks to take so that the positions of ``extent`` have a place, over all groups."""
        needs = [
            manager.need(slot, manager.num_positions(extent), group_hits, total_computed, whole=whole)
            for manager, group_hits in zip(self.managers, hits, strict=True)
        ]
        return Need(sum(need.new for need in needs), [block for need in needs for block in need.hits])

    def _take(self, demand: Demand, extent: Extent, num_computed: int) -> None:
        """Take what was found free: the slot of a request that has none, its hits, and blocks for ``extent``."""
        request = demand.request
        if request.slot < 0:
            self.give_slot(request)
            self._open(request, demand.hit.blocks, num_computed)
            if demand.num_external_computed_tokens:
                # Group by group, before any block is taken for new tokens.
                for manager in self.managers:
                    manager.allocate_external(request.slot, num_computed)
        for manager in self.managers:
            manager.grow(request.slot, manager.num_positions(extent))
        self._new[request] = self.get_block_ids(request)
        if not demand.delay_cache_blocks:
            self.publish(request, min(extent.num_tokens_main_model, request.num_tokens))

    def _open(self, request: Request, hits: Blocks, total_computed: int) -> None:
        """Begin block lists with these cached blocks."""
        slot = request.slot
        for manager, group_hits in zip(self.managers, hits, strict=True):
            manager.open(slot, group_hits, total_computed)
        self._note_skips(request, total_computed)
        length = max(len(manager.held[slot]) * manager.block_size for manager in self.managers)
        request.publish_at = self._next_seal(length) if self.enable_caching else NEVER
        if self._kept_again and self.enable_caching:
            again = self._kept_again[0].last_state(request.num_prompt_tokens)
            request.publish_at = min(request.publish_at, again or request.publish_at)

    def _next_seal(self, num_tokens: int) -> int:
        return (num_tokens // self._seal_unit + 1) * self._seal_unit

    def _note_skips(self, request: Request, num_computed: int) -> None:
        skips = [manager.next_skip(num_computed) for manager in self.managers]
        request.skip_at = min((at for at in skips if at is not None), default=NEVER)

    def _drop_skipped(self, request: Request, num_computed: int) -> None:
        """Free what no later token of the request attends to."""
        if self._in_flight is not None:
            num_computed = max(num_computed - self._in_flight(request), 0)
        for manager in self.managers:
            manager.drop_skipped(request.slot, num_computed)
        self._note_skips(request, num_computed)

    # ---- growth of running requests

    def grow(self, request: Request, end: int, num_lookahead_tokens: int) -> bool:
        reach, slot = self.reach(end, num_lookahead_tokens), request.slot
        if reach > self.capacity(request) or request.num_computed_tokens >= request.skip_at:
            # What the window has left behind is freed first: it may be what saves this request.
            self._drop_skipped(request, request.num_computed_tokens)
            extent = Extent(reach, end)
            missing = sum(manager.num_missing(slot, manager.num_positions(extent)) for manager in self.managers)
            if missing > self.pool.num_free:
                return False
            if missing:
                grown = [manager.grow(slot, manager.num_positions(extent)) for manager in self.managers]
                self._new[request] = tuple(list(blocks) for blocks in grown)
        if end >= request.publish_at:
            self.publish_verified(request, end)
        return True

    def shortage_of(self, request: Request, end: int, num_lookahead_tokens: int) -> KVShortage:
        extent = Extent(self.reach(end, num_lookahead_tokens), end)
        need = self._need(request.slot, extent, self.no_hits.blocks, request.num_computed_tokens)
        return KVShortage(KVLimit.BLOCKS, needed=need.new, free=self.pool.num_free, cached_hits=0)

    # ---- publication

    def make_findable(self, request: Request, num_tokens: int) -> None:
        if self.hashes_look_ahead:
            self.hasher.extend(request)
        # A hit is a multiple of the alignment, so what lies beyond the last multiple cannot be part of one yet.
        unit = 1 if self._lookup.is_of_one_type else self._alignment
        aligned = num_tokens // unit * unit
        hashes, slot, reachable = request.block_hashes, request.slot, self._retention.of(request)
        for manager in self._findable:
            start = manager.num_cached[slot]
            manager.publish(slot, hashes, self._end(manager, num_tokens, aligned), self._alignment, reachable)
            if self.events is not None and start < manager.num_cached[slot]:
                self._tell_stored(request, manager, start)
        for full in self._tailed:
            self._note_prompt_tail(full, request, self._end(full, num_tokens, aligned))
        # A block whose hash is not known yet is looked at again.
        request.publish_at = self._next_seal(min(num_tokens, len(hashes) * self.hash_size))
        for state in self._kept_again:
            if aligned == state.last_state(request.num_prompt_tokens):
                # The state that repeated prompts resume at counts as written in this step.
                state.write_again(slot, aligned, hashes)
                request.publish_at = aligned

    def _end(self, manager: SingleTypeManager, num_tokens: int, aligned: int) -> int:
        """Tokens whose blocks a hit of the group may reach, one block beyond the alignment perhaps."""
        if manager.group_id not in self._finds_beyond:
            return aligned
        return min(num_tokens, aligned + manager.block_size) if aligned else 0

    def _tell_stored(self, request: Request, manager: SingleTypeManager, start: int) -> None:
        """Record the event of blocks that a group has just published."""
        held, stop, content = manager.held[request.slot], manager.num_cached[request.slot], self.pool.content
        kept = [i for i in range(start, stop) if held[i] != NULL_BLOCK and content[held[i]] is not None]
        assert self.events is not None, "asked only where events are recorded"
        self.events.stored(
            request,
            kept,
            StoredIn(
                start,
                stop,
                manager.block_size,
                manager.hash_stride,
                manager.group_id,
                manager.spec_kind,
                manager.sliding_window,
            ),
        )

    def _note_prompt_tail(self, full: FullAttentionManager, request: Request, num_tokens: int) -> None:
        """Note which block holds the end of a prompt without being full, up to the last hash within."""
        finds_tail = self._caches_tails and full.group_id in self._finds_beyond
        num_hashes = len(request.block_hashes)
        if finds_tail or num_hashes * self.hash_size < num_tokens:
            full.note_prompt_tail(request.slot, num_hashes, request.num_prompt_tokens - (not finds_tail), num_tokens)

    def rewind_published(self, request: Request) -> None:
        for manager in self.managers:
            full = request.num_computed_tokens // manager.block_size
            manager.num_cached[request.slot] = min(manager.num_cached[request.slot], full)
        request.publish_at = 0

    # ---- the end, and what is held

    def release_blocks(self, request: Request) -> None:
        for manager in self.managers:
            manager.free(request.slot)
        self._new.pop(request, None)

    def get_block_ids(self, request: Request) -> Blocks:
        if request.slot < 0:
            return tuple([] for _ in self.managers)
        return tuple(list(manager.held[request.slot]) for manager in self.managers)

    def num_blocks_of(self, request: Request) -> int:
        return sum(1 for blocks in self.get_block_ids(request) for block in blocks if block != NULL_BLOCK)

    def num_skipped_blocks(self, group: int, num_computed: int) -> int:
        return self.managers[group].num_skipped_blocks(num_computed)

    def capacity(self, request: Request) -> int:
        return min(manager.capacity(request.slot) for manager in self.managers)

    def num_common_prefix_blocks(self, request: Request) -> list[int]:
        if not self.enable_caching:
            return [0] * self.num_groups
        return [manager.num_common_prefix_blocks(request.slot) for manager in self.managers]

    def held_lists(self) -> list[list[int]]:
        return list(chain.from_iterable(manager.held.values() for manager in self.managers))
