"""How vLLM makes groups of layers: all layers of a group share a block table, all groups share one pool.

all layers alike                one group
all of one type, sizes differ   one group; a block is as large as all its layers' pages together
several types                   pages are made equal (longer blocks, or padding), and every type is cut into groups
                                of as many layers as the smallest type has
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tokenyard.config import GroupKind
from tokenyard.errors import ConfigError
from tokenyard.kv.sizing.layer_cache import LayerCache, with_block_size

__all__ = ["LayerGroup", "group_layers"]

LARGER_GROUPS_BELOW = 1.5
"""If the largest type has fewer times the layers of the smallest, groups are as large as it is: less padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that share a block table."""

    layers: tuple[LayerCache, ...]
    places: tuple[int, ...]
    """Of each among the caches that were grouped, as ``layer_caches`` lists them."""

    @property
    def first(self) -> LayerCache:
        return self.layers[0]

    @property
    def bytes_per_block(self) -> int:
        """Of all layers of the group."""
        return sum(layer.page_bytes for layer in self.layers)


def group_layers(caches: Sequence[LayerCache]) -> list[LayerGroup]:
    """Groups in vLLM's order. Raises ConfigError if pages cannot be made equal."""
    if not caches:
        return []
    if _of_one_type(caches):
        return [LayerGroup(layers=tuple(caches), places=tuple(range(len(caches))))]
    types: dict[LayerCache, list[int]] = {}
    for place, cache in enumerate(_with_equal_pages(caches)):
        types.setdefault(cache, []).append(place)
    counts = [len(places) for places in types.values()]
    size = max(counts) if max(counts) < min(counts) * LARGER_GROUPS_BELOW else min(counts)
    groups = []
    for cache, places in types.items():
        number = -(-len(places) // size)
        dealt = [tuple(places[i::number]) for i in range(number)]
        groups += [LayerGroup(layers=(cache,) * len(each), places=each) for each in dealt]
    return groups


def _of_one_type(caches: Sequence[LayerCache]) -> bool:
    """Whether all layers always need the same number of blocks."""
    first = caches[0]
    if any(cache.block_size != first.block_size or cache.kind is not first.kind for cache in caches):
        return False
    if first.kind is GroupKind.MAMBA:
        return len({(cache.blocks_kept, cache.page_bytes) for cache in caches}) == 1
    return len({cache.window for cache in caches}) == 1


def _with_equal_pages(caches: Sequence[LayerCache]) -> list[LayerCache]:
    """Every page as large as the largest: more tokens per block where that comes out even, else padding."""
    largest = max(cache.page_bytes for cache in caches)
    return [cache if cache.page_bytes == largest else _with_page(cache, largest) for cache in caches]


def _with_page(cache: LayerCache, page_bytes: int) -> LayerCache:
    if cache.kind is not GroupKind.MAMBA:
        if page_bytes % cache.page_bytes == 0:
            return with_block_size(cache, page_bytes // cache.page_bytes)
        if cache.is_latent:
            fix = "vLLM cannot make its latent pages as large as the other layers': use another block_size"
            raise ConfigError("block_size", cache.block_size, fix)
    return replace(cache, page_bytes=page_bytes)
