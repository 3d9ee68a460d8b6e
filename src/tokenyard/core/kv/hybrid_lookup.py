"""The longest prefix hit of a model whose layers differ: it must serve every attention type.

Each type accepts a candidate length or shortens it; all are asked again until none shortens it any more, which ends
because lengths only shrink.

    candidate     [ 96 tokens ....................... ]
    full          [ 80 .................. ]              matched from the left: it stays matched for any shorter length
    window        [ 64 ........... ]                     matched from the right: asked again for what the others accept
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tokenyard.core.kv.allocation import ComputedBlocks
from tokenyard.core.kv.groups import FullAttentionManager, PrefixQuery, SingleTypeManager
from tokenyard.core.kv.mamba import MambaManager
from tokenyard.core.profiles import DecisionProfile
from tokenyard.core.request import BlockHash, Request


class AttentionType(msgspec.Struct, frozen=True):
    """Groups of one type and shape: they are looked up together."""

    managers: list[SingleTypeManager]
    drop_last_hit: bool

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.managers[0].block_size

    @property
    def is_full(self) -> bool:
        """It attends to all tokens."""
        return isinstance(self.managers[0], FullAttentionManager)

    @property
    def is_state(self) -> bool:
        """A block holds the state behind its last token."""
        return isinstance(self.managers[0], MambaManager)

    def find(self, request: Request, max_length: int, alignment: int, *, drop_last: bool) -> list[list[int]]:
        """Cached blocks of the request's longest prefix of at most ``max_length`` tokens, per group."""
        first = self.managers[0]
        hashes: Sequence[BlockHash] = request.block_hashes
        if first.hash_stride > 1:
            hashes = hashes[first.hash_stride - 1 :: first.hash_stride]
        return first.find_longest_cache_hit(self.managers, PrefixQuery(hashes, max_length, drop_last, alignment))


class HybridLookup:
    """Lookups in the groups of one model."""

    __slots__ = (
        "alignment",
        "hash_block_size",
        "is_of_one_type",
        "num_groups",
        "one_pass",
        "peeks_all_hashed",
        "peeks_beyond_states",
        "types",
    )

    def __init__(
        self,
        types: Sequence[AttentionType],
        num_groups: int,
        alignment: int,
        hash_block_size: int,
        profile: DecisionProfile,
    ) -> None:
        """Types of full attention come first: their left-to-right scan gives the tightest bound to begin with."""
        self.types = types
        self.is_of_one_type = len(types) == 1 and len(types[0].managers) == num_groups
        """All groups are alike: what one finds, all have."""
        self.num_groups = num_groups
        """KV-cache groups of the model, also those that share no prefixes."""
        self.alignment = alignment
        """A hit is a multiple of so many tokens."""
        self.hash_block_size = hash_block_size
        """Tokens per hash of a request."""
        self.peeks_all_hashed = profile.eagle_peeks_all_hashed
        self.peeks_beyond_states = profile.eagle_peeks_beyond_states
        self.one_pass = len(types) == 2 and types[0].is_full
        """What the second type accepts, the first one has matched."""

    def longest_hit(self, request: Request, max_length: int) -> ComputedBlocks:
        """The longest prefix of at most ``max_length`` tokens that every type accepts."""
        if self.is_of_one_type:
            kind = self.types[0]
            hits = kind.find(request, max_length, kind.block_size, drop_last=kind.drop_last_hit)
            return ComputedBlocks(tuple(hits), len(hits[0]) * kind.block_size)
        search = _Search(self, request, max_length)
        while search.shortens():
            if self.one_pass:
                break
        return search.hit()


class _Search:
    """One lookup: the candidate length, and what each type has found for it."""

    __slots__ = ("_dropped", "_found", "_length", "_longest", "_lookup", "_max_length", "_request")

    def __init__(self, lookup: HybridLookup, request: Request, max_length: int) -> None:
        self._lookup = lookup
        self._request = request
        self._max_length = max_length
        self._length = max_length
        """The candidate, in tokens."""
        self._longest = 0
        """The longest prefix that a type has found."""
        self._found: dict[int, list[list[int]]] = {}
        """Place of a type -> its blocks, per group."""
        self._dropped: set[int] = set()
        """Types that have dropped their last matched block: they do so once for a length."""

    def shortens(self) -> bool:
        """Ask each type in turn; whether one of them made the candidate shorter."""
        length = self._length
        for place, kind in enumerate(self._lookup.types):
            if kind.is_full and place in self._found:
                length = length // kind.block_size * kind.block_size
            else:
                length = self._accepted(place, kind, length)
                self._longest = max(self._longest, length)
        is_shorter = length < self._length
        self._length = min(length, self._length)
        return is_shorter

    def _accepted(self, place: int, kind: AttentionType, length: int) -> int:
        """How many of ``length`` tokens the type accepts."""
        drop_last = kind.drop_last_hit and place not in self._dropped
        reach = self._reach(kind, length) if drop_last else length
        blocks = self._found[place] = kind.find(self._request, reach, self._lookup.alignment, drop_last=drop_last)
        accepted = len(blocks[0]) * kind.block_size
        if drop_last:
            self._dropped.add(place)
        elif accepted < length:
            self._dropped.clear()
        return accepted

    def _reach(self, kind: AttentionType, length: int) -> int:
        """How far the type looks that is to drop a block and still accept ``length``: one block further."""
        lookup = self._lookup
        if kind.is_state and not lookup.peeks_beyond_states:
            return length
        hashed = len(self._request.block_hashes) * lookup.hash_block_size
        return min(length + kind.block_size, hashed if lookup.peeks_all_hashed else self._max_length)

    def hit(self) -> ComputedBlocks:
        """What was found, up to the length that every type accepts."""
        hits: list[list[int]] = [[] for _ in range(self._lookup.num_groups)]
        for place, kind in enumerate(self._lookup.types):
            for manager, blocks in zip(kind.managers, self._found[place], strict=True):
                hits[manager.group_id] = blocks[: self._length // kind.block_size] if kind.is_full else blocks
        return ComputedBlocks(tuple(hits), self._length, self._longest if self._longest > self._length else 0)
