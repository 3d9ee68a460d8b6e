"""Layers that keep a state of fixed size instead of keys and values: Mamba, gated delta nets, short convolutions.

A state has two parts: the last inputs of a short convolution (in the model's dtype) and the recurrent state itself
(``state_dtype``). Counts are of one GPU of a tensor-parallel group of ``tp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tokenyard.models.weights import BFLOAT16, WeightFormat, dtype_bytes

__all__ = ["GatedDeltaNet", "Mamba1", "Mamba2", "ShortConvolution", "StateSpace"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpace:
    """What all of them share; use one of the classes below."""

    hidden_size: int
    conv_kernel: int
    """Tokens that the convolution looks at, the present one included."""
    state_dtype: str = "bfloat16"
    """Of the recurrent state."""
    conv_dtype: str = "bfloat16"
    """Of the convolution's inputs: the model's dtype, unless ``--mamba-cache-dtype`` says otherwise."""
    extra_parameters: int = 0
    """Convolutions, decays, norms, biases: kept in the model's dtype, on every GPU."""
    weights: WeightFormat = BFLOAT16
    checkpoint_alignment: ClassVar[int] = 0
    """Its kernels can hand out the state in the middle of a prefill, at multiples of so many tokens (0.33); 0: not."""

    def num_parameters(self, tp: int = 1) -> int:
        """Of the large projections."""
        raise NotImplementedError  # of each kind of layer

    def state_shapes(self, tp: int = 1, num_drafts: int = 0) -> tuple[Shape, ...]:
        """Shapes of convolution and recurrent state; drafts lengthen the former where verification replays them."""
        raise NotImplementedError  # of each kind of layer

    def state_dtypes(self) -> tuple[str, ...]:
        """One per shape."""
        return (self.conv_dtype, self.state_dtype)

    def state_bytes(self, tp: int = 1, num_drafts: int = 0) -> int:
        """Bytes of one request's state in one layer."""
        shapes = self.state_shapes(tp, num_drafts)
        return sum(prod(shape) * dtype_bytes(dtype) for shape, dtype in zip(shapes, self.state_dtypes(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1(StateSpace):
    """Selective state space with a state per channel (Jamba)."""

    intermediate_size: int
    state_size: int
    time_step_rank: int
    chunk_size: ClassVar[int] = 2048
    """Tokens between states that are kept, where all are kept (0.22)."""

    def num_parameters(self, tp: int = 1) -> int:
        inner = self.intermediate_size // tp
        inputs = 2 * inner * self.hidden_size
        return inputs + inner * (self.time_step_rank * 2 + 2 * self.state_size) + inner * self.hidden_size

    def state_shapes(self, tp: int = 1, num_drafts: int = 0) -> tuple[Shape, ...]:
        inner = self.intermediate_size // tp
        return (self.conv_kernel - 1, inner), (inner, self.state_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2(StateSpace):
    """State space with heads and groups (Bamba, Nemotron-H, Granite 4, Falcon-H1)."""

    num_heads: int
    head_size: int
    state_size: int
    num_groups: int
    intermediate_size: int
    chunk_size: int = 256
    """Tokens that its kernels work on at once: states are kept at multiples of it where all are kept (0.22)."""
    checkpoint_alignment: ClassVar[int] = 1

    def groups(self, tp: int = 1) -> int:
        """Groups over all GPUs: where they cannot be shared out, every GPU gets its copy."""
        return self.num_groups if self.num_groups % tp == 0 else self.num_groups + tp - self.num_groups

    def num_parameters(self, tp: int = 1) -> int:
        groups = 2 * self.groups(tp) * self.state_size
        inputs = (2 * self.intermediate_size + groups + self.num_heads) // tp
        return self.hidden_size * (inputs + self.intermediate_size // tp)

    def state_shapes(self, tp: int = 1, num_drafts: int = 0) -> tuple[Shape, ...]:
        channels = self.intermediate_size + 2 * self.groups(tp) * self.state_size
        convolution = (self.conv_kernel - 1 + num_drafts, channels // tp)
        return convolution, (self.num_heads // tp, self.head_size, self.state_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet(StateSpace):
    """Linear attention with a gated delta rule (Qwen3-Next, Qwen3.5)."""

    num_key_heads: int
    num_value_heads: int
    key_head_size: int
    value_head_size: int
    checkpoint_alignment: ClassVar[int] = 64

    def num_parameters(self, tp: int = 1) -> int:
        keys = self.num_key_heads * self.key_head_size
        values = self.num_value_heads * self.value_head_size
        return self.hidden_size * (2 * keys + 3 * values + 2 * self.num_value_heads) // tp

    def state_shapes(self, tp: int = 1, num_drafts: int = 0) -> tuple[Shape, ...]:
        channels = 2 * self.num_key_heads * self.key_head_size + self.num_value_heads * self.value_head_size
        convolution = (self.conv_kernel - 1 + num_drafts, channels // tp)
        return convolution, (self.num_value_heads // tp, self.value_head_size, self.key_head_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvolution(StateSpace):
    """A gated convolution of a few tokens and nothing else (LFM2)."""

    width: int

    def num_parameters(self, tp: int = 1) -> int:
        return self.hidden_size * self.width * 4 // tp

    def state_shapes(self, tp: int = 1, num_drafts: int = 0) -> tuple[Shape, ...]:
        return ((self.conv_kernel - 1, self.width // tp),)

    def state_dtypes(self) -> tuple[str, ...]:
        return (self.conv_dtype,)
