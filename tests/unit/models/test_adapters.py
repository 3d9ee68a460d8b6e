"""Memory for LoRA adapters, as vLLM sets it aside."""

from __future__ import annotations

import pytest

from tokenyard.errors import ConfigError
from tokenyard.models.additions import adapter_bytes
from tokenyard.models.named import MODELS


def test_a_dense_model() -> None:
    """Llama-3.1-8B: in a layer 4,096 x 6 inputs, 14,336 inputs and outputs of the MLP, heads; vocabulary twice."""
    attention = 3 * 4096 + (4096 + 2 * 1024) + 4096 + 4096
    mlp = 2 * 4096 + 2 * 14_336 + 14_336 + 4096
    expected = (32 * (attention + mlp) + 2 * 128_256 + 2 * 4096) * 16 * 4 * 2
    assert adapter_bytes(MODELS["llama-3.1-8b"], max_loras=4, max_lora_rank=16) == expected


def test_stages_and_ranks_have_a_part() -> None:
    model = MODELS["llama-3.1-8b"]
    whole, halved, staged = (
        adapter_bytes(model, max_loras=1, max_lora_rank=8, tensor_parallel_size=tp, pipeline_parallel_size=pp) or 0
        for tp, pp in ((1, 1), (2, 1), (1, 2))
    )
    assert whole / 2 < halved < whole
    assert whole / 2 < staged < whole


def test_layers_whose_adapters_are_not_known() -> None:
    assert adapter_bytes(MODELS["deepseek-v3"], max_loras=1, max_lora_rank=8) is None
    with pytest.raises(ConfigError, match="max_loras"):
        adapter_bytes(MODELS["llama-3.1-8b"], max_loras=0, max_lora_rank=8)
