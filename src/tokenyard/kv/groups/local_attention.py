"""Attention types that forget: sliding window and chunked local attention.

sliding window 4, 7 computed      tokens  0 1 2 3 [4 5 6 (7)]     4 skipped
chunks of 8, 13 computed          tokens  0 ... 7 [8 ... 12 (13)]  8 skipped
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.kv.blocks.pool import NULL_BLOCK, BlockPool
from tokenyard.kv.groups.retention import Reachable
from tokenyard.kv.groups.single_type import SingleTypeManager, align_down

__all__ = ["ChunkedLocalManager", "SlidingWindowManager"]


class _WindowedManager(SingleTypeManager):
    """Common part: how much a request can hold at once."""

    __slots__ = ("_max_admission_blocks", "_most_held", "window")

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        group_id: int,
        hash_stride: int,
        window: int,
        longest: int,
        most_held: int,
    ) -> None:
        super().__init__(pool, block_size, group_id, hash_stride)
        self.window = window
        """Tokens of the window, or of a chunk."""
        self._max_admission_blocks = longest
        self._most_held = most_held
        """As ``longest``, with lookahead slots: admission leaves them out, as in vLLM, but a step takes them."""

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

    def find_longest_cache_hit(
        self,
        peers: Sequence[SingleTypeManager],
        hashes: Sequence[bytes],
        max_length: int,
        *,
        drop_last: bool,
        alignment: int,
    ) -> list[list[int]]:
        """From the right: the first stretch of cached blocks as long as the window; what lies before it is skipped.

        Without such a stretch a leading run is a hit, however short. Drafts need one block more, which is then dropped.
        """
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
        size, tail = self.block_size, self._blocks_per_window
        interval = alignment if reachable is None else reachable.interval
        per_segment = interval // size
        if per_segment and tail >= per_segment:
            return None
        mask = [per_segment > 0 and i % per_segment >= per_segment - tail for i in range(start, stop)]
        for boundary in reachable.boundaries if reachable is not None else ():
            end = boundary // alignment * alignment // size
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

    def find_longest_cache_hit(
        self,
        peers: Sequence[SingleTypeManager],
        hashes: Sequence[bytes],
        max_length: int,
        *,
        drop_last: bool,
        alignment: int,
    ) -> list[list[int]]:
        """Blocks before the last chunk count as computed (null); within it a leading run of cached blocks."""
        assert not drop_last, "EAGLE drafts are not served with chunked local attention"
        assert alignment == self.block_size, "chunked local attention needs groups of one block size"
        first = self.num_skipped_blocks(max_length)
        hits = [[NULL_BLOCK] * first for _ in peers]
        for block_hash in hashes[first : max_length // self.block_size]:
            found = self._lookup(peers, block_hash)
            if found is None:
                break
            for blocks, block in zip(hits, found, strict=True):
                blocks.append(block)
        return hits
