"""What a token goes through between attention layers: one MLP, or a choice among experts."""

from __future__ import annotations

from dataclasses import dataclass

from tokenyard.config import require_bool, require_int
from tokenyard.models.weights import BFLOAT16, WeightFormat

__all__ = ["DenseMLP", "MoE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMLP:
    """One MLP for every token."""

    hidden_size: int
    width: int
    gated: bool = True
    """Three matrices (gate, up, down), not two."""
    extra_parameters: int = 0
    """Biases: kept in the model's dtype, on every GPU."""
    weights: WeightFormat = BFLOAT16

    def __post_init__(self) -> None:
        require_int("hidden_size", self.hidden_size, 1)
        require_int("intermediate_size", self.width, 1)
        require_bool("gated", self.gated)
        require_int("extra_parameters", self.extra_parameters, 0)

    def num_parameters(self, tp: int = 1) -> int:
        return (3 if self.gated else 2) * self.hidden_size * self.width // tp


@dataclass(frozen=True, slots=True, kw_only=True)
class MoE:
    """Experts of which a router picks some for every token, and perhaps one that every token visits."""

    hidden_size: int
    num_experts: int
    num_experts_per_tok: int
    width: int
    """Of one expert."""
    shared_width: int = 0
    """Of what every token visits besides (all shared experts together); 0: nothing."""
    gated: bool = True
    extra_parameters: int = 0
    """Router, biases, the shared expert's gate: kept in the model's dtype, on every GPU."""
    weights: WeightFormat = BFLOAT16
    """Of the experts."""
    shared_weights: WeightFormat = BFLOAT16
    hidden_multiple: int = 1
    """Experts are stored with hidden and MLP width rounded up to multiples of these: what their kernels want."""
    width_multiple: int = 1

    def __post_init__(self) -> None:
        require_int("hidden_size", self.hidden_size, 1)
        require_int("num_experts", self.num_experts, 1)
        require_int("hidden_multiple", self.hidden_multiple, 1)
        require_int("width_multiple", self.width_multiple, 1)
        require_int("num_experts_per_tok", self.num_experts_per_tok, 1, self.num_experts)
        require_int("moe_intermediate_size", self.width, 1)
        require_int("shared_intermediate_size", self.shared_width, 0)
        require_int("extra_parameters", self.extra_parameters, 0)

    @property
    def _matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def expert_parameters(self) -> int:
        """Of one expert."""
        return self._matrices * self.hidden_size * self.width

    def shared_parameters(self, tp: int = 1) -> int:
        """Of what every token visits."""
        return self._matrices * self.hidden_size * self.shared_width // tp

    def routed_parameters(self, tp: int = 1, ep: int = 1) -> int:
        """Of all experts on one GPU: whole ones over ``ep`` GPUs, or else all of them cut over ``tp``."""
        if ep > 1:
            return -(-self.num_experts // ep) * self.expert_parameters
        return self.num_experts * self.expert_parameters // tp

    def stored_parameters(self, tp: int = 1, ep: int = 1) -> int:
        """As :meth:`routed_parameters`, with what rounding adds."""
        if self.hidden_multiple == self.width_multiple == 1:
            return self.routed_parameters(tp, ep)
        experts, share = (-(-self.num_experts // ep), 1) if ep > 1 else (self.num_experts, tp)
        hidden = -(-self.hidden_size // self.hidden_multiple) * self.hidden_multiple
        width = -(-self.width // share // self.width_multiple) * self.width_multiple
        return experts * self._matrices * hidden * width
