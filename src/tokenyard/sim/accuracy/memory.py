"""How many tokens' KV an engine had room for, where nobody logged it."""

from __future__ import annotations

from tokenyard.errors import ConfigError
from tokenyard.kv.sizing.gpus import GPU
from tokenyard.kv.sizing.step_memory import activation_bytes
from tokenyard.models.spec import ModelSpec
from tokenyard.sim.latency.steptime.amounts import Parallelism, amounts

__all__ = ["kv_tokens"]

RUNTIME_BYTES = 1_500_000_000
"""Of GPU memory beyond weights, activations and KV cache: graphs, communication buffers. Met by the measured points
that ran out of memory for KV."""


def kv_tokens(
    spec: ModelSpec,
    gpu: GPU,
    parallel: Parallelism,
    *,
    gpu_memory_utilization: float,
    kv_cache_dtype: str | None,
    max_num_batched_tokens: int,
    max_num_seqs: int,
) -> float:
    """Tokens that one data-parallel rank has room for, layers with a window aside. Raises ConfigError if none."""
    spread = parallel.expert or parallel.data > 1
    weights = spec.weight_bytes(
        parallel.tensor,
        expert_parallel_size=parallel.tensor * parallel.data if spread else 1,
        pipeline_parallel_size=parallel.pipeline,
    )
    activations = activation_bytes(
        spec,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        tensor_parallel_size=parallel.tensor,
    )
    counted = amounts(spec, parallel, kv_cache_dtype)
    per_token = sum(each.kv_bytes * each.layers for each in counted.attention if not each.window)
    free = gpu.memory_bytes * gpu_memory_utilization - RUNTIME_BYTES - weights - activations
    if free <= 0:
        raise ConfigError("gpu", gpu.name, f"{spec.name} does not fit {parallel.num_gpus} of them")
    return free / max(per_token, 1e-9)
