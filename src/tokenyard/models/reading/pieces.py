"""The pieces that a model is made of; a row of the table (:mod:`~tokenyard.models.reading.row`) says what fills them.

mixers   Grouped, Latent, DeltaNet, KimiDelta, SelectiveState (Mamba 1), HeadState (Mamba 2), Convolution,
         Ngrams, PagedConvolutions, Linear; DeepSeek V4's in :mod:`~tokenyard.models.reading.compressed`
MLPs     Dense, Experts

Every number of a piece is an expression over the file's fields (:mod:`~tokenyard.models.reading.expressions`). A row
names a piece by its class's ``tag``, and gives the fields whose values are not the default ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from tokenyard.models.layers import DenseMLP, MoE
from tokenyard.models.mixers import (
    Attends,
    GatedDeltaNet,
    Indexer,
    KeyRing,
    LatentAttention,
    LinearAttention,
    Mamba1,
    Mamba2,
    NgramEmbedding,
    PagedConvolution,
    ShortConvolution,
    SoftmaxAttention,
)
from tokenyard.models.reading.expressions import Expressions, Fill
from tokenyard.models.reading.parts import ConfigReader
from tokenyard.models.reading.quantization import MXFP4
from tokenyard.quick_dataclass import dataclass

NAMES = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads=heads",
    "head_dim": "head_dim=max(1, hidden // heads)",
    "width": "intermediate_size",
    "vocab": "vocab_size",
    "experts": "num_experts|num_local_experts|n_routed_experts=0",
    "per_token": "num_experts_per_tok",
    "expert_width": "moe_intermediate_size",
    "window": "sliding_window=0",
    "picks_again": "index_topk_freq=1",
    "picks_once": "index_skip_topk_offset=2",
}
"""What every row may use, by the fields that most files have them in."""


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a row, as its family's file writes it."""

    about: str | tuple[str, ...] = ""
    """A note for readers."""


class Piece(Part, frozen=True, kw_only=True, tag_field="is"):
    """A part that may be of several kinds: ``is`` says of which."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What pieces are read with: the file, and the values of its expressions."""

    reading: ConfigReader
    values: Expressions

    def state_dtype(self, default: str) -> str:
        """Type of recurrent states; float32 where the file says so."""
        fields = self.reading.fields
        return fields.text(fields.first("mamba_ssm_dtype", "mamba_ssm_cache_dtype"), default or self.reading.dtype)


# ---------------------------------------------------------------------------------------------------------------------
# What mixes tokens.


class Ring(Part, frozen=True, kw_only=True):
    """What becomes a :class:`~tokenyard.models.mixers.KeyRing`; the fields are its."""

    joins: Fill
    key_bytes: Fill
    token_bytes: Fill = 0
    doubles: bool = False
    alignment: int = 1
    page_tokens: int = 0
    page_keys: int = 0
    comes_first: bool = False

    def build(self, reader: Reader) -> KeyRing:
        """The ring of every layer."""
        count = reader.values.count
        return KeyRing(
            joins=count(self.joins),
            key_bytes=count(self.key_bytes),
            token_bytes=count(self.token_bytes),
            doubles=self.doubles,
            alignment=self.alignment,
            page_tokens=self.page_tokens,
            page_keys=self.page_keys,
            comes_first=self.comes_first,
        )


