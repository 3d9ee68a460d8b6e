"""Decoders whose layers are all alike, from a handful of sizes."""

from __future__ import annotations

from tokenyard.core.config import require_int
from tokenyard.models.formats import plain_format
from tokenyard.models.layers import DenseMLP, LayerSpec, MoE
from tokenyard.models.mixers import SoftmaxAttention
from tokenyard.models.spec import ModelSpec

__all__ = ["uniform_decoder"]


def uniform_decoder(
    *,
    name: str,
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    vocab_size: int,
    max_model_len: int,
    intermediate_size: int = 0,
    dtype: str = "bfloat16",
    tie_word_embeddings: bool = False,
    num_experts: int = 0,
    num_experts_per_tok: int = 0,
    moe_intermediate_size: int = 0,
    shared_intermediate_size: int = 0,
) -> ModelSpec:
    """A dense or mixture-of-experts decoder with grouped-query attention, not quantised.

    ``intermediate_size`` is the width of a dense layer's gated MLP, ``moe_intermediate_size`` that of one expert.
    Raises ConfigError if a size cannot work.
    """
    require_int("num_layers", num_layers, 1, 1 << 16)
    weights = plain_format(dtype)
    attention = SoftmaxAttention(
        hidden_size=hidden_size, num_heads=num_heads, num_kv_heads=num_kv_heads, head_size=head_size, weights=weights
    )
    mlp: DenseMLP | MoE
    if num_experts:
        mlp = MoE(
            hidden_size=hidden_size,
            num_experts=num_experts,
            num_experts_per_tok=num_experts_per_tok,
            width=moe_intermediate_size,
            shared_width=shared_intermediate_size,
            extra_parameters=hidden_size * num_experts,
            weights=weights,
            shared_weights=weights,
        )
    else:
        mlp = DenseMLP(hidden_size=hidden_size, width=intermediate_size, weights=weights)
    layer = LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=2 * hidden_size)
    return ModelSpec(
        name=name,
        layers=(layer,) * num_layers,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        max_model_len=max_model_len,
        dtype=dtype,
        tie_word_embeddings=tie_word_embeddings,
        other_parameters=hidden_size,
    )
