"""Layers that attend to earlier tokens: their projections and what they keep of every token.

    SoftmaxAttention   heads share keys and values in groups; over everything, a window, a chunk or an encoder's output
    LatentAttention    DeepSeek's MLA: one compressed vector per token for all heads; DSA adds an indexer (V3.2)

Counts are of one GPU of a tensor-parallel group of ``tp``; with ``tp`` 1 they are the model's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tokenyard.config import require_bool, require_int
from tokenyard.errors import ConfigError
from tokenyard.models.weights import BFLOAT16, WeightFormat

__all__ = ["Attends", "Indexer", "LatentAttention", "SoftmaxAttention"]


class Attends(StrEnum):
    """What a token attends to."""

    FULL = "full"
    """Every token before it."""
    SLIDING_WINDOW = "sliding_window"
    """The last ``window`` tokens, itself included."""
    CHUNKED = "chunked"
    """Tokens of its own chunk of ``window`` tokens."""
    CROSS = "cross"
    """An encoder's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxAttention:
    """Multi-head attention with grouped keys and values. Raises ConfigError if a size cannot work."""

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    head_size_v: int = 0
    """Of the values; 0: as of the keys."""
    attends: Attends = Attends.FULL
    window: int = 0
    """Tokens of the window or chunk; 0 where there is neither."""
    output_gate: bool = False
    """A gate as wide as the queries comes out of the query projection (Qwen3-Next)."""
    shares_kv: bool = False
    """Reads the KV of an earlier layer: no key or value projection, and no cache of its own (Gemma-3n)."""
    extra_parameters: int = 0
    """Biases, norms of queries and keys, sinks: kept in the model's dtype, on every GPU."""
    weights: WeightFormat = BFLOAT16

    def __post_init__(self) -> None:
        for field in ("hidden_size", "num_heads", "num_kv_heads", "head_size"):
            require_int(field, getattr(self, field), 1)
        for field in ("head_size_v", "window", "extra_parameters"):
            require_int(field, getattr(self, field), 0)
        require_bool("output_gate", self.output_gate)
        if self.num_heads % self.num_kv_heads:
            raise ConfigError("num_kv_heads", self.num_kv_heads, f"must divide num_heads ({self.num_heads})")
        windowed = self.attends in (Attends.SLIDING_WINDOW, Attends.CHUNKED)
        if windowed != bool(self.window):
            fix = f"give the tokens of a window or chunk, and only there (attends = {self.attends})"
            raise ConfigError("window", self.window, fix)

    @property
    def value_size(self) -> int:
        """Width of a value head."""
        return self.head_size_v or self.head_size

    def kv_heads(self, tp: int = 1) -> int:
        """Heads whose keys and values a GPU keeps: with more GPUs than KV heads, each keeps a copy of one."""
        return max(1, self.num_kv_heads // tp)

    def num_parameters(self, tp: int = 1) -> int:
        """Projections of queries, keys, values and output."""
        heads = self.num_heads // tp
        query = heads * self.head_size * (2 if self.output_gate else 1)
        keys_values = 0 if self.shares_kv else self.kv_heads(tp) * (self.head_size + self.value_size)
        return self.hidden_size * (query + keys_values + heads * self.value_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """DeepSeek sparse attention: a small head that picks the tokens to attend to, with a key cache of its own."""

    num_heads: int
    head_size: int
    topk: int
    """Tokens attended to at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek V2 and V3, Kimi-K2)."""

    hidden_size: int
    num_heads: int
    kv_lora_rank: int
    """Width of the compressed vector."""
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    """Width of the part that carries positions: kept per token, once for all heads."""
    v_head_dim: int
    q_lora_rank: int = 0
    """Width of the compressed queries; 0: one projection, as in DeepSeek-V2-Lite."""
    indexer: Indexer | None = None
    extra_parameters: int = 0
    """Norms of the compressed vectors and biases: kept in the model's dtype, on every GPU."""
    weights: WeightFormat = BFLOAT16

    def __post_init__(self) -> None:
        for field in ("hidden_size", "num_heads", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
            require_int(field, getattr(self, field), 1)
        require_int("q_lora_rank", self.q_lora_rank, 0)
        require_int("extra_parameters", self.extra_parameters, 0)

    @property
    def latent_size(self) -> int:
        """Elements kept per token: ``kv_lora_rank`` + ``qk_rope_head_dim``."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    def num_parameters(self, tp: int = 1) -> int:
        """Down projections are on every GPU; what belongs to heads is shared out."""
        heads, query = self.num_heads // tp, self.qk_nope_head_dim + self.qk_rope_head_dim
        down = self.hidden_size * (self.latent_size + self.q_lora_rank)
        up = heads * ((self.q_lora_rank or self.hidden_size) * query)
        up += heads * self.kv_lora_rank * (self.qk_nope_head_dim + self.v_head_dim)
        return down + up + heads * self.v_head_dim * self.hidden_size + self._indexer_parameters()

    def _indexer_parameters(self) -> int:
        if self.indexer is None:
            return 0
        heads, size = self.indexer.num_heads, self.indexer.head_size
        return heads * size * self.q_lora_rank + self.hidden_size * (size + heads)
