"""The mean layer: what a step's time is estimated from, for models whose layers may differ.

Counts of heads are those of the first layer that has any; parameters are means over all layers.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenyard.models.attention import LatentAttention, SoftmaxAttention
from tokenyard.models.layer import LayerSpec
from tokenyard.models.mlp import DenseMLP, MoE
from tokenyard.models.weights import dtype_bytes as bytes_of

__all__ = ["MeanLayer"]


class MeanLayer:
    """Properties of the mean layer; to be inherited by what has ``layers``."""

    __slots__ = ()

    layers: tuple[LayerSpec, ...]
    dtype: str

    def _attention(self) -> Iterator[SoftmaxAttention | LatentAttention]:
        for layer in self.layers:
            for mixer in layer.mixers:
                if isinstance(mixer, SoftmaxAttention | LatentAttention):
                    yield mixer

    def _experts(self) -> MoE | None:
        return next((layer.mlp for layer in self.layers if isinstance(layer.mlp, MoE)), None)

    @property
    def num_heads(self) -> int:
        return next((mixer.num_heads for mixer in self._attention()), 1)

    @property
    def num_kv_heads(self) -> int:
        """1 where keys are compressed for all heads."""
        first = next(self._attention(), None)
        return first.num_kv_heads if isinstance(first, SoftmaxAttention) else 1

    @property
    def head_size(self) -> int:
        first = next(self._attention(), None)
        if isinstance(first, LatentAttention):
            return first.qk_nope_head_dim + first.qk_rope_head_dim
        return first.head_size if first is not None else 1

    @property
    def intermediate_size(self) -> int:
        """Width of a dense layer's MLP, of the first that has one; 0 if none has."""
        return next((layer.mlp.width for layer in self.layers if isinstance(layer.mlp, DenseMLP)), 0)

    @property
    def num_experts(self) -> int:
        """Per layer; 0 for a dense model."""
        experts = self._experts()
        return experts.num_experts if experts is not None else 0

    @property
    def num_experts_per_tok(self) -> int:
        experts = self._experts()
        return experts.num_experts_per_tok if experts is not None else 0

    @property
    def moe_intermediate_size(self) -> int:
        """Width of one expert."""
        experts = self._experts()
        return experts.width if experts is not None else 0

    @property
    def shared_intermediate_size(self) -> int:
        """Width of what every token visits besides its experts."""
        experts = self._experts()
        return experts.shared_width if experts is not None else 0

    @property
    def attention_parameters(self) -> int:
        """Of the mean layer: projections of whatever mixes tokens."""
        return sum(m.num_parameters() for layer in self.layers for m in layer.mixers) // len(self.layers)

    @property
    def dense_mlp_parameters(self) -> int:
        """Of the mean layer: what every token goes through between attention blocks (routing included)."""
        total = 0
        for layer in self.layers:
            mlp = layer.mlp
            if isinstance(mlp, DenseMLP):
                total += mlp.num_parameters()
            elif isinstance(mlp, MoE):
                total += mlp.shared_parameters() + mlp.extra_parameters
        return total // len(self.layers)

    @property
    def expert_parameters(self) -> int:
        """Of one expert of the mean layer."""
        experts = (layer.mlp.expert_parameters for layer in self.layers if isinstance(layer.mlp, MoE))
        return sum(experts) // len(self.layers)

    def kv_bytes_per_token(self, tensor_parallel_size: int = 1, kv_dtype_bytes: int | None = None) -> int:
        """Keys and values of one token in all layers that attend, per GPU, in bytes, windows or not."""
        size = kv_dtype_bytes or bytes_of(self.dtype)
        return sum(_kv_elements(mixer, tensor_parallel_size) * size for mixer in self._attention())


def _kv_elements(mixer: SoftmaxAttention | LatentAttention, tp: int) -> int:
    if isinstance(mixer, LatentAttention):
        return mixer.latent_size
    return 0 if mixer.shares_kv else mixer.kv_heads(tp) * (mixer.head_size + mixer.value_size)
