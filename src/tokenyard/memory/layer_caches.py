"""What every layer keeps per block: the facts that vLLM's planner groups layers by.

full, chunk, window   block size x KV heads x (key size + value size) x element size
latent (MLA)          block size x (kv_lora_rank + rope size) x element size; an indexer adds its keys
compressed (V4)       a window, compressed vectors, an indexer's keys, and the float32 state of every compressor
cross                 as full, for the encoder's tokens
ring                  keys of tokens that are not joined yet, one block per request, beside an indexer's joined ones
state (Mamba)         the state, padded to the page of the attention layers beside it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd, lcm

from tokenyard.core.config import GroupKind, MambaCacheMode, require_int, require_limit
from tokenyard.core.profiles import NEWEST, ReleaseFacts, release_facts
from tokenyard.errors import ConfigError
from tokenyard.models.formats import KV_CACHE_DTYPES, kv_element_bytes
from tokenyard.models.mixers import (
    Attends,
    CompressedAttention,
    GatedDeltaNet,
    Indexer,
    KeyRing,
    LatentAttention,
    Mamba1,
    Mamba2,
    PagedConvolution,
    ShortConvolution,
    SoftmaxAttention,
    StateSpace,
)
from tokenyard.models.spec import ModelSpec
from tokenyard.quick_dataclass import dataclass

DEFAULT_BLOCK_SIZE = 16
SPARSE_BLOCK_SIZE = 64
"""What DeepSeek's sparse attention has: its kernels take no other."""
JOINED_KEYS_PER_BLOCK = 32
"""The fewest keys in a block that kernels take which read one key for several tokens."""
PICKED_BLOCK_SIZE = 128
"""What MiniMax M3 picks: whole blocks."""
FLASHMLA_BLOCK_SIZE = 64
"""What FlashMLA has, which reads an fp8 cache of latent vectors on Hopper."""
FLASHINFER_MLA_BLOCK_SIZE = 32
"""The smallest of FlashInfer's latent attention, on Blackwell's large GPUs."""
MIXED_BLOCK_SIZE = 64
"""What Triton and FlashInfer have together, on the same GPUs: the one for images, the other for text."""
SPARSE_FP8_BYTES = 656
"""A token's latent vector in DeepSeek's sparse attention with an fp8 cache: scales and a bfloat16 rope part."""

COMPRESSED_BLOCK_SIZE = 256
"""Tokens per block of compressed vectors."""
_COMPRESSED_BYTES, _COMPRESSED_ALIGNMENT = 584, 576
"""A vector in eight bits with scales and a bfloat16 rope part; pages are multiples of the second."""
_WINDOW_BLOCK_SIZE = 64
_RING_ROWS = 8
_COMPRESSOR_BLOCKS = {4: 4, 128: 8}
"""Tokens per block of a compressor's state, by how many tokens it joins."""

