"""What a step has to do, counted: FLOP and bytes of one GPU, by kind of layer and number format.

Counts follow from the model's layers and from how they are shared out:

    tensor parallel   matrices and heads are cut over ``tp`` GPUs; two all-reduces per layer
    pipeline          a GPU has the layers of its stage
    expert parallel   whole experts are dealt out over ``tp x dp`` GPUs; tokens travel to them and back
    data parallel     every rank has its own requests and attention; with experts the ranks step together
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tokenyard.models.attention import Attends, LatentAttention, SoftmaxAttention
from tokenyard.models.layer import Mixer
from tokenyard.models.mlp import DenseMLP, MoE
from tokenyard.models.spec import ModelSpec
from tokenyard.models.state_space import StateSpace
from tokenyard.models.weights import WeightFormat, dtype_bytes, plain_format

__all__ = ["Amounts", "Attention", "Experts", "Linear", "Parallelism", "amounts", "kv_element_bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How a model is spread over GPUs."""

    tensor: int = 1
    data: int = 1
    pipeline: int = 1
    expert: bool = False
    """Whole experts are dealt out over tensor x data GPUs, not cut."""
    gpus_per_machine: int = 0
    """Of one machine; 0: nobody says, and as many as machines with such GPUs usually have."""

    @property
    def num_gpus(self) -> int:
        return self.tensor * self.data * self.pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Matrix products that every token goes through, of one number format."""

    weights: WeightFormat
    parameters: int
    """On one GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Experts of layers that are alike."""

    weights: WeightFormat
    layers: int
    num_experts: int
    """Of one layer, on all GPUs."""
    num_local: int
    """Of them, on one GPU, in whole or in part."""
    per_token: int
    parameters: int
    """Of one expert, on one GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Layers that read keys and values, and are alike."""

    layers: int
    kv_bytes: float
    """Per token and layer, on one GPU."""
    pair_flops: float
    """Per (query, key) pair and layer in prefill, on one GPU."""
    decode_flops: float
    """Per (query, key) pair and layer in decode; latent attention works in the compressed space there."""
    window: int
    """Tokens that can be seen; 0: all."""
    latent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Counts of one GPU."""

    linear: tuple[Linear, ...]
    head: Linear
    experts: tuple[Experts, ...]
    attention: tuple[Attention, ...]
    state_bytes: float
    """Recurrent states of one request: read and written in every step."""
    state_flops: float
    """Per token, in layers with a state."""
    elementwise_bytes: float
    """Activations per token that pass through memory between the matrix products."""
    layers: int
    expert_layers: int
    """Layers whose MLP is a choice among experts."""
    all_reduces: int
    hidden_bytes: int
    """Of one token."""


def amounts(spec: ModelSpec, parallel: Parallelism, kv_dtype: str | None = None) -> Amounts:
    """The counts for one GPU of the first pipeline stage, or the mean over stages where layers do not divide."""
    tp, share = parallel.tensor, 1 / parallel.pipeline
    kv_bytes = kv_element_bytes(kv_dtype if kv_dtype not in (None, "auto") else spec.kv_cache_dtype or spec.dtype)
    linear: Counter[WeightFormat] = Counter()
    experts: Counter[tuple[MoE, int]] = Counter()
    attention: Counter[Attention] = Counter()
    state_bytes = state_flops = width = 0.0
    plain = plain_format(spec.dtype)
    for layer, count in spec.layer_counts:
        for mixer in layer.mixers:
            linear[mixer.weights] += count * mixer.num_parameters(tp)
            width += count * _mixer_width(mixer, tp)
            if isinstance(mixer, StateSpace):
                state_bytes += count * 2.0 * mixer.state_bytes(tp)
                state_flops += count * 3.0 * mixer.state_bytes(tp) / dtype_bytes(mixer.state_dtype)
            else:
                attention[_attention(mixer, tp, kv_bytes)] += count
        mlp = layer.mlp
        if isinstance(mlp, DenseMLP):
            linear[mlp.weights] += count * mlp.num_parameters(tp)
            width += count * 3 * mlp.width / tp
        elif isinstance(mlp, MoE):
            linear[mlp.shared_weights] += count * mlp.shared_parameters(tp)
            linear[plain] += count * mlp.extra_parameters
            experts[mlp, tp] += count
            width += count * 3 * (mlp.num_experts_per_tok * mlp.width / tp + mlp.shared_width / tp)
        width += count * 4 * spec.hidden_size
    head = spec.head_weights or plain
    return Amounts(
        linear=tuple(Linear(weights=w, parameters=int(n * share)) for w, n in linear.items() if n),
        head=Linear(weights=head, parameters=int(spec.head_parameters * share / tp)),
        experts=tuple(_experts(mlp, parallel, count * share) for (mlp, _), count in experts.items()),
        attention=tuple(
            Attention(
                layers=int(count * share) or 1,
                kv_bytes=each.kv_bytes,
                pair_flops=each.pair_flops,
                decode_flops=each.decode_flops,
                window=each.window,
                latent=each.latent,
            )
            for each, count in attention.items()
        ),
        state_bytes=state_bytes * share,
        state_flops=state_flops * share,
        elementwise_bytes=width * share * spec.dtype_bytes,
        layers=int(spec.num_layers * share),
        expert_layers=int(sum(experts.values()) * share),
        all_reduces=int(2 * spec.num_layers * share) if tp > 1 else 0,
        hidden_bytes=spec.hidden_size * spec.dtype_bytes,
    )


def kv_element_bytes(dtype: str) -> float:
    """Bytes per element of keys and values, by the names that ``--kv-cache-dtype`` takes."""
    return 0.5625 if dtype == "nvfp4" else 1.0 if dtype.startswith("fp8") else dtype_bytes(dtype)


def _mixer_width(mixer: Mixer, tp: int) -> float:
    heads = getattr(mixer, "num_heads", 0)
    size = getattr(mixer, "head_size", 0) or getattr(mixer, "v_head_dim", 0)
    return 2.0 * heads * size / tp


def _attention(mixer: Mixer, tp: int, kv_bytes: float) -> Attention:
    if isinstance(mixer, LatentAttention):
        heads = mixer.num_heads / tp
        prefill = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim
        return Attention(
            layers=0,
            kv_bytes=mixer.latent_size * kv_bytes,
            pair_flops=2.0 * heads * prefill,
            decode_flops=2.0 * heads * (mixer.latent_size + mixer.kv_lora_rank),
            window=mixer.indexer.topk if mixer.indexer is not None else 0,
            latent=True,
        )
    assert isinstance(mixer, SoftmaxAttention)
    flops = 2.0 * mixer.num_heads / tp * (mixer.head_size + mixer.value_size)
    windowed = mixer.attends in (Attends.SLIDING_WINDOW, Attends.CHUNKED)
    return Attention(
        layers=0,
        kv_bytes=mixer.kv_heads(tp) * (mixer.head_size + mixer.value_size) * kv_bytes,
        pair_flops=flops,
        decode_flops=flops,
        window=mixer.window if windowed else 0,
        latent=False,
    )


def _experts(mlp: MoE, parallel: Parallelism, layers: float) -> Experts:
    """vLLM spreads experts over all tensor x data parallel GPUs: whole ones if asked to, else every one cut."""
    group = parallel.tensor * parallel.data
    return Experts(
        weights=mlp.weights,
        layers=max(1, int(layers)),
        num_experts=mlp.num_experts,
        num_local=-(-mlp.num_experts // group) if parallel.expert else mlp.num_experts,
        per_token=mlp.num_experts_per_tok,
        parameters=mlp.expert_parameters if parallel.expert else mlp.expert_parameters // group,
    )
