"""What a GPU needs besides weights and KV cache: an estimate, and what it may come to.

vLLM measures it with a dummy step. Counted here:

    activations  tokens of a step x (4 hidden + 3 MLP widths)    the widest moment of a layer; with experts, hidden and
                                                                 MLP width count once per expert of a token
    sampling     requests x vocabulary x 18 bytes                bf16 logits, float32 copies
    runtime      0.4 GB                                          context, graphs of dense layers, workspaces
    links        1.3 GB                                          where layers are shared over NVLink: all-reduce, NCCL
    graphs       0.6 MB x CUDA graphs x layers of experts        vLLM subtracts graphs since 0.21

The runtime's constant makes the estimate meet a measured vLLM 0.19 run of Llama-3.1-8B on an RTX 4090 (2,588 blocks of
16 with a budget of 2,048 tokens and 256 sequences); the others come from logs.

Sampling may take twice as much: where PyTorch sorts the vocabulary (no FlashInfer, no Triton kernel, vLLM up to 0.14),
logs come to 38.6 bytes per request and vocabulary entry. That is why a log of Qwen3-235B on 4 H100 has 8 GiB for KV,
with 1,024 sequences and 151,936 entries. docs/deployments.md compares both with logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tokenyard.kv.sizing.gpus import GPU
from tokenyard.models.mlp import MoE
from tokenyard.models.spec import ModelSpec

__all__ = [
    "SAMPLING_BYTES",
    "SORTED_SAMPLING_BYTES",
    "StepMemory",
    "activation_bytes",
    "num_graphs",
    "step_memory",
]

SAMPLING_BYTES = 18
"""Per request and vocabulary entry."""
RUNTIME_BYTES = 400_000_000
"""Memory that is neither weights, activations nor KV cache."""
SORTED_SAMPLING_BYTES = 38.6
"""Per request and vocabulary entry, where PyTorch sorts."""
LINK_BYTES = 1_300_000_000
"""Of a GPU that shares layers with others over NVLink: logs have 0.95 to 1.84 GiB that are none of PyTorch's."""
EXPERT_GRAPH_BYTES = 600_000
"""Per graph and layer of experts; logs have 0.4 to 1.0 MB."""
WORKSPACE_BYTES = 300_000_000
"""Of FlashInfer and autotuning, where there are any."""


class StepMemory(NamedTuple):
    """Bytes on each GPU."""

    likely: int
    most: int
    """Where PyTorch sorts the vocabulary, and kernels have workspaces."""


def activation_bytes(
    model: ModelSpec, *, max_num_batched_tokens: int, max_num_seqs: int, tensor_parallel_size: int = 1
) -> int:
    """Estimated peak memory of a step besides weights and KV cache, per GPU, in bytes.

    Links and graphs of experts are not in it.
    """
    width, chosen = max(model.intermediate_size, model.shared_intermediate_size), model.num_experts_per_tok
    widest = 3 * max(width, chosen * model.moe_intermediate_size) // tensor_parallel_size
    per_token = ((4 + chosen) * model.hidden_size + widest) * max(model.dtype_bytes, 2)
    sampling = max_num_seqs * model.vocab_size * SAMPLING_BYTES
    return max_num_batched_tokens * per_token + sampling + RUNTIME_BYTES


def step_memory(
    model: ModelSpec,
    gpu: GPU,
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    cudagraph_capture_sizes: Sequence[int] = (),
) -> StepMemory:
    """Memory of a step. Without ``cudagraph_capture_sizes`` there are no CUDA graphs, or none that count."""
    base = activation_bytes(
        model,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        tensor_parallel_size=tensor_parallel_size,
    )
    joined = tensor_parallel_size > 1 and gpu.link_bandwidth > gpu.pcie_bandwidth
    graphs = num_graphs(cudagraph_capture_sizes, max_num_seqs)
    experts = sum(count for layer, count in model.layer_counts if isinstance(layer.mlp, MoE)) // pipeline_parallel_size
    likely = base + LINK_BYTES * joined + EXPERT_GRAPH_BYTES * graphs * experts
    sorting = int((SORTED_SAMPLING_BYTES - SAMPLING_BYTES) * max_num_seqs * model.vocab_size)
    return StepMemory(likely, likely + sorting + WORKSPACE_BYTES)


def num_graphs(cudagraph_capture_sizes: Sequence[int], max_num_seqs: int) -> int:
    """CUDA graphs that vLLM captures: piecewise ones for any step, whole ones for steps that decode."""
    return len(cudagraph_capture_sizes) + sum(size <= max_num_seqs for size in cudagraph_capture_sizes)
