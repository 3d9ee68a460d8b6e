"""The parts that families of models share: attention, MLP, experts, and the whole that they make up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tokenyard.models.layers import Attends, DenseMLP, LatentAttention, LayerSpec, MoE, SoftmaxAttention, WeightFormat
from tokenyard.models.reading.fields import Fields
from tokenyard.models.reading.quantization import Quantization
from tokenyard.models.spec import EncoderSpec

__all__ = [
    "Family",
    "Reading",
    "Stack",
    "attends",
    "dense_mlp",
    "experts",
    "hidden_size",
    "latent_attention",
    "num_layers",
    "softmax_attention",
    "window_by_layer",
]


# ---------------------------------------------------------------------------------------------------------------------
# The parts that families of models share: attention, MLP, experts, and the whole that they make up.

_MOST_LAYERS = 10_000
"""Far more than any model has; a file that names more is a mistake, or is meant to take long."""


@dataclass(kw_only=True)
class Reading:
    """A file being read: what the functions of all families are given."""

    fields: Fields
    """Of the language model: ``text_config`` where there is one."""
    outer: Fields
    """Of the file."""
    quant: Quantization
    architecture: str
    dtype: str
    ignore: bool = False
    """Note what is not modelled instead of raising an error."""
    ignored: list[str] = field(default_factory=list)

    def not_modelled(self, field_name: str, what: str) -> None:
        """Raise the error that names this field, or note it if asked to ignore it."""
        if not self.ignore:
            fix = f"{what} is not modelled: --ignore-unmodelled goes on without it"
            raise self.fields.error(field_name, fix)
        self.ignored.append(f"{field_name}: {what}")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """What a family makes of a file."""

    layers: tuple[LayerSpec, ...]
    hidden_size: int
    max_model_len: int = 0
    """0: as ``max_position_embeddings`` and its scaling say."""
    tie_word_embeddings: bool | None = None
    """None: as the file says."""
    other_parameters: int | None = None
    """None: the last norm."""
    encoders: tuple[EncoderSpec, ...] = ()
    max_encoder_tokens: int = 0
    replicated_embedding: bool = False


Family = Callable[[Reading], Stack]


def hidden_size(reading: Reading) -> int:
    """Width of the residual stream."""
    return reading.fields.count("hidden_size")


def num_layers(reading: Reading) -> int:
    """Layers of the decoder, each of which is looked at by itself."""
    return reading.fields.count("num_hidden_layers", high=_MOST_LAYERS)


def softmax_attention(
    reading: Reading,
    module: str,
    *,
    attends: Attends = Attends.FULL,
    window: int = 0,
    qkv_bias: bool = False,
    output_bias: bool = False,
    head_norms: int = 0,
    full_norms: bool = False,
    output_gate: bool = False,
    extra: int = 0,
    head_dim: str = "head_dim",
) -> SoftmaxAttention:
    """Grouped-query attention with the usual names; ``head_norms`` counts norms as wide as a head, ``full_norms`` says
    that queries and keys are normed over all heads.
    """
    fields, hidden = reading.fields, hidden_size(reading)
    heads = fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", heads)
    size = fields.count(head_dim, max(1, hidden // heads))
    biases = (heads + 2 * kv_heads) * size * qkv_bias + hidden * output_bias
    norms = head_norms * size + (heads + kv_heads) * size * full_norms
    return SoftmaxAttention(
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_size=size,
        attends=attends,
        window=window,
        output_gate=output_gate,
        extra_parameters=biases + norms + extra,
        weights=reading.quant.of(module),
    )


def latent_attention(reading: Reading, module: str) -> LatentAttention:
    """Multi-head latent attention with DeepSeek's names."""
    fields, hidden = reading.fields, hidden_size(reading)
    rank, query_rank = fields.count("kv_lora_rank"), fields.count("q_lora_rank", 0, low=0)
    fields.passed_over("num_key_value_heads", "head_dim", "qk_head_dim")
    return LatentAttention(
        hidden_size=hidden,
        num_heads=fields.count("num_attention_heads"),
        kv_lora_rank=rank,
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim"),
        v_head_dim=fields.count("v_head_dim"),
        q_lora_rank=query_rank,
        extra_parameters=rank + query_rank,
        weights=reading.quant.of(module),
    )


def dense_mlp(
    reading: Reading, module: str, *, width: int | None = None, gated: bool = True, bias: bool = False
) -> DenseMLP:
    """The MLP of a dense layer."""
    hidden = hidden_size(reading)
    wide = width if width is not None else reading.fields.count("intermediate_size")
    return DenseMLP(
        hidden_size=hidden,
        width=wide,
        gated=gated,
        extra_parameters=((2 if gated else 1) * wide + hidden) * bias,
        weights=reading.quant.of(module),
    )


def experts(
    reading: Reading,
    module: str,
    *,
    num_experts: int,
    width: int,
    shared_width: int = 0,
    shared_module: str = "",
    per_token: int | None = None,
    gated: bool = True,
    extra: int = 0,
) -> MoE:
    """A layer's experts and their router; ``extra`` counts what the router has besides its matrix."""
    hidden = hidden_size(reading)
    return MoE(
        hidden_size=hidden,
        num_experts=num_experts,
        num_experts_per_tok=per_token or reading.fields.count("num_experts_per_tok"),
        width=width,
        shared_width=shared_width,
        gated=gated,
        extra_parameters=hidden * num_experts + extra,
        weights=reading.quant.of(module, experts=True),
        shared_weights=reading.quant.of(shared_module or module),
    )


def window_by_layer(reading: Reading, count: int) -> list[int]:
    """Window of every layer by ``layer_types``; 0: it attends to everything. All zeros where there are no types."""
    fields = reading.fields
    types = fields.per_layer("layer_types", count)
    if not types:
        return [0] * count
    known = {"full_attention": 0, "sliding_attention": 0}
    if "sliding_attention" in types:
        known["sliding_attention"] = fields.count("sliding_window")
    unknown = next((kind for kind in types if kind not in known), None)
    if unknown is not None:
        raise fields.error("layer_types", f"holds {unknown!r}: use {' or '.join(known)}")
    return [known[kind] for kind in types]


def plain(reading: Reading) -> WeightFormat:
    """Of what is never quantised."""
    return reading.quant.plain


def attends(window: int) -> Attends:
    """A window if it has any tokens."""
    return Attends.SLIDING_WINDOW if window else Attends.FULL
