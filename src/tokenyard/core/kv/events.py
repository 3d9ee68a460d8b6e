"""KV events: what enters and leaves the prefix index, for routers that send a request where its prefix is.

The records have vLLM's wire format (MessagePack arrays whose first element names the kind), so its consumers can read
them. In one step all removals come before all stores; content that is evicted from one block and stored in another in
the same step ends as stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tokenyard.core.kv.block_pool import PoolListener
from tokenyard.core.request import BlockHash, Request

MEDIUM_GPU = "GPU"
_LOW_64 = (1 << 64) - 1


class BlockStored(msgspec.Struct, array_like=True, omit_defaults=True, tag=True, frozen=True):
    """Full blocks of one request can be found by their hashes."""

    block_hashes: list[int]
    parent_block_hash: int | None
    """Hash of the block before the first; None at the beginning of a sequence."""
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    """Always None: adapters are known by name."""
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[str, ...] | None] | None = None
    """Not given: they are part of the hashes."""
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    """Attention type of the group, in vLLM's words."""
    kv_cache_spec_sliding_window: int | None = None
    """Tokens of its sliding window."""


class BlockRemoved(msgspec.Struct, array_like=True, omit_defaults=True, tag=True, frozen=True):
    """Blocks were evicted."""

    block_hashes: list[int]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, array_like=True, omit_defaults=True, tag=True, frozen=True):
    """The prefix cache was reset."""


KVEvent = BlockStored | BlockRemoved | AllBlocksCleared


class KVEventBatch(msgspec.Struct, array_like=True, omit_defaults=True):
    """The events of one step."""

    ts: float
    """Seconds on the scheduler's clock."""
    events: list[KVEvent]
    data_parallel_rank: int | None = None


def short_hash(block_hash: BlockHash) -> int:
    """The low 64 bits of a hash, which is what travels."""
    number = block_hash if isinstance(block_hash, int) else int.from_bytes(block_hash, "big")
    return number & _LOW_64


class StoredIn(NamedTuple):
    """Which blocks of a request were published, ``start..stop-1``, and in which KV-cache group."""

    start: int
    stop: int
    block_size: int
    hash_stride: int = 1
    group_id: int = 0
    spec_kind: str = "full_attention"
    sliding_window: int | None = None


class EventLog(PoolListener):
    """Collects events until they are taken."""

    def __init__(self) -> None:
        self._events: list[KVEvent] = []

    def take(self) -> list[KVEvent]:
        """Events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def block_evicted(self, block_hash: bytes, group_id: int, block: int) -> None:
        self.block_forgotten(block_hash, group_id)

    def block_forgotten(self, block_hash: bytes, group_id: int) -> None:
        self._events.append(BlockRemoved([short_hash(block_hash)], MEDIUM_GPU, group_id))

    def all_forgotten(self) -> None:
        self._events.append(AllBlocksCleared())

    def stored(self, request: Request, kept: Iterable[int], place: StoredIn) -> None:
        """Blocks of a request have just been published, by their numbers in its order, from ``place.start`` on."""
        numbers = list(kept)
        hashes, size, stride = request.block_hashes, place.block_size, place.hash_stride
        self._events.append(
            BlockStored(
                block_hashes=[short_hash(hashes[(i + 1) * stride - 1]) for i in numbers],
                parent_block_hash=short_hash(hashes[place.start * stride - 1]) if place.start else None,
                token_ids=request.token_slice(place.start * size, place.stop * size).tolist(),
                block_size=size,
                lora_id=None,
                medium=MEDIUM_GPU,
                lora_name=request.lora_name,
                group_idx=place.group_id,
                kv_cache_spec_kind=place.spec_kind,
                kv_cache_spec_sliding_window=place.sliding_window,
            )
        )
