"""Circular buffers: layers that keep a request's last few tokens in one block, for as long as it runs.

They hold what is still being compressed: the keys of tokens that have not become one vector yet (GLM-5 Next, Step 5,
Qwen 4). A new token takes the place of the oldest, so that one block is enough for any length. It is the request's own:
never hashed, never found by another, no part of a hit.

    block size 4, 6 computed     held  [ b7 ]     b7:  4 5 2 3     the next token takes the place of 2
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.core.kv.groups import Need, OwnBlocksManager

__all__ = ["CircularBufferManager"]


class CircularBufferManager(OwnBlocksManager):
    """One block per request, taken with its first tokens and given back with all others."""

    __slots__ = ()
    spec_kind = "circular_buffer"

    def _missing(self, slot: int) -> int:
        return 0 if slot >= 0 and self.held[slot] else 1

    def need(
        self, slot: int, num_tokens: int, hits: Sequence[int], total_computed: int, *, whole: bool = False
    ) -> Need:
        """One block for a request that has none yet."""
        return Need(self._missing(slot))

    def num_missing(self, slot: int, num_tokens: int) -> int:
        """One, until it has its block."""
        return self._missing(slot)

    def open(self, slot: int, hits: Sequence[int], total_computed: int) -> None:
        """Begin with nothing, whatever other groups have found."""
        self.held[slot] = []
        self.num_cached[slot] = 0

    def allocate_external(self, slot: int, num_tokens: int) -> None:
        """The buffer comes with the KV that a connector brings."""
        self.deal(slot, self.pool.take(self._missing(slot)))
