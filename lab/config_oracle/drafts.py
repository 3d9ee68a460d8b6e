"""Draft models of the drawn lines: no weights, only shapes that go with any target."""

from __future__ import annotations

from typing import Any

__all__ = ["draft_config"]

_LENGTH = 16_777_216
"""Longer than any target, whose length the draft model would limit otherwise."""


def draft_config(kind: str, vocab_size: int) -> dict[str, Any]:
    """The config.json of a draft model: ``eagle``, ``eagle3``, or a ``small`` model; with so many tokens."""
    architecture = {"eagle": "EagleLlamaForCausalLM", "eagle3": "LlamaForCausalLMEagle3"}.get(kind, "LlamaForCausalLM")
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "num_hidden_layers": 1 if kind != "small" else 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "max_position_embeddings": _LENGTH,
        "vocab_size": vocab_size,
        "torch_dtype": "bfloat16",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "hidden_act": "silu",
    }
