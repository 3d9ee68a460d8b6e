"""Cross attention: decoder layers of an encoder-decoder model read the KV of an encoder's output.

The blocks for the encoder's tokens are taken once, when the request is admitted; they are its own, never hashed and
never shared, and no decoder token adds to them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.kv.groups.single_type import SingleTypeManager

__all__ = ["CrossAttentionManager"]

_UNBOUNDED = 1 << 62
"""Decoder positions that fit: they need no place here."""


class CrossAttentionManager(SingleTypeManager):
    """As many blocks as the encoder's tokens fill."""

    __slots__ = ()
    spec_kind = "cross_attention"

    def extent(self, num_tokens: int, main: int, encoder: int) -> int:
        return encoder

    def capacity(self, slot: int) -> int:
        return _UNBOUNDED

    def find_longest_cache_hit(
        self,
        peers: Sequence[SingleTypeManager],
        hashes: Sequence[bytes],
        max_length: int,
        *,
        drop_last: bool,
        alignment: int,
    ) -> list[list[int]]:
        raise AssertionError("encoder-decoder models have no prefix cache")
