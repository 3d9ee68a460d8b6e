"""Mamba and other layers with a recurrent state: a block holds the state after its last token, not KV of every token.

Only the state of the last computed token is ever read, so a request forgets all blocks before it; a prefix hit is one
block, however long the prefix.

    all, none   [ null | null | s2 | s3 ]            every block is filled on the way
    align       [ null | null | null | s3 | d d ]    a step fills the block it ends in; draft states follow it

Drafts have states of their own: ``num_speculative_blocks`` blocks behind the one in use. In mode ``align`` they move on
with it, and positions that a step jumps over get the null block.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.core.kv.block_pool import NULL_BLOCK
from tokenyard.core.kv.groups import Extent, GroupBlocks, Need, PrefixQuery, Reachable, SingleTypeManager
from tokenyard.core.profiles import OLDEST, DecisionProfile
from tokenyard.core.request import BlockHash


class MambaManager(SingleTypeManager):
    """Modes ``all`` and ``none``: a place for every position, and for the drafts."""

    __slots__ = ("_longest", "_written", "num_kept_for_drafts", "num_speculative_blocks")
    spec_kind = "mamba"

    def __init__(
        self,
        blocks: GroupBlocks,
        num_speculative_blocks: int,
        max_step_tokens: int,
        *,
        profile: DecisionProfile = OLDEST,
    ) -> None:
        super().__init__(blocks)
        block_size = self.block_size
        self.num_speculative_blocks = num_speculative_blocks
        """Blocks kept for the states of drafts."""
        # Later versions tell only tokens that surely count to drop_skipped.
        self.num_kept_for_drafts = 0 if profile.windows_free_processed_only else num_speculative_blocks
        """Tokens that may turn out wrong, so that an earlier state is read again."""
        self._longest = -(-(num_speculative_blocks + max_step_tokens) // block_size) + 1 + num_speculative_blocks
        """Most blocks held at once."""
        self._written: set[BlockHash] = set()
        """Hashes of the states that this step writes."""

    # ---- prefix hits

    def find_longest_cache_hit(self, peers: Sequence[SingleTypeManager], query: PrefixQuery) -> list[list[int]]:
        """The last cached state; nothing before it is needed. There is nothing to drop either."""
        size, hashes = self.block_size, query.hashes
        for i in range(min(query.max_length // size, len(hashes)) - 1, -1, -1):
            found = self._lookup(peers, hashes[i])
            if found is not None and (i + 1) * size % query.alignment == 0:
                return [[NULL_BLOCK] * i + [block] for block in found]
        return [[] for _ in peers]

    def publishable(
        self, start: int, stop: int, alignment: int, reachable: Reachable | None = None
    ) -> list[bool] | None:
        """The state at each position that a hit can end at."""
        if reachable is None:
            return None
        per_segment = reachable.interval // self.block_size
        if per_segment == 1:
            return None
        ends = {boundary // alignment * alignment // self.block_size for boundary in reachable.boundaries}
        return [i in ends or (per_segment > 0 and i % per_segment == 0) for i in range(start + 1, stop + 1)]

    def new_step_starts(self) -> None:
        """What earlier steps wrote can be read now."""
        self._written.clear()

    def is_being_written(self, hits: Sequence[int]) -> bool:
        """Whether the state that ends ``hits`` is computed in this very step: it cannot be read before the next."""
        return bool(hits) and self.pool.content[hits[-1]] in self._written

    def note_published(self, blocks: Sequence[int]) -> None:
        """Their states are written in this step, and can be read from the next one on."""
        self._written.update(key for key in map(self.pool.content.__getitem__, blocks) if key is not None)

    # ---- blocks

    def num_skipped_tokens(self, num_computed: int) -> int:
        return max(0, num_computed - 1)

    def next_skip(self, num_computed: int) -> int:
        at = max(1, num_computed - self.num_kept_for_drafts)
        return ((at - 1) // self.block_size + 1) * self.block_size + 1 + self.num_kept_for_drafts

    def drop_skipped(self, slot: int, num_computed: int) -> None:
        # With steps in flight, computed tokens may be drafts that turn out wrong: then an earlier state is read again.
        super().drop_skipped(slot, max(0, num_computed - self.num_kept_for_drafts))

    def capacity(self, slot: int) -> int:
        return (len(self.held[slot]) - self.num_speculative_blocks) * self.block_size

    def need(
        self, slot: int, num_tokens: int, hits: Sequence[int], total_computed: int, *, whole: bool = False
    ) -> Need:
        return super().need(slot, self._with_drafts(num_tokens), hits, total_computed, whole=whole)

    def num_missing(self, slot: int, num_tokens: int) -> int:
        return super().num_missing(slot, self._with_drafts(num_tokens))

    def _with_drafts(self, num_tokens: int) -> int:
        return num_tokens + self.num_speculative_blocks * self.block_size

    def most_held(self, num_tokens: int, *, at_once: bool) -> int:
        whole = super().most_held(num_tokens, at_once=at_once)
        return whole if at_once else min(whole, self._longest)


class AlignedMambaManager(MambaManager):
    """Mode ``align``: a request holds the state it reads, the one it writes and the drafts', wherever it has got to."""

    __slots__ = ("_dropped", "_read", "_started", "frees_across_gaps", "waits_again")

    def __init__(
        self,
        blocks: GroupBlocks,
        num_speculative_blocks: int,
        max_step_tokens: int,
        *,
        profile: DecisionProfile = OLDEST,
    ) -> None:
        super().__init__(blocks, num_speculative_blocks, max_step_tokens, profile=profile)
        self._read: dict[int, int] = {}
        """Slot -> position in its list of the state that the block taken last was computed from."""
        self.frees_across_gaps = profile.states_free_across_gaps
        """Blocks before a null block may still be held: steps in flight read them longer than later ones are kept."""
        self.waits_again = profile.kept_states_wait_again
        """See :meth:`write_again`."""
        self._dropped: dict[int, int] = {}
        """Slot -> leading blocks that have been looked at and dropped."""
        self._started: set[int] = set()
        """Slots that have blocks of their own, not only a hit."""

    def num_positions(self, extent: Extent) -> int:
        # Lookahead is for a draft model, which has no such layers; it would spoil the alignment.
        return extent.num_tokens_main_model

    def _num_new(self, slot: int, num_tokens: int, num_held: int) -> int:
        if -(-num_tokens // self.block_size) + self.num_speculative_blocks <= num_held:
            return 0
        return 1 if slot in self._started else 1 + self.num_speculative_blocks

    def need(
        self, slot: int, num_tokens: int, hits: Sequence[int], total_computed: int, *, whole: bool = False
    ) -> Need:
        num_held = len(self.held[slot]) if slot >= 0 else 0
        return Need(self._num_new(slot, num_tokens, num_held + len(hits)), hits)

    def num_missing(self, slot: int, num_tokens: int) -> int:
        return self._num_new(slot, num_tokens, len(self.held[slot]))

    def grow(self, slot: int, num_tokens: int) -> list[int]:
        held, drafts = self.held[slot], self.num_speculative_blocks
        before = len(held)
        if not self.num_missing(slot, num_tokens):
            return []
        started = slot in self._started
        if before:
            self._read[slot] = before - 1 - drafts * started
        at = -(-num_tokens // self.block_size) - 1
        held += [NULL_BLOCK] * (at - before)
        if started:
            for draft in range(before - drafts, min(at, before)):
                held.append(held[draft])
                held[draft] = NULL_BLOCK
        held += self.pool.take(at + 1 + drafts - len(held))
        self._started.add(slot)
        return held[before:]

    def drop_skipped(self, slot: int, num_computed: int) -> None:
        if self.frees_across_gaps:
            self._drop_all_before(slot, num_computed)
            return
        super().drop_skipped(slot, num_computed)
        read = self._read.get(slot)
        done = max(0, num_computed - self.num_kept_for_drafts)
        # Null blocks may stand between it and the block in use, where the walk above ends.
        if read is not None and read < -(-done // self.block_size) - 1:
            held = self.held[slot]
            self.pool.release((held[read],))
            held[read] = NULL_BLOCK

    def _drop_all_before(self, slot: int, num_computed: int) -> None:
        held = self.held[slot]
        stop = min(self.num_skipped_blocks(num_computed), len(held))
        dropped = []
        for i in range(stop - 1, self._dropped.get(slot, 0) - 1, -1):
            if held[i] != NULL_BLOCK:
                dropped.append(held[i])
                held[i] = NULL_BLOCK
        self._dropped[slot] = max(stop, self._dropped.get(slot, 0))
        self.pool.release(dropped)

    def last_state(self, num_prompt_tokens: int) -> int:
        """Tokens up to the last state that a repeated prompt can resume at."""
        return (num_prompt_tokens - 1) // self.block_size * self.block_size

    def write_again(self, slot: int, num_tokens: int, hashes: Sequence[BlockHash]) -> None:
        """The state after ``num_tokens`` counts as written in this step, if ``slot`` still holds it."""
        at, held = num_tokens // self.block_size - 1, self.held[slot]
        if 0 <= at < min(len(held), len(hashes)) and held[at] != NULL_BLOCK:
            self._written.add(hashes[at])

    def free(self, slot: int) -> None:
        self._dropped.pop(slot, None)
        self._read.pop(slot, None)
        self._started.discard(slot)
        super().free(slot)

    def most_held(self, num_tokens: int, *, at_once: bool) -> int:
        size, drafts = self.block_size, self.num_speculative_blocks
        return drafts + min(-(-num_tokens // size), max(2, 1 - (-(2 * drafts + 1) // size)))