_HOPPER, _BLACKWELL = 9, 10
"""Compute capabilities; that of the RTX Blackwells is 12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """What the plan depends on besides the model and the memory; names are vLLM's."""

    block_size: int | None = None
    """Tokens per block; None: what the attention kernels prefer."""
    kv_cache_dtype: str = "auto"
    """auto: what the checkpoint asks for, else the model's dtype."""
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    max_model_len: int = 8192
    max_num_batched_tokens: int = 8192
    max_num_encoder_input_tokens: int = 0
    """Embeddings that cross attention reserves per request; 0: as many as a step computes, as vLLM does."""
    async_scheduling: bool = True
    """A step more may be in flight than there are stages: later versions plan windows for all of them."""
    enable_prefix_caching: bool = True
    states_kept: str = "none"
    """``--mamba-cache-mode`` as it was given; none: the version's default."""
    num_speculative_tokens: int = 0
    compute_capability: tuple[int, int] = (9, 0)
    """CUDA's, of the GPUs: by it vLLM chooses kernels, and they want blocks of different sizes."""
    planner: str = NEWEST.vllm_version
    """The version whose planner is followed."""

    def __post_init__(self) -> None:
        if self.block_size is not None:
            require_int("block_size", self.block_size, 1, 1 << 20)
        require_int("tensor_parallel_size", self.tensor_parallel_size, 1)
        require_int("decode_context_parallel_size", self.decode_context_parallel_size, 1, 1 << 10)
        require_limit("max_model_len", self.max_model_len)
        require_limit("max_num_batched_tokens", self.max_num_batched_tokens)
        require_int("max_num_encoder_input_tokens", self.max_num_encoder_input_tokens, 0)
        require_int("num_speculative_tokens", self.num_speculative_tokens, 0)
        if self.kv_cache_dtype != "auto" and self.kv_cache_dtype not in KV_CACHE_DTYPES:
            fix = f"use one of: auto, {', '.join(KV_CACHE_DTYPES)}"
            raise ConfigError("kv_cache_dtype", self.kv_cache_dtype, fix)

    @property
    def facts(self) -> ReleaseFacts:
        """What the planner's version differs in."""
        return release_facts(self.planner)

    @property
    def in_flight_tokens(self) -> int:
        """Tokens whose blocks a window cannot have given back yet."""
        holds = self.facts.steps_in_flight_hold_windows
        steps = self.pipeline_parallel_size + self.async_scheduling if holds else 1
        return steps * self.max_num_batched_tokens

    def mamba_cache_mode(self, model: ModelSpec) -> MambaCacheMode:
        """With prefix caching the state at the end of a step is kept, or all of Mamba's, as vLLM does where it can.

        ConfigError where all are wanted of a version that keeps none but those.
        """
        states = [mixer for layer in model.layers for mixer in layer.mixers if isinstance(mixer, StateSpace)]
        if not states or not self.enable_prefix_caching:
            return MambaCacheMode.NONE
        if self.states_kept == MambaCacheMode.ALL and not self.facts.mamba_keeps_all_states:
            raise ConfigError(
                "mamba_cache_mode", "all", f"vLLM {self.planner} keeps the state at a step's end: use align"
            )
        keeps_all = self.facts.mamba_keeps_all_states and all(isinstance(mixer, Mamba1 | Mamba2) for mixer in states)
        return MambaCacheMode.ALL if keeps_all and self.states_kept != "align" else MambaCacheMode.ALIGN

    def cache_dtype(self, model: ModelSpec) -> str:
        """``kv_cache_dtype`` with ``auto`` resolved."""
        return self.kv_cache_dtype if self.kv_cache_dtype != "auto" else model.kv_cache_dtype or model.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """The cache of one layer on one GPU. Equal ones may share a block table."""

    kind: GroupKind
    block_size: int
    page_bytes: int
    """Bytes of one block in this layer, padding included."""
    shape: tuple[object, ...]
    """Heads and sizes, or states: layers that differ in it never count as equal."""
    window: int = 0
    """Tokens of the window or chunk."""
    is_latent: bool = False
    blocks_kept: int = 0
    """Blocks that a request's state takes; 0 where blocks follow from tokens."""
    drafts: int = 0
    """Blocks for the states after drafts, where blocks follow from tokens."""
    packed: bool = False
    """A block is as large as its widest group, and no page is padded for others' sake."""
    alignment: int = 1
    """Bytes of which such a block is a multiple."""

    def blocks_per_request(self, settings: CacheSettings, max_model_len: int) -> int:
        """Most blocks that one request of ``max_model_len`` tokens takes: what vLLM plans with."""
        if self.blocks_kept:
            return self.blocks_kept
        size, ahead = self.block_size, settings.in_flight_tokens
        if self.kind is GroupKind.SLIDING_WINDOW:
            return -(-min(self.window - 1 + ahead, max_model_len) // size) + 1
        if self.kind is GroupKind.CHUNKED_LOCAL:
            return -(-min(self.window + ahead, max_model_len) // size)
        if self.kind is GroupKind.CROSS_ATTENTION:
            return -(-settings.max_num_encoder_input_tokens // size)
        return -(-max_model_len // (size * settings.decode_context_parallel_size)) + self.drafts


def layer_caches(model: ModelSpec, settings: CacheSettings) -> list[LayerCache]:
    """The cache of every layer, first layer first; layers that keep nothing are left out."""
    model.check_tensor_parallel(settings.tensor_parallel_size)
    attention_page, block_size = _attention_block(model, settings)
    mixers: list[object] = [mixer for layer in model.layers for mixer in layer.mixers]
    mixers += (each for encoder in model.encoders for each in encoder.attention)
    if model.attention_first:
        mixers.sort(key=lambda mixer: isinstance(mixer, StateSpace))
    caches = [cache for mixer in mixers for cache in _caches(model, mixer, settings, block_size, attention_page)]
    if any(cache.kind is GroupKind.CIRCULAR_BUFFER or (cache.is_latent and cache.window) for cache in caches):
        return [replace(cache, packed=True) for cache in caches]
    return caches


def _caches(
    model: ModelSpec, mixer: object, settings: CacheSettings, block_size: int, attention_page: int
) -> Iterator[LayerCache]:
    dtype = settings.cache_dtype(model)
    if isinstance(mixer, ShortConvolution) and mixer.both_ways:
        return
    if isinstance(mixer, StateSpace):
        yield _state_cache(mixer, settings, settings.mamba_cache_mode(model), block_size, attention_page)
    elif isinstance(mixer, PagedConvolution):
        yield _paged_convolution(mixer, settings.tensor_parallel_size)
    elif isinstance(mixer, LatentAttention):
        if not mixer.both_ways:
            yield from _latent_caches(mixer, dtype, block_size, settings)
    elif isinstance(mixer, CompressedAttention):
        yield from _compressed_caches(mixer, settings.num_speculative_tokens)
    elif isinstance(mixer, SoftmaxAttention) and not mixer.shares_kv and mixer.attends is not Attends.BOTH_WAYS:
        cache = _softmax_cache(mixer, dtype, block_size, settings)
        keys = 0 if mixer.indexer is None else mixer.indexer.head_size
        yield from _with_indexer(cache, mixer.indexer, int(block_size * keys * kv_element_bytes(dtype)), settings)


_KINDS = {
    Attends.FULL: GroupKind.FULL,
    Attends.SLIDING_WINDOW: GroupKind.SLIDING_WINDOW,
    Attends.CHUNKED: GroupKind.CHUNKED_LOCAL,
    Attends.CROSS: GroupKind.CROSS_ATTENTION,
}


def _token_bytes(mixer: SoftmaxAttention | LatentAttention, dtype: str, tp: int, capability: tuple[int, int]) -> int:
    """Bytes of one token in one layer."""
    if isinstance(mixer, LatentAttention):
        # FlashInfer, on Blackwell's large GPUs, reads plain fp8.
        if mixer.indexer is not None and dtype.startswith("fp8") and capability[0] != _BLACKWELL:
            return SPARSE_FP8_BYTES
        return int(mixer.stored_size * kv_element_bytes(dtype))
    elements = mixer.kv_heads(tp) * (mixer.head_size + mixer.value_size) * mixer.vectors_per_token
    return int(elements * kv_element_bytes(dtype))


def _paged_convolution(mixer: PagedConvolution, tp: int) -> LayerCache:
    return LayerCache(
        kind=GroupKind.SLIDING_WINDOW,
        block_size=mixer.conv_kernel,
        page_bytes=mixer.kept_bytes(tp),
        shape=("convolution", mixer.num_heads // tp, mixer.row_size),
        window=mixer.conv_kernel,
    )


def _softmax_cache(mixer: SoftmaxAttention, dtype: str, block_size: int, settings: CacheSettings) -> LayerCache:
    tp = settings.tensor_parallel_size
    return LayerCache(
        kind=_KINDS[mixer.attends],
        block_size=block_size,
        page_bytes=block_size * _token_bytes(mixer, dtype, tp, settings.compute_capability),
        shape=(mixer.kv_heads(tp), mixer.head_size, mixer.value_size, mixer.vectors_per_token),
        window=mixer.window + (mixer.window_plus_itself and settings.facts.windows_plus_themselves),
    )


def _latent_caches(
    mixer: LatentAttention, dtype: str, block_size: int, settings: CacheSettings
) -> Iterator[LayerCache]:
    row = _token_bytes(mixer, dtype, 1, settings.compute_capability)
    cache = LayerCache(
        kind=GroupKind.SLIDING_WINDOW if mixer.window else GroupKind.FULL,
        block_size=block_size,
        page_bytes=block_size * row,
        shape=(1, mixer.stored_size),
        window=mixer.window,
        is_latent=True,
        alignment=row if mixer.kept_size else 1,  # its kernels take a block to be whole rows
    )
    page = 0 if mixer.indexer is None else block_size * mixer.indexer.key_bytes
    yield from _with_indexer(cache, mixer.indexer, page, settings)


def _with_indexer(
    cache: LayerCache, indexer: Indexer | None, page_bytes: int, settings: CacheSettings
) -> Iterator[LayerCache]:
    """Attention, and its indexer's keys, which take ``page_bytes`` a block unless they are joined."""
    if indexer is not None and indexer.ring is not None:
        yield from _with_joined_keys(cache, indexer.ring, settings)
        return
    yield cache
    if indexer is not None:
        yield LayerCache(
            kind=GroupKind.FULL,
            block_size=cache.block_size,
            page_bytes=page_bytes,
            shape=("indexer", indexer.head_size),
            is_latent=cache.is_latent,
        )


def _with_joined_keys(cache: LayerCache, ring: KeyRing, settings: CacheSettings) -> Iterator[LayerCache]:
    """Attention, its indexer's keys, one for several tokens, and the ring of tokens that are not joined yet."""
    size = cache.block_size
    if size % ring.joins:
        raise ConfigError("block_size", size, f"give a multiple of {ring.joins} tokens, whose keys become one")
    keys = LayerCache(
        kind=GroupKind.FULL,
        block_size=size,
        page_bytes=size // ring.joins * ring.key_bytes,
        shape=("joined keys", ring.joins),
        is_latent=cache.is_latent,
    )
    tokens = ring.tokens(settings.num_speculative_tokens)
    last = LayerCache(
        kind=GroupKind.CIRCULAR_BUFFER,
        block_size=tokens if ring.token_bytes else size,
        page_bytes=tokens * ring.token_bytes or cache.page_bytes,
        shape=("ring", ring.joins),
        blocks_kept=1,
        alignment=ring.alignment,
    )
    attention = (
        replace(cache, alignment=_page_between_blocks(cache, ring.page_tokens)),
        replace(keys, alignment=_page_between_blocks(keys, ring.page_keys * ring.joins)),
    )
    yield from (last, *attention) if ring.comes_first else (*attention, last)


def _page_between_blocks(cache: LayerCache, tokens: int) -> int:
    """Bytes of the pages of up to so many tokens that a kernel reads a block in; 1 where a block is one page."""
    page = gcd(tokens, cache.block_size)
    return 1 if tokens == 0 or page == cache.block_size else cache.page_bytes * page // cache.block_size


def _with_ring(mixer: CompressedAttention, num_speculative_tokens: int) -> Iterator[LayerCache]:
    """Compressed vectors, keys of the indexer, and rows of tokens that are not joined yet, keys and scores."""
    vectors = _WINDOW_BLOCK_SIZE // mixer.ratio
    yield _packed("compressed", _WINDOW_BLOCK_SIZE, vectors * _COMPRESSED_BYTES)
    if mixer.indexer is not None:
        yield _packed("indexer", _WINDOW_BLOCK_SIZE, vectors * mixer.indexer.key_bytes)
    if mixer.ratio > 1:
        rows = max(_RING_ROWS, 1 << (num_speculative_tokens + 1).bit_length())  # drafts, a token, the row before
        yield LayerCache(
            kind=GroupKind.CIRCULAR_BUFFER,
            block_size=rows,
            page_bytes=rows * 2 * mixer.head_size * 4,
            shape=("compressor", mixer.ratio),
            blocks_kept=1,
            packed=True,
        )


def _compressed_caches(mixer: CompressedAttention, num_speculative_tokens: int) -> Iterator[LayerCache]:
    """The caches in the order in which vLLM's layers name them; always in DeepSeek's own eight bits."""
    size = _WINDOW_BLOCK_SIZE // 2 if mixer.gathers_in_ring else _WINDOW_BLOCK_SIZE
    yield _packed("window", size, size * _COMPRESSED_BYTES, mixer.window)
    if not mixer.ratio or not mixer.keeps:
        return
    if mixer.gathers_in_ring:
        yield from _with_ring(mixer, num_speculative_tokens)
        return
    vectors = COMPRESSED_BLOCK_SIZE // mixer.ratio
    yield _packed("compressed", COMPRESSED_BLOCK_SIZE, vectors * _COMPRESSED_BYTES)
    block, kept = _COMPRESSOR_BLOCKS.get(mixer.ratio, 0), mixer.overlap * mixer.ratio
    if not block:
        fix = f"vLLM joins {' or '.join(map(str, _COMPRESSOR_BLOCKS))} tokens"
        raise ConfigError("compress_ratios", mixer.ratio, fix)
    state = block * 2 * mixer.overlap * 4  # a key and a score in float32
    yield _packed("compressor", block, state * mixer.head_size, kept)
    if mixer.indexer is not None:
        yield _packed("indexer", COMPRESSED_BLOCK_SIZE, vectors * mixer.indexer.key_bytes)
        yield _packed("indexer's compressor", block, state * mixer.indexer.head_size, kept)


def _packed(shape: str, block_size: int, num_bytes: int, window: int = 0) -> LayerCache:
    return LayerCache(
        kind=GroupKind.SLIDING_WINDOW if window else GroupKind.FULL,
        block_size=block_size,
        page_bytes=-(-num_bytes // _COMPRESSED_ALIGNMENT) * _COMPRESSED_ALIGNMENT,
        shape=(shape,),
        window=window,
        is_latent=True,
        packed=True,
    )


def _state_cache(
    mixer: StateSpace, settings: CacheSettings, mode: MambaCacheMode, block_size: int, attention_page: int
) -> LayerCache:
    # The state at a block's end in the middle of a prefill takes a block of its own, in later versions.
    exported = _checkpoint_alignment(mixer, settings) > 0
    tp, drafts = settings.tensor_parallel_size, settings.num_speculative_tokens
    kept = {MambaCacheMode.NONE: 1, MambaCacheMode.ALIGN: 2 + exported, MambaCacheMode.ALL: 0}[mode]
    return LayerCache(
        kind=GroupKind.MAMBA,
        block_size=settings.max_model_len if mode is MambaCacheMode.NONE else block_size,
        page_bytes=max(attention_page, mixer.state_bytes(tp, drafts)),
        shape=(type(mixer).__name__, *mixer.state_shapes(tp, drafts), *mixer.state_dtypes()),
        blocks_kept=kept and kept + drafts,
        drafts=drafts,
    )


def _attention_block(model: ModelSpec, settings: CacheSettings) -> tuple[int, int]:
    """Page of an attention layer where states are padded to it (0 elsewhere), and tokens per block.

    Beside states, blocks of attention are made as large as a state needs: one page holds either.
    """
    mixers = [mixer for layer, _ in model.layer_counts for mixer in layer.mixers]
    size = settings.block_size or _preferred_block_size(model, mixers, settings)
    states = [mixer for mixer in mixers if isinstance(mixer, StateSpace)]
    attention = [mixer for mixer in mixers if isinstance(mixer, SoftmaxAttention | LatentAttention)]
    if not states or not attention:
        return 0, size
    tp = settings.tensor_parallel_size
    per_token = _token_bytes(attention[0], settings.cache_dtype(model), tp, settings.compute_capability)
    state = max(mixer.state_bytes(tp, settings.num_speculative_tokens) for mixer in states)
    state = max(state, model.least_state_bytes)
    step = max(size, 128) if settings.facts.latent_pages_align and isinstance(attention[0], LatentAttention) else size
    if settings.mamba_cache_mode(model) is MambaCacheMode.ALL:
        step = lcm(step, *(mixer.chunk_size for mixer in states if isinstance(mixer, Mamba1 | Mamba2)))
    elif settings.mamba_cache_mode(model) is MambaCacheMode.ALIGN:
        step = lcm(step, *(_checkpoint_alignment(mixer, settings) or 1 for mixer in states))
    size = max(size, step * -(-state // (step * per_token)))
    return size * per_token, size


def _checkpoint_alignment(mixer: StateSpace, settings: CacheSettings) -> int:
    """Where its kernels hand out states in the middle of a prefill; 0: nowhere. Before Hopper, Triton's do not."""
    if isinstance(mixer, GatedDeltaNet):
        is_hopper = settings.compute_capability[0] >= _HOPPER
        hands_out = settings.facts.delta_states_within_prefill and mixer.hands_out_states and is_hopper
    else:
        hands_out = settings.facts.mamba2_states_within_prefill
    return mixer.checkpoint_alignment if hands_out else 0


def _preferred_block_size(model: ModelSpec, mixers: Sequence[object], settings: CacheSettings) -> int:
    """What the kernels take that vLLM chooses on these GPUs."""
    latent = [mixer for mixer in mixers if isinstance(mixer, LatentAttention)]
    major = settings.compute_capability[0]
    if any(mixer.indexer is not None for mixer in latent):
        joins = max(mixer.indexer.ring.joins if mixer.indexer and mixer.indexer.ring else 0 for mixer in latent)
        return joins * JOINED_KEYS_PER_BLOCK or SPARSE_BLOCK_SIZE
    if any(isinstance(mixer, SoftmaxAttention) and mixer.indexer and not mixer.indexer.ring for mixer in mixers):
        return PICKED_BLOCK_SIZE
    if latent and major == _BLACKWELL:
        return FLASHINFER_MLA_BLOCK_SIZE
    if latent and major == _HOPPER and settings.cache_dtype(model).startswith("fp8"):
        return FLASHMLA_BLOCK_SIZE
    splits = settings.facts.images_split_backends_on_blackwell and major == _BLACKWELL
    if splits and model.images_attend_both_ways and model.encoders:
        return MIXED_BLOCK_SIZE
    return DEFAULT_BLOCK_SIZE


def with_block_size(cache: LayerCache, ratio: int) -> LayerCache:
    """The same layer with ``ratio`` times as many tokens per block."""
    return replace(cache, block_size=cache.block_size * ratio, page_bytes=cache.page_bytes * ratio)