class Grouped(Piece, frozen=True, kw_only=True, tag="grouped"):
    """Heads that share keys and values in groups."""

    heads: Fill = "heads"
    kv_heads: Fill = "kv_heads"
    head_dim: Fill = "head_dim"
    head_dim_v: Fill = 0
    window: Fill = 0
    window_plus_itself: bool = False
    """``window`` tokens before a token, and itself."""
    chunk: Fill = 0
    qkv_bias: Fill = False
    output_bias: Fill = False
    head_norms: Fill = False
    """Queries and keys are normed head by head."""
    full_norms: Fill = False
    """They are normed over all heads."""
    output_gate: Fill = False
    shares_kv: Fill = False
    picks: tuple[Fill, Fill, Fill, Fill] = (0, 0, 0, 0)
    """Heads, head size and tokens of an indexer, and parts in which it is shared out; 0 heads: there is none."""
    ring: Ring | None = None
    """Where the indexer's keys of several tokens become one."""
    parted: Fill = 0
    """Projections through narrower vectors: what is shared out by heads, in place of what the sizes come to."""
    whole: Fill = 0
    """Parameters that every GPU holds."""
    extra: Fill = 0
    cross: bool = False
    """Over an encoder's output."""
    both_ways: Fill = False
    """Over all of a prompt: nothing is kept."""
    module: str = "self_attn"

    def build(self, reader: Reader, module: str, i: int) -> SoftmaxAttention:
        """The attention of layer ``i``."""

        def count(fill: Fill) -> int:
            return reader.values.count(fill, i=i) if fill not in (0, False) else 0

        heads, kv_heads, size = count(self.heads), count(self.kv_heads), count(self.head_dim)
        value, window, chunk = count(self.head_dim_v), count(self.window), count(self.chunk)
        hidden, shares = reader.values.name("hidden"), bool(count(self.shares_kv))
        widths = heads * size + (0 if shares else kv_heads * (size + (value or size)))
        biases = widths * bool(count(self.qkv_bias)) + hidden * bool(count(self.output_bias))
        norms = 2 * size * bool(count(self.head_norms)) + (heads + kv_heads) * size * bool(count(self.full_norms))
        indexer = None
        if count(self.picks[0]):
            index_heads, keys, topk, parts = map(count, self.picks)
            ring = self.ring.build(reader) if self.ring is not None else None
            indexer = Indexer(num_heads=index_heads, head_size=keys, topk=topk, ring=ring, parts=parts)
            norms += 2 * keys
        both_ways = count(self.both_ways)
        if both_ways:
            window = chunk = 0
        kinds = (
            (self.cross, Attends.CROSS),
            (both_ways, Attends.BOTH_WAYS),
            (chunk, Attends.CHUNKED),
            (window, Attends.SLIDING_WINDOW),
        )
        return SoftmaxAttention(
            hidden_size=hidden,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_size=size,
            head_size_v=0 if value == size else value,
            attends=next((attends for given, attends in kinds if given), Attends.FULL),
            window=chunk or window,
            window_plus_itself=self.window_plus_itself and bool(window),
            output_gate=bool(count(self.output_gate)),
            head_norms=bool(count(self.head_norms)),
            full_norms=bool(count(self.full_norms)),
            shares_kv=shares,
            indexer=indexer,
            parted_parameters=count(self.parted),
            whole_parameters=count(self.whole),
            extra_parameters=biases + norms + count(self.extra),
            weights=reader.reading.quant.of(module),
        )


