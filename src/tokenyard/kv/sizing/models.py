"""Shapes of transformer models: enough to size their weights, their KV cache and the work of a step.

The shape of a dense or mixture-of-experts decoder with grouped-query attention; parameter counts follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenyard.config import require_bool, require_int
from tokenyard.errors import ConfigError

__all__ = ["MODELS", "ModelShape", "named_model"]

_COUNTS = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_size", "vocab_size", "max_model_len")
_OPTIONAL_COUNTS = (
    "intermediate_size",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_intermediate_size",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder-only transformer. Raises ConfigError if a size cannot work."""

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    intermediate_size: int
    """Width of a dense layer's gated MLP; not used by a mixture of experts."""
    vocab_size: int
    max_model_len: int
    """Longest context the model was made for, in tokens."""
    dtype_bytes: int = 2
    """Bytes per weight and, unless said otherwise, per KV element."""
    tie_word_embeddings: bool = False
    """The output head shares the embedding's weights."""
    num_experts: int = 0
    """Experts per layer; 0 for a dense model."""
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    """Width of one expert."""
    shared_intermediate_size: int = 0
    """Width of the expert that every token visits, if there is one."""

    def __post_init__(self) -> None:
        for field in _COUNTS:
            require_int(field, getattr(self, field), 1)
        for field in _OPTIONAL_COUNTS:
            require_int(field, getattr(self, field), 0)
        require_bool("tie_word_embeddings", self.tie_word_embeddings)
        require_int("dtype_bytes", self.dtype_bytes, 1, 8)
        if self.num_heads % self.num_kv_heads:
            raise ConfigError("num_kv_heads", self.num_kv_heads, f"must divide num_heads ({self.num_heads})")
        if self.num_experts:
            require_int("num_experts_per_tok", self.num_experts_per_tok, 1, self.num_experts)
            require_int("moe_intermediate_size", self.moe_intermediate_size, 1)
        else:
            require_int("intermediate_size", self.intermediate_size, 1)

    # ---- parameters

    @property
    def attention_parameters(self) -> int:
        """Of one layer: query, key, value and output projections."""
        return self.hidden_size * self.head_size * 2 * (self.num_heads + self.num_kv_heads)

    @property
    def expert_parameters(self) -> int:
        """Of one expert of one layer: gate, up and down."""
        return 3 * self.hidden_size * self.moe_intermediate_size

    @property
    def dense_mlp_parameters(self) -> int:
        """Of one layer: what every token goes through between attention blocks (routing included)."""
        if self.num_experts:
            return self.hidden_size * (3 * self.shared_intermediate_size + self.num_experts)
        return 3 * self.hidden_size * self.intermediate_size

    @property
    def head_parameters(self) -> int:
        """Embedding, or output head: vocabulary times hidden size."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All weights (biases and the norms inside attention aside: below 0.1 %)."""
        layer = self.attention_parameters + self.dense_mlp_parameters + self.num_experts * self.expert_parameters
        embeddings = self.head_parameters * (1 if self.tie_word_embeddings else 2)
        return self.num_layers * (layer + 2 * self.hidden_size) + embeddings + self.hidden_size

    @property
    def num_active_parameters(self) -> int:
        """Weights that one token goes through, the output head not counted."""
        layer = self.attention_parameters + self.dense_mlp_parameters
        return self.num_layers * (layer + self.num_experts_per_tok * self.expert_parameters)

    # ---- bytes on one GPU of a tensor-parallel group

    def check_tensor_parallel(self, size: int) -> None:
        """Raise ConfigError unless the attention heads can be shared out over ``size`` GPUs."""
        require_int("tensor_parallel_size", size, 1)
        if self.num_heads % size:
            raise ConfigError("tensor_parallel_size", size, f"must divide the {self.num_heads} heads of {self.name}")

    def weight_bytes(self, tensor_parallel_size: int = 1) -> int:
        """Weights per GPU, in bytes."""
        return self.num_parameters * self.dtype_bytes // tensor_parallel_size

    def kv_bytes_per_token(self, tensor_parallel_size: int = 1, kv_dtype_bytes: int | None = None) -> int:
        """KV cache of one token per GPU, in bytes: 2 x layers x KV heads x head size x element size.

        With more GPUs than KV heads every GPU keeps a copy of one head.
        """
        heads = max(1, self.num_kv_heads // tensor_parallel_size)
        return 2 * self.num_layers * heads * self.head_size * (kv_dtype_bytes or self.dtype_bytes)


def _model(
    name: str,
    layers: int,
    hidden: int,
    heads: tuple[int, int],
    *,
    mlp: int,
    vocab: int,
    length: int,
    head_size: int = 128,
    tied: bool = False,
    experts: tuple[int, int] = (0, 0),
) -> ModelShape:
    """``mlp`` is the width of the dense MLP, or of one expert where there are ``experts`` (all, per token)."""
    return ModelShape(
        name=name,
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_size=head_size,
        intermediate_size=0 if experts[0] else mlp,
        vocab_size=vocab,
        max_model_len=length,
        tie_word_embeddings=tied,
        num_experts=experts[0],
        num_experts_per_tok=experts[1],
        moe_intermediate_size=mlp if experts[0] else 0,
    )


_LLAMA3 = 128_256
_QWEN3 = 151_936
_QWEN25 = 152_064

_ALL = (
    _model("llama-3.2-1b", 16, 2048, (32, 8), mlp=8192, vocab=_LLAMA3, length=131_072, head_size=64, tied=True),
    _model("llama-3.2-3b", 28, 3072, (24, 8), mlp=8192, vocab=_LLAMA3, length=131_072, tied=True),
    _model("llama-3.1-8b", 32, 4096, (32, 8), mlp=14_336, vocab=_LLAMA3, length=131_072),
    _model("llama-3.1-70b", 80, 8192, (64, 8), mlp=28_672, vocab=_LLAMA3, length=131_072),
    _model("mistral-7b", 32, 4096, (32, 8), mlp=14_336, vocab=32_768, length=32_768),
    _model("mixtral-8x7b", 32, 4096, (32, 8), mlp=14_336, vocab=32_000, length=32_768, experts=(8, 2)),
    _model("qwen2.5-7b", 28, 3584, (28, 4), mlp=18_944, vocab=_QWEN25, length=32_768),
    _model("qwen2.5-32b", 64, 5120, (40, 8), mlp=27_648, vocab=_QWEN25, length=32_768),
    _model("qwen2.5-72b", 80, 8192, (64, 8), mlp=29_568, vocab=_QWEN25, length=32_768),
    _model("qwen3-0.6b", 28, 1024, (16, 8), mlp=3072, vocab=_QWEN3, length=40_960, tied=True),
    _model("qwen3-8b", 36, 4096, (32, 8), mlp=12_288, vocab=_QWEN3, length=40_960),
    _model("qwen3-14b", 40, 5120, (40, 8), mlp=17_408, vocab=_QWEN3, length=40_960),
    _model("qwen3-32b", 64, 5120, (64, 8), mlp=25_600, vocab=_QWEN3, length=40_960),
    _model("qwen3-30b-a3b", 48, 2048, (32, 4), mlp=768, vocab=_QWEN3, length=40_960, experts=(128, 8)),
)

MODELS: dict[str, ModelShape] = {model.name: model for model in _ALL}
"""By name, as ``--model`` takes it; all bfloat16."""


def named_model(name: str) -> ModelShape:
    """The model called ``name`` (case does not matter), or ConfigError listing all names."""
    model = MODELS.get(name.lower()) if isinstance(name, str) else None
    if model is None:
        raise ConfigError("model", name, f"give the path of a config.json, or use one of: {', '.join(MODELS)}")
    return model
