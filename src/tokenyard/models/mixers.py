"""What lets a token know of others: attention, and layers that keep a state of fixed size.

Counts are of one GPU of a tensor-parallel group of ``tp``; with ``tp`` 1 they are the model's.
"""

from __future__ import annotations

from enum import StrEnum
from math import prod
from typing import ClassVar

from tokenyard.core.config import require_counts, require_int
from tokenyard.errors import ConfigError
from tokenyard.models.formats import BFLOAT16, BFLOAT16_BYTES, WeightFormat, dtype_bytes
from tokenyard.quick_dataclass import dataclass

# ---------------------------------------------------------------------------------------------------------------------
# Layers that attend to earlier tokens: their projections and what they keep of every token.
#
# SoftmaxAttention   heads share keys and values in groups; over everything, a window, a chunk or an encoder's output
#     LatentAttention    DeepSeek's MLA: one compressed vector per token for all heads; DSA adds an indexer (V3.2)
#     CompressedAttention  DeepSeek V4: such vectors of a window, and of every few tokens together


class Attends(StrEnum):
    """What a token attends to."""

    FULL = "full"
    """Every token before it."""
    SLIDING_WINDOW = "sliding_window"
    """The last ``window`` tokens, itself included."""
    CHUNKED = "chunked"
    """Tokens of its own chunk of ``window`` tokens."""
    CROSS = "cross"
    """An encoder's output."""
    BOTH_WAYS = "both_ways"
    """All of its prompt: nothing is kept, and no token can follow (models that pool)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """Several tokens have one indexer key between them; until it is complete, theirs lie in a block per request."""

    joins: int
    """Tokens whose keys become one."""
    key_bytes: int
    """Bytes of a key that stands for them."""
    token_bytes: int = 0
    """Bytes that a token has in the ring; 0: the ring is as large as a block of the attention beside it (Step 5)."""
    doubles: bool = False
    """Where drafts need more than ``joins`` tokens, the ring has twice, four times ... as many, not three times."""
    alignment: int = 1
    """Bytes of which a ring's distance from the next is a multiple."""
    page_tokens: int = 0
    """Kernels read the attention's blocks in pages of so many tokens, and blocks lie whole pages apart; 0: anyhow."""
    page_keys: int = 0
    """Likewise the joined keys, in pages of at most so many."""
    comes_first: bool = False
    """vLLM makes the ring before the attention, and its group comes first (Qwen 4)."""

    def __post_init__(self) -> None:
        require_counts(self, "doubles", "comes_first", joins=1, key_bytes=1, alignment=1)
        require_counts(self, token_bytes=0, page_tokens=0, page_keys=0)

    def tokens(self, num_drafts: int = 0) -> int:
        """Tokens of the ring: drafts that may be rejected must not take the place of what is joined next."""
        times = -(-(self.joins + num_drafts) // self.joins)
        return self.joins * (1 << (times - 1).bit_length() if self.doubles else times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """Sparse attention (DeepSeek, MiniMax M3): small heads that pick tokens to attend to, with keys of their own."""

    num_heads: int
    head_size: int
    topk: int
    """Tokens attended to at most."""
    ring: KeyRing | None = None
    """Where several tokens have one key."""
    parts: int = 0
    """Largest number of GPUs over which its heads are sharded; 0: over all GPUs."""

    @property
    def key_bytes(self) -> int:
        """A key in a byte per element, and a scale of every 128: as latent and compressed attention store it."""
        return self.head_size + 4 * (self.head_size // 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxAttention:
    """Multi-head attention with grouped keys and values. Raises ConfigError if a size cannot work."""

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    head_size_v: int = 0
    """Head size of the values; 0: as of the keys."""
    attends: Attends = Attends.FULL
    window: int = 0
    """Tokens of the window or chunk; 0 where there is neither."""
    window_plus_itself: bool = False
    """A token sees so many before it, and itself (Cohere); vLLM counts that one since 0.29."""
    output_gate: bool = False
    """A gate as wide as the queries comes out of the query projection (Qwen3-Next)."""
    head_norms: bool = False
    """Queries and keys are normed head by head (Qwen3); the weights count as ``extra_parameters``."""
    full_norms: bool = False
    """They are normed over all heads, of which every GPU has a part: they add them up (MiniMax M2)."""
    vectors_per_token: int = 1
    """Keys, and values, that it has of a token of the decoder (Voxtral's encoder, which samples sound more finely)."""
    shares_kv: bool = False
    """Reads the KV of an earlier layer: no key or value projection, and no cache of its own (Gemma-3n)."""
    indexer: Indexer | None = None
    parted_parameters: int = 0
    """Projections through narrower vectors (Step 3, MiniCPM 3): what is shared out by heads; 0: there are none."""
    whole_parameters: int = 0
    """Parameters that every GPU holds."""
    extra_parameters: int = 0
    """Biases, norms of queries and keys, sinks: kept in the model's dtype, on every GPU."""
    weights: WeightFormat = BFLOAT16

    def __post_init__(self) -> None:
        require_counts(self, hidden_size=1, num_heads=1, num_kv_heads=1, head_size=1, head_size_v=0, window=0)
        require_counts(self, parted_parameters=0, whole_parameters=0, extra_parameters=0, vectors_per_token=1)
        require_counts(self, "output_gate", "window_plus_itself")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError("num_kv_heads", self.num_kv_heads, f"must divide num_heads ({self.num_heads})")
        windowed = self.attends in (Attends.SLIDING_WINDOW, Attends.CHUNKED)
        if windowed != bool(self.window):
            fix = f"give the tokens of a window or chunk, and only there (attends = {self.attends})"
            raise ConfigError("window", self.window, fix)

    @property
    def value_size(self) -> int:
        """Width of a value head."""
        return self.head_size_v or self.head_size

    def kv_heads(self, tp: int = 1) -> int:
        """Heads whose keys and values a GPU keeps: with more GPUs than KV heads, each keeps a copy of one."""
        return max(1, self.num_kv_heads // tp)

    def num_parameters(self, tp: int = 1) -> int:
        """Projections of queries, keys, values and output."""
        if self.parted_parameters or self.whole_parameters:
            return self.parted_parameters // tp + self.whole_parameters
        heads = self.num_heads // tp
        query = heads * self.head_size * (2 if self.output_gate else 1)
        keys_values = 0 if self.shares_kv else self.kv_heads(tp) * (self.head_size + self.value_size)
        index = self.indexer
        picking = 0
        if index is not None:
            picking = (max(1, index.num_heads // min(tp, index.parts or tp)) + 1) * index.head_size
        return self.hidden_size * (query + keys_values + heads * self.value_size + picking)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek V2 and V3, Kimi-K2)."""

    hidden_size: int
    num_heads: int
    kv_lora_rank: int
    """Width of the compressed vector."""
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    """Width of the part that carries positions: kept per token, once for all heads."""
    v_head_dim: int
    q_lora_rank: int = 0
    """Width of the compressed queries; 0: one projection, as in DeepSeek-V2-Lite."""
    indexer: Indexer | None = None
    window: int = 0
    """Tokens of the window, itself included; 0: it sees every token before it."""
    kept_size: int = 0
    """Elements that a token has in a block, where that is more than it needs: as many as in other layers (Dots 3)."""
    output_gate: bool = False
    """A gate as wide as the heads' values, with a projection of its own (Hunyuan 4)."""
    both_ways: bool = False
    """Over all of a prompt: nothing is kept (models that pool)."""
    extra_parameters: int = 0
    """Norms of the compressed vectors and biases: kept in the model's dtype, on every GPU."""
    weights: WeightFormat = BFLOAT16

    def __post_init__(self) -> None:
        require_counts(self, hidden_size=1, num_heads=1, kv_lora_rank=1, qk_nope_head_dim=1, v_head_dim=1)
        require_counts(self, qk_rope_head_dim=0, q_lora_rank=0, window=0, kept_size=0, extra_parameters=0)

    @property
    def latent_size(self) -> int:
        """Elements kept per token: ``kv_lora_rank`` + ``qk_rope_head_dim``."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def stored_size(self) -> int:
        """Elements that a token has in a block."""
        return max(self.kept_size, self.latent_size)

    def num_parameters(self, tp: int = 1) -> int:
        """Down projections are on every GPU; what belongs to heads is shared out."""
        heads, query = self.num_heads // tp, self.qk_nope_head_dim + self.qk_rope_head_dim
        down = self.hidden_size * (self.latent_size + self.q_lora_rank)
        up = heads * ((self.q_lora_rank or self.hidden_size) * query)
        up += heads * self.kv_lora_rank * (self.qk_nope_head_dim + self.v_head_dim)
        output = heads * self.v_head_dim * self.hidden_size * (2 if self.output_gate else 1)
        return down + up + output + self._indexer_parameters()

    def _indexer_parameters(self) -> int:
        if self.indexer is None:
            return 0
        heads, size = self.indexer.num_heads, self.indexer.head_size
        return heads * size * self.q_lora_rank + self.hidden_size * (size + heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """Attention over a window of vectors, each a key and a value for all heads, and over compressed ones (DeepSeek V4).

    A compressor joins every ``ratio`` tokens, in float32 until they are complete; an indexer picks among them.
    """

    hidden_size: int
    num_heads: int
    head_size: int
    q_lora_rank: int
    output_groups: int
    output_rank: int
    """Heads are projected back in groups, each through so many columns."""
    window: int
    ratio: int = 0
    """Tokens that become one vector; 0: the window is all there is."""
    indexer: Indexer | None = None
    keeps: bool = True
    """The compressed vectors are its own; else those of an earlier layer (DeepSeek V4.1)."""
    picks: bool = True
    """The indexer is its own; else what an earlier layer's picked counts."""
    gathers_in_ring: bool = False
    """Tokens that are not joined yet lie in a ring (DeepSeek V4.1), not in blocks, and windows in smaller blocks."""
    parted_parameters: int = 0
    """Further large matrices, shared out."""
    extra_parameters: int = 0
    """Compressors, norms, sinks: never quantised, on every GPU."""
    weights: WeightFormat = BFLOAT16

    def __post_init__(self) -> None:
        require_counts(self, hidden_size=1, num_heads=1, head_size=1, q_lora_rank=1, output_groups=1, output_rank=1)
        require_counts(self, window=1, parted_parameters=0, extra_parameters=0)
        require_int("compress_ratios", self.ratio, 0)

    @property
    def overlap(self) -> int:
        """How many times a token is compressed."""
        return 2 if self.ratio == _OVERLAPPING else 1

    def num_parameters(self, tp: int = 1) -> int:
        """Down projections and the indexer are on every GPU; what belongs to heads is shared out."""
        heads, down = self.num_heads // tp * self.head_size, self.q_lora_rank + self.head_size
        columns = self.output_groups * self.output_rank // tp
        output = columns * (self.num_heads * self.head_size // self.output_groups + self.hidden_size)
        indexer = self.indexer if self.picks else None
        picking = indexer.num_heads * indexer.head_size * self.q_lora_rank if indexer else 0
        rest = picking + self.parted_parameters // tp
        return self.hidden_size * down + heads * self.q_lora_rank + output + rest


_OVERLAPPING = 4
"""The ratio at which every token is part of two vectors."""


# ---------------------------------------------------------------------------------------------------------------------
# Layers that keep a state of fixed size instead of keys and values: Mamba, gated delta nets, short convolutions.
#
# A state has two parts: the last inputs of a short convolution (in the model's dtype) and the recurrent state itself
# (``state_dtype``).

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpace:
    """What all of them share; use one of the classes below."""

    hidden_size: int
    conv_kernel: int
    """Tokens that the convolution looks at, the present one included."""
    state_dtype: str = "bfloat16"
    """Type of the recurrent state."""
    conv_dtype: str = "bfloat16"
    """Type of the convolution's inputs: the model's dtype, unless ``--mamba-cache-dtype`` says otherwise."""
    extra_parameters: int = 0
    """Convolutions, decays, norms, biases: kept in the model's dtype, on every GPU."""
    parted_parameters: int = 0
    """Parameters that are sharded, where they are distinguished: they are most of a small model."""
    weights: WeightFormat = BFLOAT16
    checkpoint_alignment: ClassVar[int] = 0
    """Its kernels can hand out the state in the middle of a prefill, at multiples of so many tokens; 0: not."""

    def num_parameters(self, tp: int = 1) -> int:
        """Parameters of the large projections."""
        raise NotImplementedError  # of each kind of layer

    def state_shapes(self, tp: int = 1, num_drafts: int = 0) -> tuple[Shape, ...]:
        """Shapes of convolution and recurrent state; drafts lengthen the former where verification replays them."""
        raise NotImplementedError  # of each kind of layer

    def state_dtypes(self) -> tuple[str, ...]:
        """One per shape."""
        return (self.conv_dtype, self.state_dtype)

    def state_bytes(self, tp: int = 1, num_drafts: int = 0) -> int:
        """Bytes of one request's state in one layer."""
        shapes = self.state_shapes(tp, num_drafts)
        return sum(prod(shape) * dtype_bytes(dtype) for shape, dtype in zip(shapes, self.state_dtypes(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1(StateSpace):
    """Selective state space with a state per channel (Jamba)."""

    intermediate_size: int
    state_size: int
    time_step_rank: int
    chunk_size: ClassVar[int] = 2048
    """Tokens between states that are kept, where all are kept (0.22)."""

    def num_parameters(self, tp: int = 1) -> int:
        inner = self.intermediate_size // tp
        inputs = 2 * inner * self.hidden_size
        return inputs + inner * (self.time_step_rank * 2 + 2 * self.state_size) + inner * self.hidden_size

    def state_shapes(self, tp: int = 1, num_drafts: int = 0) -> tuple[Shape, ...]:
        inner = self.intermediate_size // tp
        return (self.conv_kernel - 1, inner), (inner, self.state_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2(StateSpace):
    """State space with heads and groups (Bamba, Nemotron-H, Granite 4, Falcon-H1)."""

    num_heads: int
    head_size: int
    state_size: int
    num_groups: int
    intermediate_size: int
    chunk_size: int = 256
    """Tokens that its kernels work on at once: states are kept at multiples of it where all are kept (0.22)."""
    checkpoint_alignment: ClassVar[int] = 1

    def groups(self, tp: int = 1) -> int:
        """Groups over all GPUs: where they cannot be shared out, every GPU gets its copy."""
        return self.num_groups if self.num_groups % tp == 0 else self.num_groups + tp - self.num_groups

    def num_parameters(self, tp: int = 1) -> int:
        groups = 2 * self.groups(tp) * self.state_size
        inputs = (2 * self.intermediate_size + groups + self.num_heads) // tp
        return self.hidden_size * (inputs + self.intermediate_size // tp)

    def state_shapes(self, tp: int = 1, num_drafts: int = 0) -> tuple[Shape, ...]:
        channels = self.intermediate_size + 2 * self.groups(tp) * self.state_size
        convolution = (self.conv_kernel - 1 + num_drafts, channels // tp)
        return convolution, (self.num_heads // tp, self.head_size, self.state_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet(StateSpace):
    """Linear attention with a gated delta rule (Qwen3-Next, Qwen3.5)."""

    num_key_heads: int
    num_value_heads: int
    key_head_size: int
    value_head_size: int
    hands_out_states: bool = True
    """Its kernels can, in the middle of a prefill."""
    gate_rank: int = 0
    """Output gate and decays go through matrices of this rank (Kimi's delta attention); 0: the gate through one of its
    own, and decays are one number per head."""
    full_decay: bool = False
    """Decays and output gate go through matrices of their own, none of low rank (Ling 3)."""
    full_gate: bool = False
    """Only decays go through such matrices, the output gate through one of its own (Kimi K3)."""
    checkpoint_alignment: ClassVar[int] = 64

    def num_parameters(self, tp: int = 1) -> int:
        keys = self.num_key_heads * self.key_head_size
        values = self.num_value_heads * self.value_head_size
        if self.full_decay:
            return self.hidden_size * (2 * keys + 4 * values + self.num_value_heads) // tp
        if self.gate_rank:
            low = (1 if self.full_gate else 2) * self.gate_rank * (self.hidden_size + values // tp)
            wide = (3 if self.full_gate else 2) * values
            return self.hidden_size * (2 * keys + wide + self.num_value_heads) // tp + low
        return self.hidden_size * (2 * keys + 3 * values + 2 * self.num_value_heads) // tp

    def state_shapes(self, tp: int = 1, num_drafts: int = 0) -> tuple[Shape, ...]:
        channels = 2 * self.num_key_heads * self.key_head_size + self.num_value_heads * self.value_head_size
        convolution = (self.conv_kernel - 1 + num_drafts, channels // tp)
        return convolution, (self.num_value_heads // tp, self.value_head_size, self.key_head_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvolution(StateSpace):
    """A gated convolution of a few tokens and nothing else (LFM2)."""

    width: int
    both_ways: bool = False
    """Over tokens on either side: nothing is kept (models that pool)."""

    def num_parameters(self, tp: int = 1) -> int:
        return self.hidden_size * self.width * 4 // tp

    def state_shapes(self, tp: int = 1, num_drafts: int = 0) -> tuple[Shape, ...]:
        return ((self.conv_kernel - 1, self.width // tp),)

    def state_dtypes(self) -> tuple[str, ...]:
        return (self.conv_dtype,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention(StateSpace):
    """Linear attention with decays that are fixed per head, and a gate of its own (Ling 2.5, Ring 2.5)."""

    num_heads: int
    head_size: int

    def num_parameters(self, tp: int = 1) -> int:
        return 5 * self.hidden_size * self.num_heads * self.head_size // tp

    def state_shapes(self, tp: int = 1, num_drafts: int = 0) -> tuple[Shape, ...]:
        return ((self.num_heads // tp, self.head_size, self.head_size),)

    def state_dtypes(self) -> tuple[str, ...]:
        return (self.state_dtype,)


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramEmbedding(StateSpace):
    """Embeddings of the last few tokens together, and a convolution over them that every GPU has whole (Qwen 4)."""

    width: int
    """Channels of the convolution."""
    embedding_size: int
    dilation: int
    """Tokens between those that the convolution looks at."""
    checkpoint_alignment: ClassVar[int] = 1

    def num_parameters(self, tp: int = 1) -> int:
        """What makes keys and values of an embedding, on every GPU."""
        return self.embedding_size * (self.width + self.hidden_size)

    def state_shapes(self, tp: int = 1, num_drafts: int = 0) -> tuple[Shape, ...]:
        return (((self.conv_kernel - 1) * self.dilation + num_drafts, self.width),)

    def state_dtypes(self) -> tuple[str, ...]:
        return (self.conv_dtype,)


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedConvolution:
    """Short convolutions of keys, values and outputs, whose last inputs lie in blocks like a window's (Inkling)."""

    hidden_size: int
    num_heads: int
    """Heads of keys, over which the model is shared out."""
    head_size: int
    conv_kernel: int
    """Tokens that it looks at, the present one included: a block holds as many."""
    extra_parameters: int = 0
    weights: WeightFormat = BFLOAT16

    @property
    def row_size(self) -> int:
        """Elements of one token and head: key, value and a share of two outputs, up to a power of two."""
        row = 2 * self.head_size + 2 * (self.hidden_size // self.num_heads)
        return 1 << (row - 1).bit_length()

    def num_parameters(self, tp: int = 1) -> int:
        """It has no large matrix."""
        return 0 * tp

    def kept_bytes(self, tp: int = 1) -> int:
        """Bytes of one block in one layer: the state of a request, kept in bfloat16."""
        return self.conv_kernel * self.num_heads // tp * self.row_size * BFLOAT16_BYTES


Mixer = SoftmaxAttention | LatentAttention | CompressedAttention | StateSpace | PagedConvolution
"""What lets a token know of others."""
