"""The KV cache as vLLM plans it: groups of layers, blocks, and the capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import lcm
from typing import Any

import msgspec

from tokenyard.core.config import MAX_BLOCKS, CacheConfig, GroupKind, KVCacheGroup, MambaCacheMode, require_int
from tokenyard.errors import ConfigError
from tokenyard.memory.layer_caches import CacheSettings, LayerCache, layer_caches, with_block_size
from tokenyard.models.spec import ModelSpec, pipeline_stages
from tokenyard.quick_dataclass import dataclass
from tokenyard.units import GIB

# ---------------------------------------------------------------------------------------------------------------------
# How vLLM makes groups of layers: all layers of a group share a block table, all groups share one pool.
#
# all layers alike                one group
# all of one type, sizes differ   one group; a block is as large as all its layers' pages together
# several types                   pages are made equal (longer blocks, or padding), and every type is cut into groups
#                                 of as many layers as the smallest type has
# packed (DeepSeek V4, rings)     pages stay as they are; types whose layers repeat are cut so that groups are alike,
#                                 and states so that none of their groups widens the block

LARGER_GROUPS_BELOW = 1.5
"""If the largest type has fewer times the layers of the smallest, groups are as large as it is: less padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that share a block table."""

    layers: tuple[LayerCache, ...]
    places: tuple[int, ...]
    """The place of each among the caches that were grouped, as ``layer_caches`` lists them."""

    @property
    def first(self) -> LayerCache:
        return self.layers[0]

    @property
    def bytes_per_block(self) -> int:
        """Bytes of a block in all layers of the group."""
        return sum(layer.page_bytes for layer in self.layers)


def group_layers(caches: Sequence[LayerCache]) -> list[LayerGroup]:
    """Groups in vLLM's order. Raises ConfigError if pages cannot be made equal."""
    if not caches:
        return []
    if _of_one_type(caches):
        return [LayerGroup(layers=tuple(caches), places=tuple(range(len(caches))))]
    if all(cache.packed for cache in caches):
        return _packed_groups(caches)
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


class _Type(msgspec.Struct, frozen=True):
    """Layers that may share a block table whatever their pages are."""

    kind: GroupKind
    window: int
    block_size: int
    state: object
    """What keeps it; None where it is no state."""


