"""What turns pictures or sound into embeddings before the decoder sees them."""

from __future__ import annotations

from dataclasses import dataclass

from tokenyard.config import require_int
from tokenyard.models.weights import BFLOAT16, WeightFormat

__all__ = ["EncoderSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """A vision or audio tower with its projector."""

    kind: str
    """vision or audio."""
    num_parameters: int
    replicated_parameters: int = 0
    """Those of them that every GPU of a tensor-parallel group holds: convolutions, positions, projector."""
    max_tokens_per_item: int = 0
    """Embeddings that the largest picture or clip becomes; 0: not known."""
    weights: WeightFormat = BFLOAT16

    def __post_init__(self) -> None:
        require_int("num_parameters", self.num_parameters, 1)
        require_int("replicated_parameters", self.replicated_parameters, 0, self.num_parameters)
        require_int("max_tokens_per_item", self.max_tokens_per_item, 0)

    def num_bytes(self, tp: int = 1) -> int:
        """Weights on one GPU, in bytes: vLLM shares them out as it does the decoder's."""
        shared = self.num_parameters - self.replicated_parameters
        return self.weights.num_bytes(shared) // tp + self.weights.num_bytes(self.replicated_parameters)