class Latent(Piece, frozen=True, kw_only=True, tag="latent"):
    """DeepSeek's latent attention, with or without an indexer."""

    reads: ClassVar[str] = (
        "heads q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim qk_head_dim head_dim"
    )

    indexer: Fill = "index_topk if max(i - picks_once + 1, 0) % picks_again == 0 else 0"
    """Tokens that an indexer picks; 0: there is none, and what an earlier layer picked counts (GLM 5.2)."""
    ring: Ring | None = None
    """Where the indexer's keys of several tokens become one."""
    output_gate: Fill = False
    both_ways: bool = False
    """Over all of a prompt: nothing is kept."""
    named: str = ""
    """What its fields' names begin with, where layers of two kinds have sizes of their own."""
    window: Fill = 0
    kept_size: Fill = 0
    extra: Fill = 0
    module: str = "self_attn"

    def build(self, reader: Reader, module: str, i: int) -> LatentAttention:
        """The attention of layer ``i``."""
        fields, count = reader.reading.fields, reader.values.count
        named = self.named
        fields.harmless(f"{named}num_key_value_heads", "head_dim", "qk_head_dim")
        if fields.get(f"{named}kv_lora_rank") is None:
            raise fields.missing(f"{named}kv_lora_rank", "this family without latent attention is not modelled")
        rank, query_rank = fields.count(f"{named}kv_lora_rank"), count(f"{named}q_lora_rank")
        topk = count(self.indexer, i=i)
        indexer = None
        if topk:
            heads, size = fields.count("index_n_heads"), fields.count("index_head_dim")
            ring = self.ring.build(reader) if self.ring is not None else None
            indexer = Indexer(num_heads=heads, head_size=size, topk=topk, ring=ring)
        return LatentAttention(
            hidden_size=reader.values.name("hidden"),
            num_heads=fields.count(f"{named}num_attention_heads") if named else reader.values.name("heads"),
            kv_lora_rank=rank,
            qk_nope_head_dim=fields.count(f"{named}qk_nope_head_dim"),
            qk_rope_head_dim=fields.count(f"{named}qk_rope_head_dim", low=0),
            v_head_dim=fields.count(f"{named}v_head_dim"),
            q_lora_rank=query_rank,
            window=count(self.window),
            kept_size=count(self.kept_size),
            indexer=indexer,
            output_gate=bool(count(self.output_gate)),
            both_ways=self.both_ways,
            extra_parameters=rank + query_rank + (2 * indexer.head_size if indexer else 0) + count(self.extra, i=i),
            weights=reader.reading.quant.of(module),
        )


class DeltaNet(Piece, frozen=True, kw_only=True, tag="delta_net"):
    """A gated delta net."""

    reads: ClassVar[str] = (
        "linear_num_key_heads linear_key_head_dim linear_num_value_heads linear_value_head_dim linear_conv_kernel_dim"
    )

    hands_out_states: bool = True
    module: str = "linear_attn"

    def build(self, reader: Reader, module: str, i: int) -> GatedDeltaNet:
        """The state of layer ``i``."""
        fields = reader.reading.fields
        keys, key_size = fields.count("linear_num_key_heads"), fields.count("linear_key_head_dim")
        values, value_size = fields.count("linear_num_value_heads"), fields.count("linear_value_head_dim")
        kernel = fields.count("linear_conv_kernel_dim")
        return GatedDeltaNet(
            hidden_size=reader.values.name("hidden"),
            conv_kernel=kernel,
            num_key_heads=keys,
            num_value_heads=values,
            key_head_size=key_size,
            value_head_size=value_size,
            hands_out_states=self.hands_out_states,
            conv_dtype=reader.reading.dtype,
            state_dtype=reader.state_dtype(""),
            extra_parameters=(2 * keys * key_size + values * value_size) * kernel + 2 * values + value_size,
            weights=reader.reading.quant.of(module),
        )


class KimiDelta(Piece, frozen=True, kw_only=True, tag="kimi_delta"):
    """Kimi's delta attention: a gated delta net whose gates are of low rank."""

    reads: ClassVar[str] = "linear_attn_config"

    heads: Fill = ""
    """Heads, their size and the convolution's tokens; empty: as ``linear_attn_config`` says."""
    head_dim: Fill = ""
    kernel: Fill = ""
    full_gate: Fill = "linear_attn_config.use_full_rank_gate"
    full_decay: bool = False
    """Nothing goes through matrices of low rank."""
    hands_out_states: bool = False
    module: str = "self_attn"

    def _sizes(self, reader: Reader) -> Iterator[int]:
        if self.heads:
            yield from map(reader.values.count, (self.heads, self.head_dim, self.kernel))
            return
        section = reader.reading.fields.section("linear_attn_config")
        if section is None:
            raise reader.reading.fields.missing("linear_attn_config", "give heads and sizes of the delta attention")
        yield from map(section.count, ("num_heads", "head_dim", "short_conv_kernel_size"))

    def build(self, reader: Reader, module: str, i: int) -> GatedDeltaNet:
        """The state of layer ``i``."""
        heads, size, kernel = self._sizes(reader)
        return GatedDeltaNet(
            hidden_size=reader.values.name("hidden"),
            conv_kernel=kernel,
            num_key_heads=heads,
            num_value_heads=heads,
            key_head_size=size,
            value_head_size=size,
            gate_rank=0 if self.full_decay else size,
            full_decay=self.full_decay,
            full_gate=bool(reader.values.count(self.full_gate)),
            hands_out_states=self.hands_out_states,
            conv_dtype=reader.reading.dtype,
            state_dtype="float32",
            # convolutions, decays and their biases in float32, a norm
            extra_parameters=2 * heads * (3 * size * kernel + size + 1) + size,
            weights=reader.reading.quant.of(module),
        )


