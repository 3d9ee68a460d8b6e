"""A refused allocation, as a value: what was needed, what there was, and which limit said no."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["KVLimit", "KVShortage"]


class KVLimit(StrEnum):
    """Which check of ``allocate_slots`` refused."""

    FULL_SEQUENCE = "full_sequence"
    """The whole sequence does not fit the free blocks (``scheduler_reserve_full_isl``, or it preempted itself)."""
    BLOCKS = "blocks"
    """This step's tokens do not fit the free blocks."""
    WATERMARK = "watermark"
    """They would fit, but for the watermark."""
    STATE_NOT_READY = "state_not_ready"
    """No shortage: the Mamba state that ends its prefix hit is written in this very step."""


class KVShortage(NamedTuple):
    """Numbers of a refusal, all in blocks."""

    limit: KVLimit
    needed: int
    """Blocks the request had to take from the free queue: new ones plus its own evictable hits."""
    free: int
    """Blocks in the free queue, evictable cached ones included."""
    cached_hits: int
    """Of ``needed``: cached blocks of this very request that lie in the free queue."""
    reserved: int = 0
    """Blocks kept for asynchronous loads in flight."""
    watermark: int = 0
    """Blocks kept free by the watermark."""
    pinned: int = 0
    """Blocks held for finished turns by a policy."""

    @property
    def missing(self) -> int:
        """Blocks short."""
        return self.needed + self.reserved + self.watermark - self.free
