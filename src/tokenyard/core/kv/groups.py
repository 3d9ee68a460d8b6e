"""The block lists of one KV-cache group: what all attention types share, and full, cross, windowed and chunked
attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from math import gcd
from typing import NamedTuple

from tokenyard.core.config import CacheConfig
from tokenyard.core.kv.block_pool import NULL_BLOCK, BlockPool
from tokenyard.core.request import BlockHash, Request

__all__ = [
    "ChunkedLocalManager",
    "CrossAttentionManager",
    "Extent",
    "FullAttentionManager",
    "GroupBlocks",
    "GroupBounds",
    "Need",
    "OwnBlocksManager",
    "PrefixQuery",
    "Reachable",
    "Retention",
    "SingleTypeManager",
    "SlidingWindowManager",
    "align_down",
    "hash_block_size",
]


# ---------------------------------------------------------------------------------------------------------------------
# What bounds the groups of a model.


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


# ---------------------------------------------------------------------------------------------------------------------
# Which positions stay reachable by a hit: where a group needs only what lies right before it, the rest is not kept.
#
#     prompt         | a a a a | a a a a | a a a a | a a |
#     repeated        ------------------------------^     resumes at the last whole block before its last token
#     shared prefix   ----------^                         prompts that part here resume here


class Reachable(NamedTuple):
    """Positions of one request that a later hit can end at."""

    interval: int
    """Every so many tokens; 0: nowhere but at ``boundaries``."""
    boundaries: tuple[int, ...]
    """Tokens; a hit ends at the last aligned position up to there."""


class Retention:
    """The rule for all requests; ``interval`` is None where every position is kept."""

    __slots__ = ("interval", "unit_below")

    def __init__(self, interval: int | None = None, unit_below: int = 0) -> None:
        """``unit_below``: tokens of a unit of hits, where the last one is dropped and resumed at the one before; 0:
        nothing is dropped.
        """
        self.interval = interval
        self.unit_below = unit_below

    def of(self, request: Request) -> Reachable | None:
        """What of the request stays reachable; None: everything."""
        if self.interval is None:
            return None
        # A repeated prompt computes its last token again.
        prompt, junction, unit = request.num_prompt_tokens, request.shared_prefix_boundary, self.unit_below
        ends = (max((end // unit - 1) * unit, 0) for end in (prompt - 1, prompt)) if unit else (prompt - 1,)
        return Reachable(self.interval, (*ends, junction) if junction else tuple(ends))


# ---------------------------------------------------------------------------------------------------------------------
# Blocks of one KV-cache group: what all attention types share.
#
# A type differs in what it may forget (:meth:`SingleTypeManager.num_skipped_tokens`), in what counts as a prefix hit
# (:meth:`SingleTypeManager.find_longest_cache_hit`) and in what it needs at most; the block lists are the same.
#
#     held[slot]   [ null null | b3 b7 b9 | b12 ]
#                    skipped     published  not full yet


class GroupBlocks(NamedTuple):
    """The blocks of one KV-cache group."""

    pool: BlockPool
    """Where they come from."""
    block_size: int
    """Tokens per block."""
    group_id: int = 0
    hash_stride: int = 1
    """Hashed blocks per block of this group: a hash covers all before it, so the last one stands for them."""
    is_zeroed: bool = False
    """Workers zero them when they are taken."""


class Extent:
    """The positions that an allocation gives a place, under vLLM's names."""

    __slots__ = ("num_encoder_tokens", "num_tokens", "num_tokens_main_model")

    def __init__(self, num_tokens: int, num_tokens_main_model: int, num_encoder_tokens: int = 0) -> None:
        self.num_tokens = num_tokens
        """All of them, lookahead included."""
        self.num_tokens_main_model = num_tokens_main_model
        """Without lookahead."""
        self.num_encoder_tokens = num_encoder_tokens
        """Tokens of an encoder's output, which come on top in layers that read it."""


class PrefixQuery:
    """What is looked up for a request."""

    __slots__ = ("alignment", "drop_last", "hashes", "max_length")

    def __init__(self, hashes: Sequence[BlockHash], max_length: int, drop_last: bool, alignment: int) -> None:
        self.hashes = hashes
        """Hashes of its blocks, at the block size of the groups that are asked."""
        self.max_length = max_length
        """Most tokens of a hit."""
        self.drop_last = drop_last
        """Leave the last matched block to be computed: an EAGLE head needs its hidden states."""
        self.alignment = alignment
        """A hit is a multiple of so many tokens."""