class SelectiveState(Piece, frozen=True, kw_only=True, tag="mamba1"):
    """Mamba 1."""

    inner: Fill = "hidden * expand"
    kernel: Fill = "mamba_d_conv=4"
    state: Fill = "mamba_d_state=16"
    rank: str = "mamba_dt_rank"
    conv_bias: Fill = "mamba_conv_bias=true"
    bias: Fill = "mamba_proj_bias"
    normed: Fill = True
    """Time step, B and C are normed."""
    parted: bool = False
    """What is not a large matrix is distinguished by whether it is shared out."""
    module: str = "mamba"

    def build(self, reader: Reader, module: str, i: int) -> Mamba1:
        """The state of layer ``i``."""
        count, hidden = reader.values.count, reader.values.name("hidden")
        inner, kernel, state = count(self.inner), count(self.kernel), count(self.state)
        given = reader.reading.fields.get(self.rank, "auto")
        rank = -(-hidden // 16) if given == "auto" else reader.reading.fields.count(self.rank)
        biases = inner * bool(count(self.conv_bias)) + (2 * inner + hidden) * bool(count(self.bias))
        # convolution, time step's bias, A (float32), D, three norms
        extra = inner * kernel + biases + inner + 2 * inner * state + 2 * inner
        extra += (rank + 2 * state) * bool(count(self.normed))
        return Mamba1(
            hidden_size=hidden,
            conv_kernel=kernel,
            intermediate_size=inner,
            state_size=state,
            time_step_rank=rank,
            conv_dtype=reader.reading.dtype,
            state_dtype=reader.state_dtype(""),
            extra_parameters=0 if self.parted else extra,
            parted_parameters=extra if self.parted else 0,
            weights=reader.reading.quant.of(module),
        )


class HeadState(Piece, frozen=True, kw_only=True, tag="mamba2"):
    """Mamba 2, with the names ``mamba_*`` unless others are given."""

    reads: ClassVar[str] = "mamba_conv_bias mamba_proj_bias mamba_ssm_dtype mamba_ssm_cache_dtype"

    heads: Fill = "mamba_n_heads|mamba_num_heads"
    head_size: str = "mamba_d_head"
    """A field; ``auto`` or none: the inner width over the heads."""
    inner: Fill = "hidden * expand"
    state: Fill = "mamba_d_state|ssm_state_size"
    groups: Fill = "mamba_n_groups=1"
    kernel: Fill = "mamba_d_conv=4"
    chunk: Fill = "mamba_chunk_size=256"
    state_dtype: str = ""
    """Where the file says nothing; empty: the model's."""
    file_says_dtype: bool = True
    """vLLM heeds what the file says of the state's type."""
    normed: Fill = True
    module: str = "mamba"

    def build(self, reader: Reader, module: str, i: int) -> Mamba2:
        """The state of layer ``i``."""
        count, fields = reader.values.count, reader.reading.fields
        heads, state, groups, inner = count(self.heads), count(self.state), count(self.groups), count(self.inner)
        given = fields.get(self.head_size, "auto")
        kernel, channels = count(self.kernel), inner + 2 * groups * state
        fields.harmless("mamba_conv_bias", "mamba_proj_bias")
        return Mamba2(
            hidden_size=reader.values.name("hidden"),
            conv_kernel=kernel,
            num_heads=heads,
            head_size=reader.values.count(f"{inner} // {heads}") if given == "auto" else fields.count(self.head_size),
            state_size=state,
            num_groups=groups,
            intermediate_size=inner,
            chunk_size=count(self.chunk),
            conv_dtype=reader.reading.dtype,
            state_dtype=reader.state_dtype(self.state_dtype) if self.file_says_dtype else reader.reading.dtype,
            # convolution and its bias, A (float32), D and the time step's bias, norm
            extra_parameters=channels * (kernel + 1) + 4 * heads + inner * bool(count(self.normed)),
            weights=reader.reading.quant.of(module),
        )


class Convolution(Piece, frozen=True, kw_only=True, tag="convolution"):
    """A short convolution."""

    width: Fill = "hidden"
    kernel: Fill = "conv_L_cache"
    bias: Fill = "conv_bias"
    both_ways: bool = False
    """Over tokens on either side: nothing is kept."""
    module: str = "conv"

    def build(self, reader: Reader, module: str, i: int) -> ShortConvolution:
        """The state of layer ``i``."""
        count, hidden = reader.values.count, reader.values.name("hidden")
        width, kernel = count(self.width), count(self.kernel)
        return ShortConvolution(
            hidden_size=hidden,
            width=width,
            conv_kernel=kernel,
            both_ways=self.both_ways,
            conv_dtype=reader.reading.dtype,
            extra_parameters=width * kernel + (4 * width + hidden) * bool(count(self.bias)),
            weights=reader.reading.quant.of(module),
        )


class Ngrams(Piece, frozen=True, kw_only=True, tag="ngrams"):
    """Qwen 4's embeddings of n-grams, in the layers that a list names, the first of which is 1."""

    reads: ClassVar[str] = (
        "ple_layer_ids ple_embed_dim ple_conv_kernel_size ngram_size heads_per_ngram ngram_vocab_size_base"
        " make_ngram_vocab_size_divisible_by split_ngram_parts hc_count"
    )

    module: str = "ple"

    def build(self, reader: Reader, module: str, i: int) -> NgramEmbedding | None:
        """What layer ``i`` has of them; None where it has nothing."""
        count, hidden = reader.values.count, reader.values.name("hidden")
        named = reader.reading.fields.get("ple_layer_ids")
        if not isinstance(named, list) or i + 1 not in named:
            return None
        width, kernel = hidden * count("hc_count"), count("ple_conv_kernel_size=4")
        size = count("ple_embed_dim=hidden")
        return NgramEmbedding(
            hidden_size=hidden,
            conv_kernel=kernel,
            width=width,
            embedding_size=size,
            dilation=count("ngram_size=3"),
            conv_dtype=reader.reading.dtype,
            extra_parameters=width * (3 + kernel),
            # a table for every head, with a part of the embedding each
            parted_parameters=count("ngram_vocab_size_base=20000000") * size,
            weights=reader.reading.quant.of(module),
        )


class PagedConvolutions(Piece, frozen=True, kw_only=True, tag="paged_convolutions"):
    """Short convolutions beside attention, whose last inputs lie in blocks."""

    heads: Fill = "kv_heads"
    head_dim: Fill = "head_dim"
    kernel: Fill = "conv_kernel_size=4"
    module: str = "sconv"

    def build(self, reader: Reader, module: str, i: int) -> PagedConvolution:
        """The convolutions of layer ``i``."""
        count, hidden = reader.values.count, reader.values.name("hidden")
        heads, size, kernel = count(self.heads), count(self.head_dim), count(self.kernel)
        return PagedConvolution(
            hidden_size=hidden,
            num_heads=heads,
            head_size=size,
            conv_kernel=kernel,
            extra_parameters=(2 * heads * size + 2 * hidden) * kernel,
            weights=reader.reading.quant.of(module),
        )


class Linear(Piece, frozen=True, kw_only=True, tag="linear"):
    """Linear attention with decays that are fixed per head."""

    heads: Fill = "heads"
    head_dim: Fill = "head_dim"
    bias: Fill = False
    output_bias: Fill = False
    head_norms: Fill = False
    module: str = "self_attn"

    def build(self, reader: Reader, module: str, i: int) -> LinearAttention:
        """The state of layer ``i``."""
        count, hidden = reader.values.count, reader.values.name("hidden")
        heads, size = count(self.heads), count(self.head_dim)
        biases = 3 * heads * size * bool(count(self.bias)) + hidden * bool(count(self.output_bias))
        return LinearAttention(
            hidden_size=hidden,
            conv_kernel=0,
            num_heads=heads,
            head_size=size,
            conv_dtype=reader.reading.dtype,
            state_dtype=reader.reading.dtype,
            # the norm before the output, and those of queries and keys
            extra_parameters=biases + heads * size + 2 * size * bool(count(self.head_norms)),
            weights=reader.reading.quant.of(module),
        )


# ---------------------------------------------------------------------------------------------------------------------
# What a token goes through between them.


class Dense(Piece, frozen=True, kw_only=True, tag="dense"):
    """One MLP."""

    width: Fill = "width"
    gated: Fill = True
    replicated: bool = False
    """Every GPU holds it: vLLM does not know how to share it out."""
    repeats: Fill = False
    """Whether its matrices are those of an earlier layer: an expression over ``i``."""
    bias: Fill = False
    extra: Fill = 0
    module: str = "mlp"

    def build(self, reader: Reader, module: str, i: int) -> DenseMLP:
        """The MLP of layer ``i``."""
        count, hidden = reader.values.count, reader.values.name("hidden")
        width, gated = count(self.width, i=i), bool(count(self.gated))
        return DenseMLP(
            hidden_size=hidden,
            width=width,
            gated=gated,
            replicated=self.replicated,
            repeats=bool(count(self.repeats, i=i)),
            extra_parameters=((2 if gated else 1) * width + hidden) * bool(count(self.bias)) + count(self.extra),
            weights=reader.reading.quant.of(module),
        )


class Experts(Piece, frozen=True, kw_only=True, tag="experts"):
    """Experts behind a router, and perhaps one that every token visits."""

    count: Fill = "experts"
    per_token: Fill = "per_token"
    width: Fill = "expert_width"
    inner: Fill = 0
    """What experts see is so wide, between two matrices that all tokens go through; 0: as wide as the model."""
    shared_width: Fill = 0
    gated: Fill = True
    repeats: Fill = False
    """Whether router and experts are those of an earlier layer: an expression over ``i``."""
    extra: Fill = 0
    """What the router has besides its matrix, biases, the shared expert's gate."""
    module: str = "mlp.experts"
    shared: str = ""
    four_bits: Fill = False
    """Whether experts are MXFP4 where the rest of a checkpoint is fp8."""
    least_width: Fill = 0
    multiples: tuple[int, int] = (1, 1)
    """MXFP4 kernels want hidden and MLP width in multiples of these."""

    def build(self, reader: Reader, module: str, i: int) -> MoE:
        """The experts of layer ``i``."""
        values, hidden, quant = reader.values, reader.values.name("hidden"), reader.reading.quant
        count, weights = values.count(self.count), quant.of(module, experts=True)
        if quant.method == "fp8" and values.value(self.four_bits):
            weights = MXFP4
        multiples = self.multiples if weights.name == "mxfp4" else (1, 1)
        inner = values.count(self.inner)
        shared_width = values.count(self.shared_width)
        repeats = bool(values.count(self.repeats, i=i))
        return MoE(
            hidden_size=inner or hidden,
            num_experts=count,
            num_experts_per_tok=values.count(self.per_token, i=i),
            width=values.count(self.width),
            shared_width=shared_width * hidden // inner if inner else shared_width,
            gated=bool(values.count(self.gated)),
            extra_parameters=hidden * ((0 if repeats else count) + 2 * inner) + values.count(self.extra),
            weights=weights,
            shared_weights=quant.of(module.removesuffix(self.module) + self.shared if self.shared else module),
            repeats=repeats,
            hidden_multiple=multiples[0],
            width_multiple=multiples[1],
            least_width=values.count(self.least_width),
        )
