"""Full attention: every position keeps its KV until the request ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from tokenyard.kv.groups.single_type import SingleTypeManager, align_down

__all__ = ["FullAttentionManager"]


class FullAttentionManager(SingleTypeManager):
    """A prefix hit is any leading run of cached blocks."""

    __slots__ = ()
    spec_kind = "full_attention"

    def find_longest_cache_hit(
        self,
        peers: Sequence[SingleTypeManager],
        hashes: Sequence[bytes],
        max_length: int,
        *,
        drop_last: bool,
        alignment: int,
    ) -> list[list[int]]:
        limit = max_length // self.block_size
        known = hashes if len(hashes) <= limit else hashes[:limit]
        hits = [self.pool.indexes[peer.group_id].longest_prefix(known) for peer in peers]
        length = min(map(len, hits))
        if drop_last and length:
            length -= 1
        for blocks in hits:
            del blocks[length:]
        if self.block_size != alignment:
            align_down(hits, self.block_size, alignment)
        return hits

    def note_prompt_tail(self, slot: int, num_hashes: int, num_prompt: int, num_tokens: int) -> None:
        """Of the block in which the prompt's last hash ends, note that it is cached up to there; computed are
        ``num_tokens``, and there are ``num_hashes`` so far.

        A whole block has its hash, and is published, unless that covers a token which is not known yet.
        """
        unit = self.block_size // self.hash_stride
        end = min((num_prompt - 1) // unit, num_hashes) * unit
        at = end // self.block_size
        if end % self.block_size and end <= num_tokens and at < len(self.held[slot]):
            self.pool.note_prompt_tail(self.held[slot][at], end)

    def num_common_prefix_blocks(self, slot: int) -> int:
        everyone, blocks, ref = len(self.held), self.held[slot], self.pool.ref
        if not blocks or ref[blocks[0]] != everyone:  # nearly always
            return 0
        references = map(ref.__getitem__, blocks)
        return sum(1 for _ in takewhile(everyone.__eq__, references))