class Need:
    """Blocks an allocation takes out of the free queue."""

    __slots__ = ("hits", "new")

    def __init__(self, new: int, hits: Sequence[int] = ()) -> None:
        self.new = new
        self.hits = hits
        """Cached blocks it takes as well, those of them that are in the queue."""


class SingleTypeManager:
    """Block lists by slot: positions never move while a request holds them."""

    __slots__ = (
        "block_size",
        "group_id",
        "hash_stride",
        "held",
        "new_blocks",
        "num_cached",
        "pool",
        "unhashed_first_dropped",
        "unhashed_first_freed",
    )

    def __init__(self, blocks: GroupBlocks) -> None:
        self.pool: BlockPool = blocks.pool
        self.block_size = blocks.block_size
        """Tokens per block."""
        self.group_id = blocks.group_id
        self.hash_stride = blocks.hash_stride
        """See :class:`GroupBlocks`."""
        self.held: dict[int, list[int]] = {}
        """Slot -> block ids in position order."""
        self.num_cached: dict[int, int] = {}
        """Slot -> leading blocks that were offered to the prefix index."""
        self.new_blocks: list[int] | None = [] if blocks.is_zeroed else None
        """Blocks taken since :meth:`take_new_block_ids`, in order, where workers zero them; None: they need not."""
        self.unhashed_first_dropped = False
        """Blocks without content that no later token reads go to the front of the free queue, whatever its rule."""
        self.unhashed_first_freed = False
        """The same of blocks of a request that gives all of them back."""

    # ---- what a type decides

    spec_kind = ""
    """The type's name in vLLM's KV events."""

    @property
    def sliding_window(self) -> int | None:
        """Tokens of the sliding window; None for other types."""
        return None

    def num_positions(self, extent: Extent) -> int:
        """How many of an allocation's positions have a place in this group."""
        return extent.num_tokens

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

    def find_longest_cache_hit(self, peers: Sequence[SingleTypeManager], query: PrefixQuery) -> list[list[int]]:
        """Cached blocks of the longest usable prefix, per group of ``peers``.

        ``peers`` are the groups of this very type and shape, this one included.
        """
        raise AssertionError(f"groups of {self.spec_kind} are not looked up")

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

    def note_published(self, blocks: Sequence[int]) -> None:
        """These blocks have come into the prefix index, as far as they were not there."""

    # ---- what they share

    def _lookup(self, peers: Sequence[SingleTypeManager], block_hash: BlockHash) -> list[int] | None:
        """The cached block in every group of ``peers``, or None if one of them misses."""
        found = [self.pool.find(block_hash, peer.group_id) for peer in peers]
        return None if NULL_BLOCK in found else found

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

    def deal(self, slot: int, taken: Sequence[int]) -> None:
        """Append blocks taken from the pool to the list of ``slot``."""
        self.held[slot] += taken
        if self.new_blocks is not None:
            self.new_blocks += taken

    def take_new_block_ids(self) -> list[int]:
        """Blocks taken since the last call, for workers to zero."""
        taken, self.new_blocks = self.new_blocks, []
        return taken or []

    def grow(self, slot: int, num_tokens: int) -> list[int]:
        """Take blocks so that ``num_tokens`` positions have a place; returns what the list has got."""
        taken = self.pool.take(self.num_missing(slot, num_tokens))
        self.deal(slot, taken)
        return taken

    def allocate_external(self, slot: int, num_tokens: int) -> None:
        """Take blocks for tokens whose KV comes from outside; ``num_tokens`` in all, found and brought."""
        count = SingleTypeManager.num_missing(self, slot, num_tokens)  # without a type's blocks for drafts
        self.deal(slot, self.pool.take(count))

    def drop_skipped(self, slot: int, num_computed: int) -> None:
        """Free blocks that no later token attends to; the null block takes their place."""
        held = self.held[slot]
        dropped = []
        for i in range(min(self.num_skipped_blocks(num_computed), len(held)) - 1, -1, -1):
            if held[i] == NULL_BLOCK:
                break
            dropped.append(held[i])
            held[i] = NULL_BLOCK
        self.pool.release(dropped, self.unhashed_first_dropped)

    def publish(
        self, slot: int, hashes: Sequence[BlockHash], num_tokens: int, alignment: int, reachable: Reachable | None
    ) -> None:
        """Put the full blocks within ``num_tokens`` into the prefix index, as far as they have hashes.

        ``reachable`` says where hits can end; None: anywhere.
        """
        size, stride = self.block_size, self.hash_stride
        start, stop = self.num_cached[slot], min(num_tokens // size, len(hashes) // stride)
        if start >= stop:
            return
        self.num_cached[slot] = stop
        blocks, keys = self.held[slot][start:stop], hashes[(start + 1) * stride - 1 : stop * stride : stride]
        mask = None
        if alignment > size or reachable is not None:
            mask = self.publishable(start, stop, alignment, reachable)
        chosen = []
        for i, block in enumerate(blocks):
            if mask is None or mask[i]:
                self.pool.publish(block, keys[i], self.group_id)
                chosen.append(block)
        self.note_published(chosen)

    def free(self, slot: int) -> None:
        """Give all blocks back, tail first, so that the end of a sequence is evicted before its beginning."""
        held: list[int] = self.held.pop(slot)
        held.reverse()
        self.pool.release(held, self.unhashed_first_freed)
        del self.num_cached[slot]


def align_down(hits: Sequence[list[int]], block_size: int, alignment: int) -> None:
    """Shorten hits of equal length until they cover a multiple of ``alignment`` tokens."""
    while len(hits[0]) * block_size % alignment:
        for blocks in hits:
            blocks.pop()


# ---------------------------------------------------------------------------------------------------------------------
# Full attention: every position keeps its KV until the request ends.


class FullAttentionManager(SingleTypeManager):
    """A prefix hit is any leading run of cached blocks."""

    __slots__ = ()
    spec_kind = "full_attention"

    def find_longest_cache_hit(self, peers: Sequence[SingleTypeManager], query: PrefixQuery) -> list[list[int]]:
        hashes, limit = query.hashes, query.max_length // self.block_size
        known = hashes if len(hashes) <= limit else hashes[:limit]
        hits: list[list[int]] = [[] for _ in peers]
        for block_hash in known:
            found = self._lookup(peers, block_hash)
            if found is None:
                break
            for blocks, block in zip(hits, found, strict=True):
                blocks.append(block)
        length = len(hits[0])
        if query.drop_last and length:
            length -= 1
        for blocks in hits:
            del blocks[length:]
        if self.block_size != query.alignment:
            align_down(hits, self.block_size, query.alignment)
        return hits

    def note_prompt_tail(self, slot: int, num_hashes: int, most: int, num_tokens: int) -> None:
        """Note that the block in which the last hash within ``most`` tokens of a prompt ends is cached up to there;
        computed are ``num_tokens``, and there are ``num_hashes`` so far.

        A whole block has its hash, and is published, unless that covers a token which is not known yet.
        """
        unit = self.block_size // self.hash_stride
        end = min(most // unit, num_hashes) * unit
        at = end // self.block_size
        if end % self.block_size and end <= num_tokens and at < len(self.held[slot]):
            self.pool.note_prompt_tail(self.held[slot][at], end)

    def num_common_prefix_blocks(self, slot: int) -> int:
        everyone, holders = len(self.held), self.pool.holders
        return len(list(takewhile(lambda block: holders[block] == everyone, self.held[slot])))


# ---------------------------------------------------------------------------------------------------------------------
# Blocks that are taken once, with a request's first tokens: they are its own, never hashed and never shared, and no
# later token needs another.

_UNBOUNDED = 1 << 62
"""Positions that fit: none needs a further block."""


class OwnBlocksManager(SingleTypeManager):
    """What such groups share; none of them is looked up for hits."""

    __slots__ = ()

    def capacity(self, slot: int) -> int:
        return _UNBOUNDED


class CrossAttentionManager(OwnBlocksManager):
    """Blocks for the tokens of an encoder, whose output the decoder layers read."""

    __slots__ = ()
    spec_kind = "cross_attention"

    def num_positions(self, extent: Extent) -> int:
        return extent.num_encoder_tokens


# ---------------------------------------------------------------------------------------------------------------------
# Attention types that forget: sliding window and chunked local attention.
#
#     sliding window 4, 7 computed      tokens  0 1 2 3 [4 5 6 (7)]     4 skipped
#     chunks of 8, 13 computed          tokens  0 ... 7 [8 ... 12 (13)]  8 skipped


class _WindowedManager(SingleTypeManager):
    """Common part: how much a request can hold at once."""

    __slots__ = ("_max_admission_blocks", "_most_held", "num_beyond", "window")

    def __init__(self, blocks: GroupBlocks, window: int, longest: int, most_held: int, *, num_beyond: int = 0) -> None:
        super().__init__(blocks)
        self.num_beyond = num_beyond
        """Blocks beyond a position that a hit there has to find, to drop them: one with an EAGLE head, or none."""
        self.window = window
        """Tokens of the window, or of a chunk."""
        self._max_admission_blocks = longest
        self._most_held = most_held
        """As ``longest``, with lookahead: admission leaves it out, as in vLLM, but a step takes blocks for it."""

    @property
    def max_admission_blocks(self) -> int:
        return self._max_admission_blocks

    def most_held(self, num_tokens: int, *, at_once: bool) -> int:
        return min(-(-num_tokens // self.block_size), self._most_held)


class SlidingWindowManager(_WindowedManager):
    """Each token attends to itself and the ``window - 1`` tokens before it."""

    __slots__ = ()
    spec_kind = "sliding_window"

    @property
    def sliding_window(self) -> int:
        return self.window

    @staticmethod
    def longest(window: int, block_size: int, max_num_batched_tokens: int, max_model_len: int) -> int:
        """Most blocks held at once: the window and one step's tokens, not starting at a block's beginning."""
        return -(-min(window - 1 + max_num_batched_tokens, max_model_len) // block_size) + 1

    def num_skipped_tokens(self, num_computed: int) -> int:
        return max(0, num_computed - self.window + 1)

    def next_skip(self, num_computed: int) -> int:
        return (self.num_skipped_blocks(num_computed) + 1) * self.block_size + self.window - 1

    @property
    def _blocks_per_window(self) -> int:
        """Blocks that the tokens before the next one occupy within its window."""
        return -(-(self.window - 1) // self.block_size)

    def find_longest_cache_hit(self, peers: Sequence[SingleTypeManager], query: PrefixQuery) -> list[list[int]]:
        """From the right: the first stretch of cached blocks as long as the window; what lies before it is skipped.

        Without such a stretch a leading run is a hit, however short. Drafts need one block more, which is then dropped.
        """
        hashes, max_length, drop_last, alignment = query.hashes, query.max_length, query.drop_last, query.alignment
        wanted = self._blocks_per_window + drop_last
        size, limit = self.block_size, min(max_length // self.block_size, len(hashes))
        hits = [[NULL_BLOCK] * limit for _ in peers]
        run, end = 0, -1
        for i in range(limit - 1, -1, -1):
            found = self._lookup(peers, hashes[i])
            if found is None:
                run = 0
                continue
            if run == 0 and (i if drop_last else i + 1) * size % alignment:
                continue
            for blocks, block in zip(hits, found, strict=True):
                blocks[i] = block
            run += 1
            if run >= wanted:
                end = i + run
                break
        for blocks in hits:
            del blocks[end if end >= 0 else run :]
        if end < 0:
            align_down(hits, size, alignment)
        if drop_last and hits[0]:
            for blocks in hits:
                blocks.pop()
            align_down(hits, size, alignment)
        return hits

    def publishable(
        self, start: int, stop: int, alignment: int, reachable: Reachable | None = None
    ) -> list[bool] | None:
        """The blocks of a window before each position that a hit can end at."""
        size, beyond = self.block_size, self.num_beyond
        tail = self._blocks_per_window + beyond
        interval = alignment if reachable is None else reachable.interval
        per_segment = interval // size
        if per_segment and tail >= per_segment:
            return None
        mask = [
            per_segment > 0 and i >= beyond and (i - beyond) % per_segment >= per_segment - tail
            for i in range(start, stop)
        ]
        for boundary in reachable.boundaries if reachable is not None else ():
            end = boundary // alignment * alignment // size + beyond
            for i in range(max(start, end - tail), min(stop, end)):
                mask[i - start] = True
        return mask


class ChunkedLocalManager(_WindowedManager):
    """Each token attends to the tokens before it in its own chunk."""

    __slots__ = ()
    spec_kind = "chunked_local_attention"

    @staticmethod
    def longest(window: int, block_size: int, max_num_batched_tokens: int, max_model_len: int) -> int:
        """Most blocks held at once: a chunk and one step's tokens."""
        return -(-min(window + max_num_batched_tokens, max_model_len) // block_size)

    def num_skipped_tokens(self, num_computed: int) -> int:
        return num_computed // self.window * self.window

    def next_skip(self, num_computed: int) -> int:
        return (num_computed // self.window + 1) * self.window

    def find_longest_cache_hit(self, peers: Sequence[SingleTypeManager], query: PrefixQuery) -> list[list[int]]:
        """Blocks before the last chunk count as computed (null); within it a leading run of cached blocks."""
        assert not query.drop_last, "EAGLE drafts are not served with chunked local attention"
        assert query.alignment == self.block_size, "chunked local attention needs groups of one block size"
        first = self.num_skipped_blocks(query.max_length)
        hits = [[NULL_BLOCK] * first for _ in peers]
        for block_hash in query.hashes[first : query.max_length // self.block_size]:
            found = self._lookup(peers, block_hash)
            if found is None:
                break
            for blocks, block in zip(hits, found, strict=True):
                blocks.append(block)
        return hits
