"""One layer of a decoder: what mixes tokens, and the MLP or experts that a token goes through beside it."""

from __future__ import annotations

from collections.abc import Iterator

from tokenyard.core.config import require_counts, require_int
from tokenyard.models.formats import BFLOAT16, WeightFormat
from tokenyard.models.mixers import Attends, LatentAttention, Mixer, SoftmaxAttention, StateSpace
from tokenyard.quick_dataclass import dataclass

MOST_LAYERS = 10_000
"""Far more than any model has; a file that names more is a mistake, or is meant to take long."""

# ---------------------------------------------------------------------------------------------------------------------
# What a token goes through between attention layers: one MLP, or a choice among experts.


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMLP:
    """One MLP for every token."""

    hidden_size: int
    width: int
    gated: bool = True
    """Three matrices (gate, up, down), not two."""
    replicated: bool = False
    """Every GPU of a tensor-parallel group holds it."""
    repeats: bool = False
    """Its matrices are those of an earlier layer: read again, but kept once (Zamba 2)."""
    extra_parameters: int = 0
    """Biases: kept in the model's dtype, on every GPU."""
    weights: WeightFormat = BFLOAT16

    def __post_init__(self) -> None:
        require_counts(self, "gated", hidden_size=1, extra_parameters=0)
        require_int("intermediate_size", self.width, 1)

    def num_parameters(self, tp: int = 1) -> int:
        return (3 if self.gated else 2) * self.hidden_size * self.width // (1 if self.replicated else tp)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoE:
    """Experts of which a router picks some for every token, and perhaps one that every token visits."""

    hidden_size: int
    num_experts: int
    num_experts_per_tok: int
    width: int
    """Width of one expert."""
    shared_width: int = 0
    """Width of what every token visits besides (all shared experts together); 0: nothing."""
    gated: bool = True
    extra_parameters: int = 0
    """Router, biases, the shared expert's gate: kept in the model's dtype, on every GPU."""
    weights: WeightFormat = BFLOAT16
    """Format of the experts."""
    shared_weights: WeightFormat = BFLOAT16
    hidden_multiple: int = 1
    """Experts are stored with hidden and MLP width rounded up to multiples of these: what their kernels want."""
    width_multiple: int = 1
    repeats: bool = False
    """The experts are those of an earlier layer: read again, but kept once (Intern S2 Mobius)."""
    least_width: int = 0
    """What a GPU stores of an expert is at least so wide, however many share it out."""

    def __post_init__(self) -> None:
        require_counts(self, hidden_size=1, num_experts=1, hidden_multiple=1, width_multiple=1, extra_parameters=0)
        require_int("num_experts_per_tok", self.num_experts_per_tok, 1, self.num_experts)
        require_int("moe_intermediate_size", self.width, 1)
        require_int("shared_intermediate_size", self.shared_width, 0)

    @property
    def _matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def expert_parameters(self) -> int:
        """Parameters of one expert."""
        return self._matrices * self.hidden_size * self.width

    def shared_parameters(self, tp: int = 1) -> int:
        """Parameters of what every token visits."""
        return self._matrices * self.hidden_size * self.shared_width // tp

    def routed_parameters(self, tp: int = 1, ep: int = 1) -> int:
        """Parameters of all experts on one GPU: whole ones over ``ep`` GPUs, or else all of them cut over ``tp``."""
        if ep > 1:
            return -(-self.num_experts // ep) * self.expert_parameters
        return self.num_experts * self.expert_parameters // tp

    def weights_on(self, tp: int = 1, ep: int = 1) -> WeightFormat:
        """How experts are stored on one GPU."""
        return self.weights.dividing(self.hidden_size, self.width if ep > 1 else self.width // tp)

    def stored_parameters(self, tp: int = 1, ep: int = 1) -> int:
        """The :meth:`routed_parameters`, with what rounding adds."""
        if self.repeats:
            return 0
        if self.hidden_multiple == self.width_multiple == 1 and not self.least_width:
            return self.routed_parameters(tp, ep)
        experts, share = (-(-self.num_experts // ep), 1) if ep > 1 else (self.num_experts, tp)
        hidden = -(-self.hidden_size // self.hidden_multiple) * self.hidden_multiple
        width = max(-(-self.width // share // self.width_multiple) * self.width_multiple, self.least_width)
        return experts * self._matrices * hidden * width


# ---------------------------------------------------------------------------------------------------------------------
# One layer of a decoder: what mixes tokens, and the MLP.


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """One layer. Layers that are made alike compare equal."""

    mixers: tuple[Mixer, ...] = ()
    """None in a layer that is an MLP alone (Nemotron-H), two in Falcon-H1 (side by side) and in an encoder-decoder."""
    mlp: DenseMLP | MoE | None = None
    norm_parameters: int = 0
    """Kept in the model's dtype, on every GPU."""
    repeats: bool = False
    """Its weights are those of an earlier layer: read again, but kept once (HRM, IQuest's loops)."""

    def parameters_by_format(
        self, tp: int = 1, ep: int = 1, *, stored: bool = False
    ) -> Iterator[tuple[WeightFormat, int]]:
        """Large matrices on one GPU of a tensor-parallel group of ``tp`` (experts: over ``ep`` GPUs if above 1).

        As they are, or as they are ``stored``.
        """
        for mixer in self.mixers:
            yield mixer.weights, mixer.num_parameters(tp)
        if isinstance(self.mlp, DenseMLP):
            if not (stored and self.mlp.repeats):
                yield self.mlp.weights, self.mlp.num_parameters(tp)
        elif isinstance(self.mlp, MoE):
            count = self.mlp.stored_parameters if stored else self.mlp.routed_parameters
            yield self.mlp.weights_on(tp, ep), count(tp, ep)
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
    def attends_to_all(self) -> bool:
        """Whether its tokens see every token before them."""
        return any(
            (isinstance(mixer, LatentAttention) and not mixer.window)
            or (isinstance(mixer, SoftmaxAttention) and mixer.attends is Attends.FULL)
            for mixer in self.mixers
        )

    @property
    def other_parameters(self) -> int:
        """Norms, biases, routers: kept in the model's dtype, on every GPU but for what states share out."""
        return self._others(1)

    def _others(self, tp: int) -> int:
        parts = (*self.mixers, self.mlp) if self.mlp is not None else self.mixers
        parted = sum(mixer.parted_parameters for mixer in self.mixers if isinstance(mixer, StateSpace))
        return self.norm_parameters + sum(part.extra_parameters for part in parts) + parted // tp

    def num_bytes(self, dtype_bytes: int, tp: int = 1, ep: int = 1) -> int:
        """Weights on one GPU, in bytes."""
        if self.repeats:
            return 0
        stored = self.parameters_by_format(tp, ep, stored=True)
        matrices = sum(weights.num_bytes(count) for weights, count in stored)
        return matrices + self._others(tp) * dtype_bytes

    @property
    def num_parameters(self) -> int:
        """All weights that are its own."""
        if self.repeats:
            return 0
        return self._all_parameters - self._borrowed_parameters

    @property
    def _borrowed_parameters(self) -> int:
        """Parameters of an MLP or of experts that an earlier layer keeps."""
        if self.mlp is None or not self.mlp.repeats:
            return 0
        return self.mlp.num_parameters() if isinstance(self.mlp, DenseMLP) else self.mlp.routed_parameters()

    @property
    def _all_parameters(self) -> int:
        return self.other_parameters + sum(count for _, count in self.parameters_by_format())

    @property
    def num_active_parameters(self) -> int:
        """Weights that one token goes through."""
        if not isinstance(self.mlp, MoE):
            return self._all_parameters
        idle = self.mlp.num_experts - self.mlp.num_experts_per_tok
        return self._all_parameters - idle * self.mlp.expert_parameters


def _columns_not_parted(width: int, weights: WeightFormat, tp: int) -> str | None:
    """Columns of an MLP whose quantised blocks cannot be shared out."""
    if width % (tp * weights.alignment) == 0:
        return None
    return f"{width / weights.alignment:g} blocks of {weights.alignment} columns ({weights.name}) in the MLP"
