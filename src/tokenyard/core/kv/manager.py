"""The KV-cache manager: the scheduler's only door to memory.

The scheduler never touches a block. It asks for room (:meth:`KVCacheManager.allocate_slots` for a request that is
being admitted, :meth:`KVCacheManager.grow` for a running one) and gets blocks or the numbers of a refusal. After a no a
request holds what it held, less the blocks behind a window, which it gives back before it asks.

Positions of a request during an allocation (vLLM's layout):

    | computed | new hits | external | new | lookahead |
    | has blocks | touched | -- blocks taken from the pool -- |
    | -- published in the prefix index, at most up to num_tokens -- |

This file is the cache of a model with one KV-cache group of full attention; :mod:`tokenyard.core.kv.hybrid` has the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tokenyard.core.config import CacheConfig
from tokenyard.core.kv.allocation import (
    NO_LOOKUPS,
    Blocks,
    ComputedBlocks,
    KVLimit,
    KVShortage,
    PrefixCacheStats,
    StepBlocks,
)
from tokenyard.core.kv.block_pool import BlockPool, EvictsFirst
from tokenyard.core.kv.events import EventLog, KVEvent, StoredIn
from tokenyard.core.kv.groups import GroupBounds, hash_block_size
from tokenyard.core.kv.hashing import BlockHasher, LookaheadBlockHasher, RequestHasher
from tokenyard.core.profiles import OLDEST, DecisionProfile
from tokenyard.core.request import BlockHash, Request, RequestStatus
from tokenyard.core.rows import NEVER


class Demand:
    """What a request that is being admitted demands of memory."""

    request: Request
    num_new_tokens: int
    """Tokens that this step computes, behind those that need no computing."""
    hit: ComputedBlocks
    """Its prefix hit; that of nothing, if it was not looked up."""
    num_external_computed_tokens: int
    """Tokens that a connector brings, behind the hit."""
    num_lookahead_tokens: int
    """Positions that get a place behind all tokens, within max_model_len."""
    num_encoder_tokens: int
    """Tokens that get blocks of cross-attention layers, this once."""
    delay_cache_blocks: bool
    """Nothing is published yet."""
    full_sequence_must_fit: bool
    """It is refused unless its whole known sequence fits the free blocks."""
    must_fit: int
    """It is refused unless so many of its tokens do."""
    keep_watermark: bool
    """It is refused if fewer blocks than the watermark would stay free, of the whole sequence too."""

    def __init__(
        self,
        request: Request,
        num_new_tokens: int,
        hit: ComputedBlocks,
        *,
        num_external_computed_tokens: int = 0,
        num_lookahead_tokens: int = 0,
        num_encoder_tokens: int = 0,
        delay_cache_blocks: bool = False,
        full_sequence_must_fit: bool = False,
        must_fit: int = 0,
        keep_watermark: bool = False,
    ) -> None:
        self.request = request
        self.num_new_tokens = num_new_tokens
        self.hit = hit
        self.num_external_computed_tokens = num_external_computed_tokens
        self.num_lookahead_tokens = num_lookahead_tokens
        self.num_encoder_tokens = num_encoder_tokens
        self.delay_cache_blocks = delay_cache_blocks
        self.full_sequence_must_fit = full_sequence_must_fit
        self.must_fit = must_fit
        self.keep_watermark = keep_watermark


class KVCacheManager:
    """Allocation, prefix lookup and freeing: of a model with one group of full attention."""

    config: CacheConfig
    pool: BlockPool
    hasher: RequestHasher
    hash_size: int
    """Tokens per hash."""
    block_size: int
    """Tokens per block of the first group."""
    num_groups: int
    max_model_len: int
    enable_caching: bool
    hashes_look_ahead: bool
    """Hashes of blocks cover the token behind them; no matched block is dropped then."""
    drops_last_hit: bool
    """The last matched block is computed again: an EAGLE head needs its hidden states."""
    watermark_blocks: int
    no_hits: ComputedBlocks
    """A lookup that found nothing."""
    shared_beyond_hit: int
    """Tokens that the request looked up last shares with others beyond its hit."""
    stats: PrefixCacheStats
    events: EventLog | None
    kept_blocks: dict[str, list[int]]
    """Id of a preempted request -> its first blocks, which were not freed; in the order of the preemptions."""
    tenants: dict[int, Request]
    """Slot -> the request that holds blocks under it."""
    free_slots: list[int]
    num_slots: int

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
        """``hashes_look_ahead``: hashes of blocks cover the token behind them. ``in_flight`` says how many tokens of a
        request are computed by steps whose output has not been taken in, where windows have to know. ``hasher`` hashes
        blocks in place of our own, in the unit of :func:`~tokenyard.core.kv.groups.hash_block_size`. ``evicts_first``
        gives freed blocks other places than vLLM.
        """
        self.config = config
        self.max_model_len = bounds.max_model_len
        self.enable_caching = config.enable_prefix_caching
        self.num_groups = len(config.groups)
        self.block_size = config.group_block_sizes[0]
        first = profile.unhashed_blocks_first if self.enable_caching else profile.uncached_blocks_first
        self.pool = BlockPool(config.num_gpu_blocks, self.num_groups, put_back=evicts_first or first)
        self.hash_size = hash_block_size(config)
        make_hasher = LookaheadBlockHasher if hashes_look_ahead else BlockHasher
        self.hasher = hasher or make_hasher(
            self.hash_size,
            config.prefix_caching_hash_algo,
            config.hash_seed,
            output_blocks_hash_last_image=profile.output_blocks_hash_last_image,
        )
        self.hashes_look_ahead = hashes_look_ahead
        self.drops_last_hit = use_eagle
        self.watermark_blocks = int(config.watermark * config.num_gpu_blocks)
        self.no_hits = ComputedBlocks(tuple([] for _ in config.groups), 0)
        self.shared_beyond_hit = 0
        self.stats = PrefixCacheStats()
        self.events = EventLog() if config.enable_kv_cache_events else None
        if self.events is not None:
            self.pool.subscribe(self.events)
        self.kept_blocks = {}
        self.tenants = {}
        self.free_slots = []
        self.num_slots = 0

    @property
    def num_free_blocks(self) -> int:
        return self.pool.num_free

    @property
    def num_total_blocks(self) -> int:
        """Blocks in the pool, the null block included."""
        return self.pool.num_blocks

    @property
    def num_usable_blocks(self) -> int:
        """Blocks one request could ever hold: all but the null block."""
        return self.pool.num_blocks - 1

    @property
    def num_cached_blocks(self) -> int:
        """Distinct hashes in the prefix index, over all groups."""
        return self.pool.num_cached

    @property
    def usage(self) -> float:
        """Fraction of the usable blocks that are held."""
        return self.pool.usage

    @property
    def can_keep(self) -> bool:
        """Whether a part of a preempted request can stay."""
        return self.enable_caching

    @property
    def grows_in_steps(self) -> bool:
        """Whether blocks for several decode steps can be allocated at once: no listener and no order wants to know."""
        is_plain = self.pool.chooser is None and not self.hashes_look_ahead
        return is_plain and self.events is None and not self.pool.listeners

    @property
    def zeroes_blocks(self) -> bool:
        """Whether :meth:`take_new_block_ids` has to be asked after every step."""
        return False

    def reach(self, end: int, num_lookahead_tokens: int) -> int:
        """Return the positions that need a place for tokens up to ``end``: lookahead on top, within max_model_len."""
        return min(end + num_lookahead_tokens, self.max_model_len)

    def most_blocks(self, num_tokens: int, num_encoder_tokens: int = 0, *, at_once: bool = True) -> int:
        """Return the most blocks that a sequence holds, over all groups; ``at_once``: that its admission asks for."""
        return -(-num_tokens // self.block_size)

    # ---- steps

    def new_step_starts(self) -> None:
        """Forget what the previous step wrote and handed out."""

    def gather_new_blocks(self, row: int, request: Request, step: StepBlocks) -> None:
        """Note what the request, a row of the step that ends, has got in it."""
        if request.blocks.size > request.first_new_block:
            step.add_row(row, request.blocks, request.first_new_block)

    def take_new_block_ids(self) -> tuple[int, ...] | None:
        """Return blocks of attention layers taken since the last call, which workers zero; None: they need not.

        Only models with Mamba layers need it: their pool's memory may hold bits that are no numbers.
        """
        return None

    def take_events(self) -> list[KVEvent]:
        """Return what entered and left the prefix index since the last call; nothing unless events are recorded."""
        return self.events.take() if self.events is not None else []

    def take_stats(self) -> PrefixCacheStats:
        """Return hit statistics since the last call."""
        if self.stats.is_empty:
            return NO_LOOKUPS
        stats, self.stats = self.stats, PrefixCacheStats()
        return stats

    # ---- lookup

    def get_computed_blocks(self, request: Request) -> ComputedBlocks:
        """Return the request's longest cached prefix, never the whole of it."""
        if not self.looks_up(request):
            return self.no_hits
        hit = self.longest_hit(request)
        request.shared_prefix_boundary = hit.junction
        self.shared_beyond_hit = max(hit.junction - hit.num_tokens, 0)
        return hit

    def num_cached_tokens(self, request: Request) -> int:
        """Return the length of the prefix that a lookup would find; no lookup is counted."""
        return self.longest_hit(request).num_tokens if self.looks_up(request) else 0

    def longest_hit(self, request: Request) -> ComputedBlocks:
        """Return at most all tokens but one, which is left to compute logits from."""
        self.hasher.extend(request)
        hashes: list[BlockHash] = request.block_hashes
        limit = min((request.num_tokens - 1) // self.block_size, len(hashes))
        pool, found = self.pool, []
        for i in range(limit):
            block = pool.find(hashes[i], 0)
            if block == 0:
                break
            found.append(block)
        if self.drops_last_hit and found:
            found.pop()
        return ComputedBlocks((found,), len(found) * self.block_size)

    def count_lookup(self, request: Request, hit: ComputedBlocks) -> None:
        """Take a lookup into the statistics."""
        if self.looks_up(request):
            self.stats.record(request.num_tokens, hit.num_tokens, preempted=request.num_preemptions > 0)

    def looks_up(self, request: Request) -> bool:
        """Whether the request reads cached prefixes."""
        return self.enable_caching and not request.sampling_params.skip_reading_prefix_cache

    # ---- admission

    def allocate_slots(self, demand: Demand) -> KVShortage | None:
        """Make room for a request that is being admitted, which gets a slot; else return what was short."""
        request: Request = demand.request
        held, hits = request.blocks, demand.hit.blocks[0]
        num_computed = request.num_computed_tokens + demand.hit.num_tokens + demand.num_external_computed_tokens
        total_computed = min(num_computed, self.max_model_len)
        num_held = held.size + len(hits)
        if demand.full_sequence_must_fit or demand.must_fit:
            known = request.num_tokens if demand.full_sequence_must_fit else 0
            whole = min(max(demand.must_fit, known), self.max_model_len)
            missing = max(-(-whole // self.block_size) - num_held, 0)
            short = self.refusal(KVLimit.FULL_SEQUENCE, missing, hits, demand.keep_watermark)
            if short is not None:
                return short
        end = total_computed + demand.num_new_tokens
        reach = min(end + demand.num_lookahead_tokens, self.max_model_len)
        missing = max(-(-reach // self.block_size) - num_held, 0)
        short = self.refusal(KVLimit.BLOCKS, missing, hits, demand.keep_watermark)
        if short is not None:
            return short
        if request.slot < 0:
            self.give_slot(request)
            for block in hits:
                self.pool.hold(block)
                held.append(block)
            if self.pool.chooser is not None:
                self.pool.chooser.found(request, hits)
            request.num_published = len(hits)
            request.publish_at = (len(hits) + 1) * self.block_size if self.enable_caching else NEVER
            if self.kept_blocks:
                self.free_kept_of(request.request_id)
        for _ in range(missing):
            held.append(self.pool.take_one())
        request.first_new_block = 0
        if not demand.delay_cache_blocks:
            self.publish(request, min(end, request.num_tokens))
        return None

    def refusal(self, limit: KVLimit, missing: int, hits: list[int], keep_watermark: bool) -> KVShortage | None:
        """Return the numbers of a refusal if ``missing`` new blocks, and ``hits``, cannot be had; else None."""
        watermark = self.watermark_blocks if keep_watermark else 0
        free = self.pool.num_free
        if missing + len(hits) + watermark <= free:
            return None  # whichever request holds the hits
        evictable = self.pool.num_evictable(hits)
        needed = missing + evictable
        if needed > free:
            return KVShortage(limit, needed=needed, free=free, cached_hits=evictable)
        if needed + watermark > free:
            return KVShortage(KVLimit.WATERMARK, needed=needed, free=free, cached_hits=evictable, watermark=watermark)
        return None

    def give_slot(self, request: Request) -> None:
        """Give a request that begins to hold blocks a row of a model runner's batch."""
        if self.free_slots:
            request.slot = self.free_slots.pop()
        else:
            request.slot = self.num_slots
            self.num_slots += 1
        request.last_step = -1
        request.spec_token_ids = []
        request.is_prefill_chunk = False
        request.encoder_at = NEVER
        self.tenants[request.slot] = request

    # ---- growth of running requests

    def grow(self, request: Request, end: int, num_lookahead_tokens: int) -> bool:
        """Give a running request room up to position ``end``, and publish blocks that become full.

        Lookahead positions come on top, within max_model_len. False: blocks are missing, see :meth:`shortage_of`.
        """
        reach = end
        if num_lookahead_tokens:
            reach = min(end + num_lookahead_tokens, self.max_model_len)
        if reach > request.blocks.size * self.block_size:
            missing = -(-reach // self.block_size) - request.blocks.size
            if missing > self.pool.num_free:
                return False
            for _ in range(missing):
                request.blocks.append(self.pool.take_one())
        if end >= request.publish_at:
            self.publish_verified(request, end)
        return True

    def shortage_of(self, request: Request, end: int, num_lookahead_tokens: int) -> KVShortage:
        """Return why :meth:`grow` gave nothing."""
        missing = -(-self.reach(end, num_lookahead_tokens) // self.block_size) - request.blocks.size
        return KVShortage(KVLimit.BLOCKS, needed=max(missing, 0), free=self.pool.num_free, cached_hits=0)

    def publish_verified(self, request: Request, end: int) -> None:
        """Publish blocks that become full; drafts beyond the verified tokens never are."""
        verified = min(end, request.num_tokens)
        if verified >= request.publish_at:
            self.make_findable(request, verified)

    def publish_computed(self, request: Request) -> None:
        """Publish blocks whose tokens have come back from steps in flight."""
        end = request.num_computed_tokens - request.num_output_placeholders
        if end >= request.publish_at:
            self.publish_verified(request, end)

    def publish(self, request: Request, num_tokens: int) -> None:
        """Publish the full blocks within ``num_tokens`` of a request that holds blocks."""
        if self.enable_caching:
            if not self.hashes_look_ahead:
                self.hasher.extend(request)
            self.make_findable(request, num_tokens)

    def make_findable(self, request: Request, num_tokens: int) -> None:
        """Put the full blocks within ``num_tokens`` into the prefix index, as far as they have hashes."""
        if self.hashes_look_ahead:
            self.hasher.extend(request)
        hashes: list[BlockHash] = request.block_hashes
        start, stop = request.num_published, min(num_tokens // self.block_size, len(hashes))
        if start < stop:
            for i in range(start, stop):
                self.pool.publish(request.blocks.data[i], hashes[i], 0)
            request.num_published = stop
            if self.pool.chooser is not None:
                self.pool.chooser.written(request, start, stop)
            if self.events is not None:
                self.events.stored(request, range(start, stop), StoredIn(start, stop, self.block_size))
        request.publish_at = (request.num_published + 1) * self.block_size

    def block_is_full(self, request: Request) -> None:
        """A running request has come to the end of a hashed block with its last token."""
        if self.enable_caching and not self.hashes_look_ahead:
            self.hasher.extend(request)  # cold

    def rewind_published(self, request: Request) -> None:
        """Blocks after the computed tokens were forgotten: they are published when they have been computed again."""
        request.num_published = min(request.num_published, request.num_computed_tokens // self.block_size)
        request.publish_at = 0 if self.enable_caching else NEVER

    # ---- content that is worthless

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

    # ---- the end

    def free(self, request: Request) -> None:
        """Give the request's blocks and slot back (a request without a slot holds none)."""
        if request.slot >= 0:
            self.release_blocks(request)
            del self.tenants[request.slot]
            self.free_slots.append(request.slot)
            request.slot = -1
            request.spec_token_ids = []
            request.is_prefill_chunk = False
        if self.kept_blocks:
            self.free_kept_of(request.request_id)

    def release_blocks(self, request: Request) -> None:
        """Give all its blocks back, tail first."""
        if self.pool.chooser is not None:
            self.pool.chooser.left(request)
        self.pool.release_row(request.blocks)

    # ---- what stays of a preempted request: a further reference to its first blocks, which a lookup finds again

    def free_tail(self, request: Request, num_tokens: int) -> None:
        """Free a preempted request, but for its first cached blocks within ``num_tokens``."""
        kept: list[int] = []
        for block in request.blocks.as_list()[: min(num_tokens, request.num_computed_tokens) // self.block_size]:
            if self.pool.content[block] is None:
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
            self.free_kept_of(last)
        return last is not None

    def free_all_kept(self) -> None:
        """Free all that is kept of preempted requests."""
        for request_id in list(self.kept_blocks):
            self.free_kept_of(request_id)

    def free_kept_of(self, request_id: str) -> None:
        """Free what is kept of one request."""
        blocks = self.kept_blocks.pop(request_id, None)
        if blocks:
            if self.pool.chooser is not None:
                self.pool.chooser.freed(list(reversed(blocks)))
            self.pool.release(list(reversed(blocks)))

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content; refused (False) while blocks are in use."""
        if not self.pool.reset():
            return False
        self.stats.reset = True
        return True

    # ---- what is held

    def get_block_ids(self, request: Request) -> Blocks:
        """Return the request's blocks per KV-cache group."""
        return (request.blocks.as_list(),)

    def num_blocks_of(self, request: Request) -> int:
        """Return the blocks that the request holds, over all groups."""
        return request.blocks.size

    def num_skipped_blocks(self, group: int, num_computed: int) -> int:
        """Return the leading blocks of a group that no later token attends to."""
        return 0

    def capacity(self, request: Request) -> int:
        """Return the positions that the request's blocks can store."""
        return request.blocks.size * self.block_size

    def num_common_prefix_blocks(self, request: Request) -> list[int]:
        """Return the leading blocks that all block holders share, per group (cascade attention)."""
        count, held = 0, request.blocks.as_list() if self.enable_caching else []
        for block in held:
            if self.pool.holders[block] != len(self.tenants):
                break
            count += 1
        return [count]

    def held_lists(self) -> list[list[int]]:
        """Return every block list (for invariant checks)."""
        return [each.blocks.as_list() for each in self.tenants.values()]

    def check_invariants(self) -> None:
        """Raise AssertionError if blocks, slots and counters disagree."""
        lists = self.held_lists()
        self.pool.check_invariants([*lists, *self.kept_blocks.values()])
        assert len(lists) == len(self.tenants) * self.num_groups, "block lists and tenants differ"
        slots = [*self.tenants, *self.free_slots]
        assert sorted(slots) == list(range(self.num_slots)), "free slots and tenants do not add up"
        for slot, request in self.tenants.items():
            assert request.slot == slot, f"{request.request_id} does not know its slot"
            computed = request.num_computed_tokens
            assert computed <= self.capacity(request), f"{request.request_id} lacks blocks"
            # Up to vLLM 0.26 an output from before a preemption takes its rejected drafts from a load under way.
            assert computed >= 0 or request.status is not RequestStatus.RUNNING, (
                f"{request} has computed {computed} tokens"
            )
            assert request.num_prompt_tokens <= request.num_tokens
            assert request.num_output_placeholders >= 0, f"{request.request_id} has negative placeholders"
