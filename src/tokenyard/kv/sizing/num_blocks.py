"""How many KV blocks a GPU has room for.

What the engine may use of the GPU, less the weights, less the peak of everything else, divided by the bytes of a
block (document 004; a block holds 2 x layers x KV heads x head size x element size x tokens). vLLM *measures* the
"everything else" with a dummy forward pass; here it is estimated:

    activations  tokens of a step x (4 hidden + 3 MLP widths)    the widest moment of a layer
    sampling     requests x vocabulary x 18 bytes                bf16 logits, float32 copy, sorted copy, sort index
    runtime      0.4 GB                                          context, graphs, workspaces

The constant makes the estimate meet a measured vLLM 0.19 run of Llama-3.1-8B on an RTX 4090 (2,588 blocks of 16 with
a budget of 2,048 tokens and 256 sequences); documents with 10,318 blocks on an A100-40GB are met within 2 %.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenyard.config import require_int
from tokenyard.errors import ConfigError
from tokenyard.kv.sizing.gpus import GPU
from tokenyard.models.spec import ModelSpec

__all__ = ["KVCacheSize", "activation_bytes", "check_utilization", "size_kv_cache"]

SAMPLING_BYTES = 18
"""Per request and vocabulary entry."""
RUNTIME_BYTES = 400_000_000
"""Memory that is neither weights, activations nor KV cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheSize:
    """Where one GPU's memory goes; all in bytes except ``num_blocks``."""

    memory_bytes: int
    """What the engine may use: memory x utilisation."""
    weight_bytes: int
    activation_bytes: int
    """Peak of everything that is neither weights nor KV cache."""
    bytes_per_block: int
    num_blocks: int
    """Blocks that fit, the null block included."""

    @property
    def kv_bytes(self) -> int:
        return self.num_blocks * self.bytes_per_block


def activation_bytes(
    model: ModelSpec, *, max_num_batched_tokens: int, max_num_seqs: int, tensor_parallel_size: int = 1
) -> int:
    """Estimated peak memory of a step besides weights and KV cache, per GPU, in bytes (module docstring)."""
    width = model.intermediate_size
    if model.num_experts:
        width = model.num_experts_per_tok * model.moe_intermediate_size + model.shared_intermediate_size
    per_token = (4 * model.hidden_size + 3 * width // tensor_parallel_size) * max(model.dtype_bytes, 2)
    sampling = max_num_seqs * model.vocab_size * SAMPLING_BYTES
    return max_num_batched_tokens * per_token + sampling + RUNTIME_BYTES


def size_kv_cache(
    model: ModelSpec,
    gpu: GPU,
    *,
    gpu_memory_utilization: float = 0.9,
    block_size: int = 16,
    max_num_batched_tokens: int = 8192,
    max_num_seqs: int = 256,
    tensor_parallel_size: int = 1,
    kv_dtype_bytes: int | None = None,
) -> KVCacheSize:
    """Number of KV blocks on each GPU of a tensor-parallel group.

    Raises ConfigError if an argument is out of range, or if the weights leave no room for two blocks (the null
    block and one to use).
    """
    check_utilization(gpu_memory_utilization)
    require_int("block_size", block_size, 1, 1 << 20)
    require_int("max_num_batched_tokens", max_num_batched_tokens, 1)
    require_int("max_num_seqs", max_num_seqs, 1)
    if kv_dtype_bytes is not None:
        require_int("kv_dtype_bytes", kv_dtype_bytes, 1, 8)
    model.check_tensor_parallel(tensor_parallel_size)
    memory = int(gpu.memory_bytes * gpu_memory_utilization)
    weights = model.weight_bytes(tensor_parallel_size)
    activations = activation_bytes(
        model,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        tensor_parallel_size=tensor_parallel_size,
    )
    per_block = model.kv_bytes_per_token(tensor_parallel_size, kv_dtype_bytes) * block_size
    num_blocks = (memory - weights - activations) // per_block
    if num_blocks < 2:
        raise ConfigError(
            "gpu",
            gpu.name,
            f"{model.name} needs {_gb(weights)} for weights and {_gb(activations)} to run, and {_gb(memory)} are "
            f"usable: raise tensor_parallel_size ({tensor_parallel_size}) or take a larger GPU",
        )
    return KVCacheSize(
        memory_bytes=memory,
        weight_bytes=weights,
        activation_bytes=activations,
        bytes_per_block=per_block,
        num_blocks=num_blocks,
    )


def check_utilization(value: float) -> None:
    """Raise ConfigError unless ``gpu_memory_utilization`` is a share of the memory."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ConfigError("gpu_memory_utilization", value, "give a number above 0, up to 1")


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
