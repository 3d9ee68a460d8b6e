"""vLLM's KV-cache groups as ours."""

from __future__ import annotations

from typing import Any

from tokenyard.core.config import GroupKind, KVCacheGroup

KINDS = {
    "FullAttentionSpec": GroupKind.FULL,
    "MLAAttentionSpec": GroupKind.FULL,
    "TQFullAttentionSpec": GroupKind.FULL,
    "SlidingWindowSpec": GroupKind.SLIDING_WINDOW,
    "SlidingWindowMLASpec": GroupKind.SLIDING_WINDOW,
    "ChunkedLocalAttentionSpec": GroupKind.CHUNKED_LOCAL,
    "MambaSpec": GroupKind.MAMBA,
}
"""vLLM's class of a KV-cache spec -> ours; those that are absent have rules of their own."""


def known_group(group: Any) -> KVCacheGroup | None:
    """The group of a ``KVCacheConfig``; None if we have no rules for its kind."""
    spec = group.kv_cache_spec
    kind = KINDS.get(type(spec).__name__)
    if kind is None:
        return None
    window = getattr(spec, "sliding_window", None) if kind is GroupKind.SLIDING_WINDOW else None
    if kind is GroupKind.CHUNKED_LOCAL:
        window = spec.attention_chunk_size
    return KVCacheGroup(
        kind=kind,
        block_size=spec.block_size,
        window=window or 0,
        is_eagle=bool(getattr(group, "is_eagle_group", False)),
    )
