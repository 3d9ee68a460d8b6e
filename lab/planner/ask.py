"""What the fixtures note of a model that vLLM builds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenyard.vllm.describing.built import BuiltModel

__all__ = ["recorded"]


def recorded(built: BuiltModel, tensor_parallel_size: int, available: Iterable[int]) -> dict[str, Any]:
    """What the fixtures note of a model: settings as vLLM chose them, weights, and plans for so much memory."""
    parameters, weight_bytes = built.weights()
    model, cache = built.config.model_config, built.config.cache_config
    return {
        "tensor_parallel_size": tensor_parallel_size,
        "dtype": str(model.dtype).removeprefix("torch."),
        "max_model_len": model.max_model_len,
        "kv_cache_dtype": cache.cache_dtype,
        "block_size": cache.block_size,
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "mamba_cache_mode": cache.mamba_cache_mode,
        "async_scheduling": bool(built.config.scheduler_config.async_scheduling),
        "max_num_encoder_input_tokens": built.config.scheduler_config.max_num_encoder_input_tokens,
        "backends": built.backends(),
        "rank_parameters": parameters,
        "rank_weight_bytes": weight_bytes,
        "plans": [{"available_bytes": size, **built.plan(size)} for size in available],
    }
