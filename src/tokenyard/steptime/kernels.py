"""Kernels of a layer, counted: what a step costs however few tokens it has.

With few requests a step is as long as its kernels are many: each has its launch, and a grid that does not fill the GPU.
Counts are of vLLM's model code, fusions of torch.compile included; all-reduces count elsewhere. Products over experts
count for more than one each, by timings: with few tokens experts in bfloat16, FP8 or widened 4 bits take 34 to 44 us a
layer (``lab/kernel_shares.py``), where ten plain kernels take less.
"""

from __future__ import annotations

from tokenyard.models.formats import WeightFormat
from tokenyard.models.layers import DenseMLP, LayerSpec, MoE
from tokenyard.models.mixers import CompressedAttention, LatentAttention, PagedConvolution, SoftmaxAttention, StateSpace
from tokenyard.models.spec import ModelSpec

_ATTENTION = 7
"""Norm, projection of queries, keys and values, rotary positions, KV into its cache, attention over parts of the
context and what joins them, projection of the output."""
_LATENT = 13
"""The same; two more projections and two norms of compressed vectors, keys and values taken into queries and output."""
_HEAD_NORMS, _FULL_NORMS = 2, 4
"""One for queries, one for keys; over all heads sums and their joining come first."""
_STATE = 8
"""Norm, projections, convolution, gates, recurrence, norm of its output, projection of the output."""
_DENSE = 4
"""Norm, gate and up, activation, down."""
_EXPERTS = 13
"""Norm, router, choice, tokens in the order of experts, gate and up, activation, down, sum: 8, two of them long."""
_FUSED_EXPERTS = 7
"""Choice and activation lie within other kernels."""
_QUANTISING = 2
"""Activations before each of two products."""

FEWER_WHERE_FUSED = _EXPERTS - _FUSED_EXPERTS
"""Kernels that a layer has fewer where the GPU has units for experts of 4 bits."""
_ARITHMETIC = {name: name for name in ("float8", "int8", "float4")} | dict.fromkeys(
    ("float8_e4m3fn", "float8_e5m2"), "float8"
)


def kernels_of(layer: LayerSpec) -> int:
    """Kernels of a layer, experts of 4 bits as where they are widened."""
    count = 0
    for mixer in layer.mixers:
        if isinstance(mixer, StateSpace | PagedConvolution):
            count += _STATE
        elif isinstance(mixer, LatentAttention | CompressedAttention):
            count += _LATENT
        else:
            count += _ATTENTION + _HEAD_NORMS * mixer.head_norms + _FULL_NORMS * mixer.full_norms
        count += _quantising(mixer.weights)
    mlp = layer.mlp
    if isinstance(mlp, DenseMLP):
        count += _DENSE + _quantising(mlp.weights)
    elif isinstance(mlp, MoE):
        count += _EXPERTS + (_quantising(mlp.weights) if storage_kind(mlp.weights) != "4" else 0)
        if mlp.shared_width:
            count += _DENSE - 1 + _quantising(mlp.shared_weights)
    return count


def full_norms(spec: ModelSpec) -> int:
    """Layers whose queries and keys are normed over all heads: with several GPUs they add up sums of squares."""
    return sum(
        count
        for layer, count in spec.layer_counts
        for mixer in layer.mixers
        if isinstance(mixer, SoftmaxAttention) and mixer.full_norms
    )


def storage_kind(weights: WeightFormat) -> str:
    """Bits per weight in memory, as constants are named: 16, 8 or 4."""
    return "16" if weights.bits > 8 else "8" if weights.bits > 4 else "4"


def arithmetic_name(weights: WeightFormat) -> str:
    """Arithmetic that such weights are made for: bfloat16, float8, int8 or float4."""
    return _ARITHMETIC.get(weights.compute, "bfloat16")


def _quantising(weights: WeightFormat) -> int:
    """Kernels that quantise activations, of two products with such weights."""
    return 0 if arithmetic_name(weights) == "bfloat16" else _QUANTISING
