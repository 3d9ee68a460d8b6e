"""The KV-cache manager: the scheduler's only door to memory.

The scheduler never touches a block. It asks for room (:meth:`KVCacheManager.allocate_slots` for one request that is
being admitted, :meth:`KVCacheManager.grow_run` for a run of running ones) and gets blocks or a
:class:`~tokenyard.core.kv.allocation.KVShortage`. After a no a request holds what it held, less the blocks behind a
window, which it gives back before it asks.

Positions of a request during an allocation (vLLM's layout):

    | computed | new hits | external | new | lookahead |
    | has blocks | touched | -- blocks taken from the pool -- |
    | -- published in the prefix index, at most up to num_tokens -- |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

import msgspec
import numpy as np

from tokenyard.core.columns import IntArray
from tokenyard.core.config import CacheConfig, GroupKind
from tokenyard.core.kv.allocation import (
    NO_LOOKUPS,
    BlockDeltas,
    Blocks,
    KVLimit,
    KVShortage,
    NewBlocks,
    PrefixCacheStats,
)
from tokenyard.core.kv.block_pool import NULL_BLOCK, BlockPool, PutBack, append_freed, unhashed_first
from tokenyard.core.kv.coordinator import (
    ComputedBlocks,
    Coordinator,
    PerStepBlocks,
    SingleGroupCoordinator,
)
from tokenyard.core.kv.events import EventLog, KVEvent
from tokenyard.core.kv.groups import Extent, Need
from tokenyard.core.kv.hashing import BlockHasher, LookaheadBlockHasher, RequestHasher
from tokenyard.core.kv.hybrid_coordinator import GroupBounds, HybridCoordinator, hash_block_size
from tokenyard.core.kv.mamba import MambaManager
from tokenyard.core.profiles import OLDEST, DecisionProfile
from tokenyard.core.request import Request
from tokenyard.core.table import RequestTable, Sealed
from tokenyard.core.table_rows import gather, less, rows_from


class Demand(msgspec.Struct, eq=False):
    """What a request that is being admitted demands of memory."""

    request: Request
    num_new_tokens: int
    """Tokens that this step computes, behind those that need no computing."""
    new_computed_blocks: ComputedBlocks | None = None
    """Its prefix hit; None: it was not looked up."""
    num_external_computed_tokens: int = 0
    """Tokens that a connector brings, behind the hit."""
    num_lookahead_tokens: int = 0
    """Positions that get a place behind all tokens, within max_model_len."""
    num_encoder_tokens: int = 0
    """Tokens that get blocks of cross-attention layers, this once."""
    delay_cache_blocks: bool = False
    """Nothing is published yet."""
    full_sequence_must_fit: bool = False
    """It is refused unless its whole known sequence fits the free blocks."""
    must_fit: int = 0
    """It is refused unless so many of its tokens do."""
    keep_watermark: bool = False
    """It is refused if fewer blocks than the watermark would stay free, of the whole sequence too."""


class KVCacheManager:
    """Allocation, prefix lookup and freeing for the requests of one table."""

    def __init__(
        self,
        config: CacheConfig,
        table: RequestTable,
        bounds: GroupBounds,
        *,
        use_eagle: bool = False,
        profile: DecisionProfile = OLDEST,
        hashes_look_ahead: bool = False,
        in_flight: Callable[[Request], int] | None = None,
        hasher: RequestHasher | None = None,
        put_back: PutBack | None = None,
    ) -> None:
        """``hashes_look_ahead``: hashes of blocks cover the token behind them. ``in_flight`` says how many tokens of a
        request are computed by steps whose output has not been taken in, where windows have to know. ``hasher`` hashes
        blocks in place of our own, in the unit of :func:`~tokenyard.core.kv.hybrid_coordinator.hash_block_size`; one
        that says ``gives_numbers`` gives consecutive numbers. ``put_back`` gives freed blocks other places than
        vLLM.
        """
        self.config = config
        self.table = table
        self.max_model_len = bounds.max_model_len
        self.enable_caching = config.enable_prefix_caching
        first = profile.unhashed_blocks_first if self.enable_caching else profile.uncached_blocks_first
        put_back = put_back or (unhashed_first if first else append_freed)
        numbered = getattr(hasher, "gives_numbers", False)
        self.pool = BlockPool(config.num_gpu_blocks, len(config.groups), put_back=put_back, numbered=numbered)
        make_hasher = LookaheadBlockHasher if hashes_look_ahead else BlockHasher
        self.hasher: RequestHasher = hasher or make_hasher(
            hash_block_size(config),
            config.prefix_caching_hash_algo,
            config.hash_seed,
            output_blocks_hash_last_image=profile.output_blocks_hash_last_image,
        )
        self.hashes_look_ahead = hashes_look_ahead
        """Hashes of blocks cover the token behind them; no matched block is dropped then."""
        self._single: SingleGroupCoordinator | None = None
        """The coordinator of a model with one group, which is of full attention."""
        self.coordinator = self._make_coordinator(bounds, profile, in_flight, use_eagle=use_eagle)
        managers = self.coordinator.managers
        self._mamba = [manager for manager in managers if isinstance(manager, MambaManager)]
        self._zeroed = [manager for manager in managers if manager.new_blocks is not None]
        self.no_hits = ComputedBlocks(tuple([] for _ in config.groups), 0)
        """A lookup that found nothing."""
        self.watermark_blocks = int(config.watermark * config.num_gpu_blocks)
        self.shared_beyond_hit = 0
        """Tokens that the request looked up last shares with others beyond its hit."""
        self.stats = PrefixCacheStats()
        self.events = EventLog() if config.enable_kv_cache_events else None
        if self.events is not None:
            self.pool.subscribe(self.events)
        self.new_blocks = NewBlocks(len(config.groups))
        """What requests got in this step."""
        self.kept_blocks: dict[str, list[int]] = {}
        """Id of a preempted request -> its first blocks, which were not freed; in the order of the preemptions."""

    def _make_coordinator(
        self,
        bounds: GroupBounds,
        profile: DecisionProfile,
        in_flight: Callable[[Request], int] | None,
        *,
        use_eagle: bool,
    ) -> Coordinator:
        config = self.config
        if len(config.groups) > 1 or config.groups[0].kind is not GroupKind.FULL:
            return HybridCoordinator(
                self.pool, self.table, config, bounds, use_eagle=use_eagle, profile=profile, in_flight=in_flight
            )
        (block_size,) = config.group_block_sizes
        self._single = SingleGroupCoordinator(
            self.pool, self.table, block_size, caches=config.enable_prefix_caching, drop_last_hit=use_eagle
        )
        return self._single

    @property
    def num_groups(self) -> int:
        """KV-cache groups of the model."""
        return self.coordinator.num_groups

    @property
    def num_free_blocks(self) -> int:
        return self.pool.num_free

    @property
    def num_total_blocks(self) -> int:
        """Blocks in the pool, the null block included."""
        return self.pool.num_blocks

    @property
    def num_cached_blocks(self) -> int:
        """Distinct hashes in the prefix index, over all groups."""
        return self.pool.num_cached

    @property
    def usage(self) -> float:
        """Fraction of the usable blocks that are held."""
        return self.pool.usage

    @property
    def num_usable_blocks(self) -> int:
        """Blocks one request could ever hold: all but the null block."""
        return self.pool.num_blocks - 1

    def most_blocks(self, num_tokens: int, num_encoder_tokens: int = 0, *, at_once: bool = True) -> int:
        """Blocks that a sequence holds at most, over all groups; ``at_once``: that its admission asks for."""
        return self.coordinator.most_held(Extent(num_tokens, num_tokens, num_encoder_tokens), at_once=at_once)

    def reach(self, end: int, num_lookahead_tokens: int) -> int:
        """Positions that need a place for tokens up to ``end``: lookahead comes on top, within max_model_len."""
        return min(end + num_lookahead_tokens, self.max_model_len)

    def _reach_run(self, ends: IntArray, num_lookahead_tokens: int) -> IntArray:
        """:meth:`reach` of several requests, shape ``[n]``."""
        return np.minimum(ends + num_lookahead_tokens, self.max_model_len)

    def new_step_starts(self) -> None:
        """Forget which blocks the previous step handed out."""
        self.new_blocks.clear()
        for manager in self._mamba:
            manager.new_step_starts()

    @property
    def zeroes_blocks(self) -> bool:
        """Whether :meth:`take_new_block_ids` has to be asked after every step."""
        return bool(self._zeroed)

    def take_new_block_ids(self) -> tuple[int, ...] | None:
        """Blocks of attention layers taken since the last call, which workers zero; None where that is not needed.

        Only models with Mamba layers need it: their pool's memory may hold bits that are no numbers.
        """
        taken = tuple([block for manager in self._zeroed for block in manager.take_new_block_ids()])
        return taken or None

    def block_deltas(self, slots: IntArray) -> BlockDeltas:
        """Blocks that the requests in ``slots``, the rows of the step that ends, got in it."""
        new = self.new_blocks
        if not new:
            return new.nothing
        deltas = new.deltas(slots, self.table.row_in_step)
        new.clear()
        return deltas

    def take_events(self) -> list[KVEvent]:
        """What entered and left the prefix index since the last call; nothing unless events are recorded."""
        return self.events.take() if self.events is not None else []

    def take_stats(self) -> PrefixCacheStats:
        """Hit statistics since the last call."""
        if self.stats.is_empty:
            return NO_LOOKUPS
        stats, self.stats = self.stats, PrefixCacheStats()
        return stats

    # ---- lookup

    def get_computed_blocks(self, request: Request) -> ComputedBlocks:
        """The request's longest cached prefix, never the whole of it."""
        if not self._looks_up(request):
            return self.no_hits
        hit = self._longest_hit(request)
        request.shared_prefix_boundary = hit.junction
        self.shared_beyond_hit = max(hit.junction - hit.num_tokens, 0)
        return hit

    def num_cached_tokens(self, request: Request) -> int:
        """Length of the request's longest cached prefix, as a lookup would find it; no lookup is counted."""
        return self._longest_hit(request).num_tokens if self._looks_up(request) else 0

    def _longest_hit(self, request: Request) -> ComputedBlocks:
        """At most all tokens but one, which is left to compute logits from."""
        self.hasher.extend(request)
        return self.coordinator.find_longest_cache_hit(request, request.num_tokens - 1)

    def count_lookup(self, request: Request, hit: ComputedBlocks) -> None:
        """Take a lookup into the statistics."""
        if self._looks_up(request):
            self.stats.record(request.num_tokens, hit.num_tokens, preempted=request.num_preemptions > 0)

    def _looks_up(self, request: Request) -> bool:
        return self.enable_caching and not request.sampling_params.skip_reading_prefix_cache

    # ---- admission

    def allocate_slots(self, demand: Demand) -> Blocks | KVShortage:
        """Make room for a request that is being admitted; it gets a table slot, and all its blocks are returned."""
        request, hits = demand.request, demand.new_computed_blocks or self.no_hits
        if self._mamba and self._is_being_written(hits.blocks):
            return KVShortage(KVLimit.STATE_NOT_READY, needed=0, free=self.pool.num_free, cached_hits=0)
        num_computed = request.num_computed_tokens + hits.num_tokens + demand.num_external_computed_tokens
        total_computed = min(num_computed, self.max_model_len)
        if demand.full_sequence_must_fit or demand.must_fit:
            short = self._refuses_sequence(demand, hits.blocks, total_computed)
            if short is not None:
                return short
        if request.slot >= 0:
            self.coordinator.drop_skipped(request.slot, total_computed)
        end = total_computed + demand.num_new_tokens
        extent = Extent(self.reach(end, demand.num_lookahead_tokens), end, demand.num_encoder_tokens)
        # A step is asked about with all that is computed, even beyond max_model_len, as in vLLM.
        short = self._refuses_step(demand, extent, hits.blocks, num_computed)
        return self._take(demand, extent, hits.blocks, num_computed) if short is None else short

    def _is_being_written(self, hits: Blocks) -> bool:
        """Whether a state that ends the hit is computed in this very step."""
        return any(group.is_being_written(hits[group.group_id]) for group in self._mamba)

    def _refuses_sequence(self, demand: Demand, hits: Blocks, total_computed: int) -> KVShortage | None:
        """What the sequence as a whole lacks, where it must fit."""
        known = demand.request.num_tokens if demand.full_sequence_must_fit else 0
        whole = min(max(demand.must_fit, known), self.max_model_len)
        extent = Extent(whole, whole, demand.num_encoder_tokens)
        need = self.coordinator.need(demand.request.slot, extent, hits, total_computed, whole=True)
        return self._refusal(KVLimit.FULL_SEQUENCE, need, demand)

    def _refuses_step(self, demand: Demand, extent: Extent, hits: Blocks, num_computed: int) -> KVShortage | None:
        """What this step's tokens lack."""
        need = self.coordinator.need(demand.request.slot, extent, hits, num_computed)
        return self._refusal(KVLimit.BLOCKS, need, demand)

    def _take(self, demand: Demand, extent: Extent, hits: Blocks, num_computed: int) -> Blocks:
        """Take what was found free: the table slot of a request that has none, its hits, and blocks for ``extent``."""
        request = demand.request
        if request.slot < 0:
            self.table.acquire(request, self.max_model_len)
            self.coordinator.open(request.slot, hits, num_computed)
            if demand.num_external_computed_tokens:
                self.coordinator.allocate_external(request.slot, num_computed)
            if self.kept_blocks:
                self._free_kept_of(request.request_id)
        self.coordinator.grow(request.slot, extent)
        held = self.coordinator.held(request.slot)
        self.new_blocks.add(request.slot, self.table.set_blocks(request.slot, held))
        if not demand.delay_cache_blocks:
            self.publish(request, min(extent.num_tokens_main_model, request.num_tokens))
        return held

    def _refusal(self, limit: KVLimit, need: Need, demand: Demand) -> KVShortage | None:
        short = self._shortage(limit, need)
        if short is None and demand.keep_watermark and self.watermark_blocks:
            return self._shortage(KVLimit.WATERMARK, need, watermark=self.watermark_blocks)
        return short

    def _shortage(self, limit: KVLimit, need: Need, watermark: int = 0) -> KVShortage | None:
        free = self.pool.num_free
        if need.new + len(need.hits) + watermark <= free:
            return None  # whichever request holds the hits
        evictable = self.pool.num_evictable(need.hits)
        needed = need.new + evictable
        if needed + watermark <= free:
            return None
        return KVShortage(limit, needed=needed, free=free, cached_hits=evictable, watermark=watermark)

    # ---- growth of running requests

    def grow_run(self, slots: IntArray, ends: IntArray, num_lookahead_tokens: int = 0) -> int:
        """Give running requests room up to position ``ends``, in order, as many leading rows as memory allows.

        ``slots`` and ``ends`` have shape ``[n]``; lookahead positions come on top, within max_model_len. Blocks that
        become full are published up to the verified tokens. Returns the number of rows served; the first one not served
        gets nothing, see :meth:`shortage_of`, but has given back what lies behind a window.
        """
        reach = self._reach_run(ends, num_lookahead_tokens) if num_lookahead_tokens else ends
        served = self.coordinator.grow_run(slots, reach, ends, self.new_blocks)
        if self.enable_caching:
            if served < len(slots):
                slots, ends = slots[:served], ends[:served]
            self._publish_run(slots, ends)
        return served

    @property
    def grows_in_steps(self) -> bool:
        """Whether blocks for several decode steps can be allocated at once: no listener is notified of evictions."""
        quiet = self.events is None and not self.pool.listeners and not self.hashes_look_ahead
        return quiet and self._single is not None

    def steps_that_fit(self, slots: IntArray, reach: IntArray, most: int) -> int:
        """How many of ``most`` further steps of decodes find blocks; the rows reach up to ``reach`` now."""
        free = self.pool.num_free
        assert self._single is not None
        if most * len(slots) <= free:  # a block each in every step
            return most
        _, at = self._single.block_boundaries(slots, reach, most)
        return most if len(at) <= free else int(at[free]) - 1

    def steps_before_evicting(self, hits: Set[int], slots: IntArray, reach: IntArray, most: int) -> int:
        """How many of ``most`` further steps of decodes, all of which find blocks, take none of ``hits``."""
        assert self._single is not None
        if not hits:
            return most
        _, at = self._single.block_boundaries(slots, reach, most)
        taken = self.pool.free_queue.first_n(len(at))
        return next((step - 1 for step, block in zip(at.tolist(), taken, strict=True) if block in hits), most)

    def grow_steps(self, slots: IntArray, reach: IntArray, steps: int, sealed: Sealed) -> PerStepBlocks:
        """:meth:`grow_run` for ``steps`` further steps, each of which reaches one position further; all of them fit.

        ``sealed`` are the blocks that became full meanwhile: they are hashed and published.
        """
        assert self._single is not None
        self.new_blocks.clear()
        grown = self._single.grow_steps(slots, reach, steps)
        if sealed and self.enable_caching:
            self.on_seal([(request, tokens) for request, _, tokens in sealed])
            self._make_findable([request for request, _, _ in sealed], [num_tokens for _, num_tokens, _ in sealed])
        return grown

    def publish(self, request: Request, num_tokens: int) -> None:
        """Publish the full blocks within ``num_tokens`` of a request that has a slot."""
        if self.enable_caching:
            if not self.hashes_look_ahead:
                self.hasher.extend(request)
            self._make_findable([request], [num_tokens])

    def rewind_published(self, request: Request) -> None:
        """Blocks after the computed tokens were forgotten: they are published when they have been computed again."""
        for group in self.coordinator.managers:
            full = request.num_computed_tokens // group.block_size
            group.num_cached[request.slot] = min(group.num_cached[request.slot], full)
        self.table.set_seal_at(request.slot, 0)

    def evict_blocks(self, blocks: Iterable[int]) -> None:
        """Forget the cached content of blocks, held or not: vLLM's name, though no memory is taken, and listeners are
        told ``block_forgotten``.
        """
        for block in blocks:
            self.pool.forget(block)

    def forget_content_of(self, request: Request) -> None:
        """Forget what has been cached of a request's tokens, wherever it is."""
        self.pool.forget_content(request.block_hashes)

    def forget_hashes(self, request: Request, num_tokens: int) -> None:
        """Hashes of the request's blocks beyond its first ``num_tokens`` tokens are of no use any more."""
        self.hasher.forget_beyond(request, num_tokens)

    def forget_content_beyond(self, request: Request, num_computed: int) -> None:
        """Forget the content of the request's blocks that the first ``num_computed`` tokens do not fill.

        A step publishes blocks before it computes them; if it is called off for the request, they hold nothing. vLLM
        0.22 leaves their hashes in the cache.
        """
        if self.enable_caching:
            for blocks, size in zip(self.get_block_ids(request), self.config.group_block_sizes, strict=True):
                self.evict_blocks(block for block in blocks[num_computed // size :] if block)

    def publish_computed(self, slots: IntArray) -> None:
        """Publish blocks whose tokens have come back from steps in flight (async scheduling)."""
        if self.enable_caching:
            self._publish_run(slots, less(gather(self.table.num_computed, slots), self.table.placeholders, slots))

    def _publish_run(self, slots: IntArray, ends: IntArray) -> None:
        """Publish blocks that become full; drafts beyond the verified tokens never are."""
        table = self.table
        rows = rows_from(ends, table.seal_at, slots)
        if len(rows):
            targets = gather(slots, rows)
            verified = np.minimum(gather(ends, rows), gather(table.num_tokens, targets))
            full = rows_from(verified, table.seal_at, targets)
            if len(full):
                self._make_findable(table.tenants(gather(targets, full)), gather(verified, full).tolist())

    def _make_findable(self, requests: list[Request], num_tokens: list[int]) -> None:
        if self.hashes_look_ahead:
            for request in requests:
                self.hasher.extend(request)
        if self.events is None:
            self.coordinator.publish_run(requests, num_tokens)
            return
        groups = self.coordinator.managers
        starts = [[group.num_cached[request.slot] for request in requests] for group in groups]
        self.coordinator.publish_run(requests, num_tokens)
        for group, before in zip(groups, starts, strict=True):
            self.events.stored(requests, before, group, self.pool)

    def shortage_of(self, slot: int, end: int, num_lookahead_tokens: int = 0) -> KVShortage:
        """Why :meth:`grow_run` stopped at this row."""
        extent = Extent(self.reach(end, num_lookahead_tokens), end)
        computed = int(self.table.num_computed[slot])
        need = self.coordinator.need(slot, extent, self.no_hits.blocks, computed)
        return KVShortage(KVLimit.BLOCKS, needed=need.new, free=self.pool.num_free, cached_hits=0)

    def on_seal(self, sealed: Sequence[tuple[Request, bytes]]) -> None:
        """Blocks of running requests have become full of known tokens."""
        if self.enable_caching and not self.hashes_look_ahead:
            self.hasher.append_n(sealed)

    # ---- the end

    def free(self, request: Request) -> None:
        """Give the request's blocks and slot back (a request without a slot holds none)."""
        slot = request.slot
        if slot >= 0:
            self.coordinator.free(slot)
            self.new_blocks.drop(slot)
            self.table.release(request)
        if self.kept_blocks:
            self._free_kept_of(request.request_id)

    # ---- what stays of a preempted request: a further reference to its first blocks, which a lookup finds again

    @property
    def can_keep(self) -> bool:
        """Whether a part of a preempted request can stay."""
        return self._single is not None and self.enable_caching

    def free_tail(self, request: Request, num_tokens: int) -> None:
        """Free a preempted request, but for its first cached blocks within ``num_tokens``."""
        assert self._single is not None
        size = self._single.group.block_size
        kept: list[int] = []
        for block in self._single.group.held[request.slot][: min(num_tokens, request.num_computed_tokens) // size]:
            if self.pool.hash_of[block] is None:
                break
            kept.append(block)
        self.pool.touch(kept)
        self.free(request)
        if kept:
            self.kept_blocks[request.request_id] = kept

    def free_kept(self, asking: Request) -> bool:
        """Free what is kept of the request preempted last, but not of the one that asks; False if there is none."""
        last = next((each for each in reversed(self.kept_blocks) if each != asking.request_id), None)
        if last is not None:
            self._free_kept_of(last)
        return last is not None

    def free_all_kept(self) -> None:
        """Free all that is kept of preempted requests."""
        for request_id in list(self.kept_blocks):
            self._free_kept_of(request_id)

    def _free_kept_of(self, request_id: str) -> None:
        blocks = self.kept_blocks.pop(request_id, None)
        if blocks:
            self.pool.release(reversed(blocks))

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content; refused (False) while blocks are in use."""
        if not self.pool.reset():
            return False
        self.stats.reset = True
        return True

    def get_block_ids(self, request: Request) -> Blocks:
        """The request's blocks per KV-cache group."""
        return self.coordinator.held(request.slot) if request.slot >= 0 else tuple([] for _ in self.config.groups)

    def num_blocks_of(self, request: Request) -> int:
        """Blocks the request holds, over all groups."""
        return sum(1 for blocks in self.get_block_ids(request) for block in blocks if block)

    def num_common_prefix_blocks(self, request: Request) -> list[int]:
        """Leading blocks that all block holders share, per group (cascade attention)."""
        return self.coordinator.num_common_prefix_blocks(request.slot)

    def check_invariants(self) -> None:
        """Raise AssertionError if blocks, slots and counters disagree."""
        self.pool.check_invariants([*self.coordinator.holders(), *self.kept_blocks.values()])
        self.table.check_invariants()
        num_lists = self.table.num_tenants * self.coordinator.num_groups
        assert len(self.coordinator.holders()) == num_lists, "block lists and tenants differ"
        for request in filter(None, self.table.requests):
            slot = request.slot
            assert self.table.capacity[slot] == self.coordinator.capacity(slot)
            for table, blocks in zip(self.table.block_tables, self.coordinator.held(slot), strict=True):
                # What a window has left behind stays in the table, as in a worker's: it is never read.
                row = table[slot, : len(blocks)].tolist()
                assert all(ours in (theirs, NULL_BLOCK) for ours, theirs in zip(blocks, row, strict=True))
