"""Models known by name."""

from __future__ import annotations

from tokenyard.errors import ConfigError
from tokenyard.models.decoder import uniform_decoder
from tokenyard.models.spec import ModelSpec

__all__ = ["MODELS", "named_model"]


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
) -> ModelSpec:
    """``mlp`` is the width of the dense MLP, or of one expert where there are ``experts`` (all, per token)."""
    return uniform_decoder(
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

MODELS: dict[str, ModelSpec] = {model.name: model for model in _ALL}
"""By name, as ``--model`` takes it; all bfloat16."""


def named_model(name: str) -> ModelSpec:
    """The model called ``name`` (case does not matter), or ConfigError listing all names."""
    model = MODELS.get(name.lower()) if isinstance(name, str) else None
    if model is None:
        raise ConfigError("model", name, f"give the path of a config.json, or use one of: {', '.join(MODELS)}")
    return model