def _packed_groups(caches: Sequence[LayerCache]) -> list[LayerGroup]:
    """Groups by kind, window and block size; those with as many layers of every page are cut to cover as many layers
    each.
    """
    types: dict[_Type, dict[int, list[int]]] = {}
    for place, cache in enumerate(caches):
        state = cache.shape[0] if cache.kind is GroupKind.MAMBA else None
        which = _Type(cache.kind, cache.window, cache.block_size, state)
        types.setdefault(which, {}).setdefault(cache.page_bytes, []).append(place)
    repeats = {each: len(max(pages.values(), key=len)) for each, pages in types.items()}
    balanced = [each for each, pages in types.items() if len({len(places) for places in pages.values()}) == 1]
    least = max((repeats[each] for each in balanced if len(types[each]) > 1), default=0)
    size = _least_padding([repeats[each] for each in balanced], least) if least else 0
    numbers = {each: -(-repeats[each] // size) if size and each in balanced else 1 for each in types}
    # windows too can be cut to any number of layers, unless a pattern of pages says how many
    free = _ONE_PER_REQUEST if size else (*_ONE_PER_REQUEST, GroupKind.SLIDING_WINDOW)
    for each in types:
        if each.kind in free:
            numbers[each] = max(numbers[each], _groups_that_widen_nothing(each, types, numbers, free))
    groups = []
    for each, pages in types.items():
        number = numbers[each]
        dealt = [sorted(place for places in pages.values() for place in places[i::number]) for i in range(number)]
        groups += [LayerGroup(layers=tuple(caches[i] for i in places), places=tuple(places)) for places in dealt]
    return groups


_ONE_PER_REQUEST = (GroupKind.MAMBA, GroupKind.CIRCULAR_BUFFER)
"""Kinds whose layers can go into groups of any size: a block holds the states of as many as it has room for."""


def _groups_that_widen_nothing(
    which: _Type,
    types: dict[_Type, dict[int, list[int]]],
    numbers: dict[_Type, int],
    free: Sequence[GroupKind],
) -> int:
    """Fewest groups of these states that all fit a block of the others."""
    widest = 0
    for each, pages in types.items():
        number = sum(map(len, pages.values())) if each.kind in free else numbers[each]
        widest = max(widest, sum(-(-len(places) // number) * page for page, places in pages.items()))
    page = next(iter(types[which]))
    return -(-sum(map(len, types[which].values())) // max(widest // page, 1))


def _least_padding(counts: Sequence[int], least: int) -> int:
    """The size, from ``least``, by which these counts are rounded up least; the largest of equals."""
    return min(range(least, max(least, *counts) + 1), key=lambda size: (sum(-n % size for n in counts), -size))


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
            fix = "vLLM cannot make its latent pages as large as the other layers': use another §block_size"
            raise ConfigError("block_size", cache.block_size, fix)
    return replace(cache, page_bytes=page_bytes)


# ---------------------------------------------------------------------------------------------------------------------
# The KV cache as vLLM plans it: groups, blocks, and the capacity that its log names.
#
# "GPU KV cache size: N tokens" is the number of requests of ``max_model_len`` that fit, times ``max_model_len``.
# Where layers forget (windows, chunks, states), shorter requests find room for fewer tokens than that.


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCachePlan:
    """What vLLM makes of the memory of every GPU."""

    groups: tuple[LayerGroup, ...]
    num_blocks: int
    """Blocks of the pool, the null block included."""
    bytes_per_block: int
    """Bytes of a block on the GPU with the most layers."""
    blocks_per_request: int
    """Blocks that a request of ``max_model_len`` tokens takes, over all groups."""
    block_size: int
    """Tokens per block of the attention layers: ``--block-size`` as vLLM ends up with it."""
    max_model_len: int
    kv_cache_dtype: str
    mamba_cache_mode: MambaCacheMode
    enable_prefix_caching: bool
    max_num_encoder_input_tokens: int
    """Embeddings reserved per request that reads an encoder's output; 0 where none does."""
    longest: int
    """Most tokens of one request that fits, up to ``max_model_len``: vLLM's "estimated maximum model length"."""

    @property
    def max_concurrency(self) -> float:
        """Requests of ``max_model_len`` tokens that fit."""
        return self.num_blocks / self.blocks_per_request if self.blocks_per_request else 0.0

    @property
    def num_tokens(self) -> int:
        """Size of the KV cache in tokens, as vLLM logs it."""
        return int(self.max_concurrency * self.max_model_len)

    @property
    def cache_groups(self) -> tuple[KVCacheGroup, ...]:
        """The groups as :class:`tokenyard.CacheConfig` takes them."""
        return tuple(
            KVCacheGroup(
                kind=group.first.kind,
                block_size=0 if group.first.block_size == self.block_size else group.first.block_size,
                window=group.first.window,
            )
            for group in self.groups
        )

    def cache_config(self, **settings: Any) -> CacheConfig:
        """A CacheConfig of these groups and blocks; ``settings`` are its other fields.

        Raises ConfigError for a model that keeps nothing of a prompt: it generates no text that could be replayed.
        """
        if not self.groups:
            fix = "keeps no KV cache: it makes vectors or scores of prompts, and a replay generates text"
            raise ConfigError("model", "a model that pools", fix)
        own = {
            "num_gpu_blocks": self.num_blocks,
            "block_size": self.block_size,
            "groups": self.cache_groups,
            "enable_prefix_caching": self.enable_prefix_caching,
            "mamba_cache_mode": self.mamba_cache_mode,
        }
        return CacheConfig(**{**settings, **own})


def plan_kv_cache(
    model: ModelSpec,
    *,
    available_bytes: int | None = None,
    num_gpu_blocks: int | None = None,
    pipeline_parallel_size: int = 1,
    must_start: bool = True,
    **settings: Any,
) -> KVCachePlan:
    """Plan the KV cache of every GPU of a pipeline- and tensor-parallel group.

    ``available_bytes`` is what vLLM logs as "Available KV cache memory", per GPU (``--kv-cache-memory-bytes``), or else
    ``num_gpu_blocks`` says how many blocks there are. Other keywords are the fields of
    :class:`~tokenyard.memory.layer_caches.CacheSettings`; ``max_model_len`` is the model's where none is given.

    Raises ConfigError for a setting that cannot work and, unless ``must_start`` is False, if vLLM would not start: a
    request of ``max_model_len`` does not fit; the message says how long one that fits could be.
    """
    chosen = _settings(model, settings | {"pipeline_parallel_size": pipeline_parallel_size})
    stages = pipeline_stages(model.num_layers, pipeline_parallel_size)
    groups = group_layers(layer_caches(model, chosen))
    bytes_per_block = max(_stage_bytes(model, chosen, groups, stages), 1)
    alignment = lcm(*(layer.alignment for group in groups for layer in group.layers))
    bytes_per_block = -(-bytes_per_block // alignment) * alignment
    if num_gpu_blocks is not None:
        require_int("num_gpu_blocks_override", num_gpu_blocks, 2, MAX_BLOCKS)
        available_bytes = num_gpu_blocks * bytes_per_block
    elif available_bytes is None or available_bytes <= 0:
        fix = "leaves no memory for the KV cache: raise §gpu_memory_utilization, or use more or larger GPUs"
        raise ConfigError("kv_cache_memory_bytes", available_bytes, fix)
    if must_start:
        more = "use more or larger GPUs" if num_gpu_blocks is None else "raise §num_gpu_blocks_override"
        _check_fits(chosen, groups, bytes_per_block, available_bytes, more)
    per_request = _blocks_per_request(chosen, groups, chosen.max_model_len)
    attention = [group.first.block_size for group in groups if _sets_block_size(group.first)]
    return KVCachePlan(
        groups=tuple(groups),
        num_blocks=available_bytes // bytes_per_block if groups else 1,
        bytes_per_block=bytes_per_block,
        blocks_per_request=per_request,
        block_size=min(attention, default=chosen.block_size or 16),
        max_model_len=chosen.max_model_len,
        kv_cache_dtype=chosen.cache_dtype(model),
        mamba_cache_mode=chosen.mamba_cache_mode(model),
        enable_prefix_caching=chosen.enable_prefix_caching,
        max_num_encoder_input_tokens=chosen.max_num_encoder_input_tokens,
        longest=_longest(chosen, groups, bytes_per_block, available_bytes),
    )


def _sets_block_size(cache: LayerCache) -> bool:
    """Whether ``--block-size`` is about it: not about states and rings, nor about windows packed beside others."""
    return cache.kind not in _ONE_PER_REQUEST and not (cache.packed and cache.window)


def _settings(model: ModelSpec, given: dict[str, Any]) -> CacheSettings:
    known = {"max_model_len": model.max_model_len} | {name: value for name, value in given.items() if value is not None}
    if model.max_encoder_tokens:
        known["enable_prefix_caching"] = False
    chosen = CacheSettings(**known)
    if model.max_encoder_tokens and not chosen.max_num_encoder_input_tokens:
        budget = max(chosen.max_num_batched_tokens, model.max_encoder_tokens)
        return replace(chosen, max_num_encoder_input_tokens=budget)
    return chosen


def _stage_bytes(
    model: ModelSpec, settings: CacheSettings, groups: Sequence[LayerGroup], stages: Sequence[range]
) -> int:
    """Bytes of a block on the GPU that has the most of it.

    A stage of a pipeline holds a part of every group's layers.
    """
    if len(stages) == 1:
        return max((group.bytes_per_block for group in groups), default=0)
    most = 0
    for stage in stages:
        part = replace(model, layers=tuple(model.layers[i] for i in stage))
        count = len(layer_caches(part, settings))
        total = sum(len(group.layers) for group in groups)
        most = max(most, *(-(-group.bytes_per_block * count // total) for group in groups))
    return most


def _blocks_per_request(settings: CacheSettings, groups: Sequence[LayerGroup], max_model_len: int) -> int:
    return sum(group.first.blocks_per_request(settings, max_model_len) for group in groups)


def _bytes_needed(
    settings: CacheSettings, groups: Sequence[LayerGroup], bytes_per_block: int, max_model_len: int
) -> int:
    null_block = settings.facts.plan_reserves_null_block
    return bytes_per_block * (_blocks_per_request(settings, groups, max_model_len) + null_block)


def _check_fits(
    settings: CacheSettings, groups: Sequence[LayerGroup], bytes_per_block: int, available_bytes: int, more: str
) -> None:
    """Raise ConfigError, with vLLM's estimate of a length that fits, unless one request does; ``more`` is a fix."""
    needed = _bytes_needed(settings, groups, bytes_per_block, settings.max_model_len)
    if needed <= available_bytes:
        return
    low = _longest(settings, groups, bytes_per_block, available_bytes)
    fix = (
        f"a request of so many tokens needs {_gib(needed)} GiB of KV cache, and {_gib(available_bytes)} GiB are there: "
    )
    fix += f"give at most {low}, or {more}" if low else f"not even one token fits, {more}"
    raise ConfigError("max_model_len", settings.max_model_len, fix, code="too_long", details={"longest": low})


def _longest(settings: CacheSettings, groups: Sequence[LayerGroup], bytes_per_block: int, available_bytes: int) -> int:
    """Tokens of the longest request that fits, up to ``max_model_len``; 0 if not even one does."""
    low, high = 0, settings.max_model_len
    while low < high:
        middle = (low + high + 1) // 2
        if _bytes_needed(settings, groups, bytes_per_block, middle) <= available_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f}"
