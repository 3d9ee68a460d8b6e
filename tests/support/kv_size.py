"""How many KV blocks a GPU has room for, put together from the parts that :mod:`tokenyard.memory` has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenyard.core.config import require_int
from tokenyard.core.profiles import NEWEST
from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import KVCachePlan, plan_kv_cache
from tokenyard.memory.room import capture_sizes, check_utilization, step_memory
from tokenyard.models.gpus import GPU
from tokenyard.models.spec import ModelSpec

__all__ = ["KVCacheSize", "size_kv_cache"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheSize:
    """Where one GPU's memory goes; all in bytes except ``num_blocks``."""

    memory_bytes: int
    """What the engine may use: memory x utilisation."""
    weight_bytes: int
    activation_bytes: int
    """Peak of everything that is neither weights nor KV cache."""
    plan: KVCachePlan
    """What becomes of the rest."""

    @property
    def bytes_per_block(self) -> int:
        return self.plan.bytes_per_block

    @property
    def num_blocks(self) -> int:
        """Blocks that fit, the null block included."""
        return self.plan.num_blocks

    @property
    def kv_bytes(self) -> int:
        return self.num_blocks * self.bytes_per_block


def kv_cache_bytes(
    model: ModelSpec,
    gpu: GPU,
    *,
    gpu_memory_utilization: float = 0.9,
    max_num_batched_tokens: int = 8192,
    max_num_seqs: int = 256,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    expert_parallel_size: int = 1,
) -> tuple[int, int, int]:
    """Usable memory, weights and activations of the fullest GPU, in bytes: the KV cache gets what is left.

    Raises ConfigError if an argument is out of range, or if nothing is left.
    """
    check_utilization(gpu_memory_utilization)
    require_int("max_num_batched_tokens", max_num_batched_tokens, 1)
    require_int("max_num_seqs", max_num_seqs, 1)
    model.check_tensor_parallel(tensor_parallel_size)
    memory = int(gpu.memory_bytes * gpu_memory_utilization)
    weights = model.weight_bytes(
        tensor_parallel_size,
        expert_parallel_size=expert_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
    )
    activations = step_memory(
        model,
        gpu,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        cudagraph_capture_sizes=capture_sizes(
            gpu,
            version=NEWEST.vllm_version,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            architecture=model.architecture,
        ),
    ).likely
    if memory <= weights + activations:
        raise _no_room(model, gpu, memory, weights, activations, tensor_parallel_size)
    return memory, weights, activations


def size_kv_cache(
    model: ModelSpec,
    gpu: GPU,
    *,
    gpu_memory_utilization: float = 0.9,
    max_num_batched_tokens: int = 8192,
    max_num_seqs: int = 256,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    expert_parallel_size: int = 1,
    **settings: Any,
) -> KVCacheSize:
    """The KV cache on each GPU of a tensor- and pipeline-parallel group.

    ``settings`` are further keywords of :func:`~tokenyard.memory.kv_plan.plan_kv_cache`. Raises ConfigError if an
    argument is out of range, or if the weights leave no room for two blocks (the null block and one to use). Whether
    the longest request fits is not checked unless ``must_start`` is set.
    """
    memory, weights, activations = kv_cache_bytes(
        model,
        gpu,
        gpu_memory_utilization=gpu_memory_utilization,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        expert_parallel_size=expert_parallel_size,
    )
    plan = plan_kv_cache(
        model,
        available_bytes=memory - weights - activations,
        pipeline_parallel_size=pipeline_parallel_size,
        **{
            "must_start": False,
            "max_num_batched_tokens": max_num_batched_tokens,
            "tensor_parallel_size": tensor_parallel_size,
            "compute_capability": gpu.compute_capability,
            **settings,
        },
    )
    if plan.num_blocks < 2:
        raise _no_room(model, gpu, memory, weights, activations, tensor_parallel_size)
    return KVCacheSize(memory_bytes=memory, weight_bytes=weights, activation_bytes=activations, plan=plan)


def _no_room(
    model: ModelSpec, gpu: GPU, memory: int, weights: int, activations: int, tensor_parallel_size: int
) -> ConfigError:
    return ConfigError(
        "gpu",
        gpu.name,
        f"{model.name} needs {_gb(weights)} for weights and {_gb(activations)} to run, and {_gb(memory)} are "
        f"usable: raise §tensor_parallel_size ({tensor_parallel_size}) or take a larger GPU",
    )


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
