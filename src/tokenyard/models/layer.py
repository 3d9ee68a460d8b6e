"""One layer of a decoder: what mixes tokens, and the MLP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tokenyard.models.attention import LatentAttention, SoftmaxAttention
from tokenyard.models.mlp import DenseMLP, MoE
from tokenyard.models.state_space import StateSpace
from tokenyard.models.weights import WeightFormat

__all__ = ["LayerSpec", "Mixer"]

Mixer = SoftmaxAttention | LatentAttention | StateSpace
"""What lets a token know of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One layer. Layers that are made alike compare equal."""

    mixers: tuple[Mixer, ...] = ()
    """None in a layer that is an MLP alone (Nemotron-H), two in Falcon-H1 (side by side) and in an encoder-decoder."""
    mlp: DenseMLP | MoE | None = None
    norm_parameters: int = 0
    """Kept in the model's dtype, on every GPU."""

    def parameters_by_format(
        self, tp: int = 1, ep: int = 1, *, stored: bool = False
    ) -> Iterator[tuple[WeightFormat, int]]:
        """Large matrices on one GPU of a tensor-parallel group of ``tp`` (experts: over ``ep`` GPUs if above 1).

        As they are, or as they are ``stored``.
        """
        for mixer in self.mixers:
            yield mixer.weights, mixer.num_parameters(tp)
        if isinstance(self.mlp, DenseMLP):
            yield self.mlp.weights, self.mlp.num_parameters(tp)
        elif isinstance(self.mlp, MoE):
            count = self.mlp.stored_parameters if stored else self.mlp.routed_parameters
            yield self.mlp.weights, count(tp, ep)
            yield self.mlp.shared_weights, self.mlp.shared_parameters(tp)

    def why_not_parted(self, tp: int) -> str | None:
        """What cannot be shared out over ``tp`` GPUs, if there is anything: "32 heads"."""
        for mixer in self.mixers:
            heads, shared = getattr(mixer, "num_heads", tp), getattr(mixer, "num_kv_heads", tp)
            if heads % tp:
                return f"{heads} heads"
            if shared % tp and tp % shared:
                return f"{shared} KV heads"
        if isinstance(self.mlp, DenseMLP):
            return _columns_not_parted(self.mlp.width, self.mlp.weights, tp)
        return None if self.mlp is None else _columns_not_parted(self.mlp.shared_width, self.mlp.shared_weights, tp)

    @property
    def other_parameters(self) -> int:
        """Norms, biases, routers: kept in the model's dtype, on every GPU."""
        parts = (*self.mixers, self.mlp) if self.mlp is not None else self.mixers
        return self.norm_parameters + sum(part.extra_parameters for part in parts)

    def num_bytes(self, dtype_bytes: int, tp: int = 1, ep: int = 1) -> int:
        """Weights on one GPU, in bytes."""
        stored = self.parameters_by_format(tp, ep, stored=True)
        matrices = sum(weights.num_bytes(count) for weights, count in stored)
        return matrices + self.other_parameters * dtype_bytes

    @property
    def num_parameters(self) -> int:
        """All weights."""
        return self.other_parameters + sum(count for _, count in self.parameters_by_format())

    @property
    def num_active_parameters(self) -> int:
        """Weights that one token goes through."""
        if not isinstance(self.mlp, MoE):
            return self.num_parameters
        idle = self.mlp.num_experts - self.mlp.num_experts_per_tok
        return self.num_parameters - idle * self.mlp.expert_parameters


def _columns_not_parted(width: int, weights: WeightFormat, tp: int) -> str | None:
    """Columns of an MLP whose quantised blocks cannot be shared out."""
    if width % (tp * weights.alignment) == 0:
        return None
    return f"{width / weights.alignment:g} blocks of {weights.alignment} columns ({weights.name}) in the MLP"
