"""What a GPU needs besides weights: CUDA graphs, activations, and the blocks that remain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tokenyard.core.config import MAX_COUNT, require_int
from tokenyard.core.profiles import release_facts
from tokenyard.errors import ConfigError, NoStartError
from tokenyard.models.gpus import GPU
from tokenyard.models.layers import MoE
from tokenyard.models.spec import EncoderSpec, ModelSpec

# ---------------------------------------------------------------------------------------------------------------------
# Sizes of steps that vLLM captures as CUDA graphs: what a step is padded to, and what takes memory.
#
# Unless sizes are given: 1, 2, 4, every 8 tokens to 255, every 16 from 256, up to twice what a step of decodes has,
# at most 512; in later versions at most 1,024 on a B200 and its kin (compute capability 10), and steps of decodes of
# every size that the drafts make. GPT-OSS asks for 1,024 itself.

MOST_CAPTURED = 512
"""Tokens of the largest CUDA graph that vLLM captures unless a setting says otherwise."""
_MOST_ON_BLACKWELL = 1024
_MOST_OF_ARCHITECTURE = {"GptOssForCausalLM": 1024}
_INTERACTIVE = 32
"""Up to so many tokens `--performance-mode interactivity` captures every size."""


def capture_sizes(
    gpu: GPU,
    *,
    version: str,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    num_speculative_tokens: int = 0,
    architecture: str = "",
    interactive: bool = False,
    given: Sequence[int] = (),
    most: int | None = None,
) -> tuple[int, ...]:
    """Sizes in tokens, ascending.

    ``given`` and ``most`` are what ``--cudagraph-capture-sizes`` and ``--max-cudagraph-capture-size`` say. Raises
    ConfigError for sizes that are none, NoStartError if the two contradict each other.
    """
    for size in given:
        require_int("cudagraph_capture_sizes", size, 1, MAX_COUNT)
    if most is not None:
        require_int("max_cudagraph_capture_size", most, 1, MAX_COUNT)
    if given:
        return _checked(tuple(sorted({size for size in given if size <= max_num_batched_tokens})), most)
    query = 1 + num_speculative_tokens
    decodes: list[int] = []
    limit = _MOST_OF_ARCHITECTURE.get(architecture) if most is None else most
    if limit is None:
        facts = release_facts(version)
        ceiling = (
            _MOST_ON_BLACKWELL
            if facts.graphs_to_1024_on_blackwell and gpu.compute_capability[0] == 10
            else MOST_CAPTURED
        )
        limit = min(max_num_seqs * query * 2, ceiling)
        if facts.graphs_of_decodes_with_drafts if query > 1 else facts.graphs_of_all_decodes:
            decodes = [size for size in _of_decodes(max_num_seqs, query, ceiling) if size <= limit]
    limit = min(limit, max_num_batched_tokens)
    sizes = {*sizes_up_to(limit, every_below=_INTERACTIVE if interactive else 0)}
    sizes |= {size for size in decodes if size <= max_num_batched_tokens}
    if max_num_batched_tokens <= limit:
        sizes.add(max_num_batched_tokens)
    return tuple(sorted(sizes))


def sizes_up_to(largest: int, *, every_below: int = 0) -> tuple[int, ...]:
    """1, 2, 4, then every 8 tokens to 255, then every 16; each size up to ``every_below``, if that is given."""
    small = range(1, min(largest, every_below) + 1) if every_below else [s for s in (1, 2, 4) if s <= largest]
    return (*sorted({*small, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)}),)


def _of_decodes(max_num_seqs: int, query: int, ceiling: int) -> list[int]:
    """Tokens of steps of decodes; without drafts only the largest is no round number."""
    if query == 1:
        return [max_num_seqs]
    requests = min(max_num_seqs, ceiling)
    return [count * query for count in {*sizes_up_to(requests), requests}]


def _checked(sizes: tuple[int, ...], most: int | None) -> tuple[int, ...]:
    if not sizes:
        raise ConfigError("cudagraph_capture_sizes", sizes, "give one that is no larger than §max_num_batched_tokens")
    if most is not None and most != sizes[-1]:
        raise NoStartError(
            f"§max_cudagraph_capture_size = {most} is not the largest of §cudagraph_capture_sizes, which is "
            f"{sizes[-1]}: give one of the two",
            "max_cudagraph_capture_size",
            most,
            details={"largest": sizes[-1]},
        )
    return sizes


# ---------------------------------------------------------------------------------------------------------------------
# What a GPU needs besides weights and KV cache: an estimate, and what it may come to.
#
# vLLM measures it with a dummy step, and the highest moment counts: activations are let go before logits are made.
# Counted here:
#
# activations  tokens of a step x (4 hidden + 3 MLP widths)    the widest moment of a layer; with experts, hidden and
#                                                                  MLP width count once per expert of a token
#     sampling     requests x vocabulary x 18 bytes                bf16 logits, float32 copies, and hidden states beside
#                                                                  them: what that comes to beyond activations
#     runtime      0.5 GB                                          context, workspaces
#     links        1.3 GB                                          where layers are shared over NVLink: all-reduce, NCCL
#     encoder      beyond those: kept embeddings, or patches x (3 hidden + MLP columns)   the largest pictures at once
#     graphs       0.6 MB x CUDA graphs x layers of experts        vLLM subtracts graphs since 0.21; of other layers
#                                                                  a quarter of that
#
# Constants come from logs, and from a measured vLLM 0.19 run of Llama-3.1-8B on an RTX 4090 (2,588 blocks of 16 with a
# budget of 2,048 tokens and 256 sequences), which is met within 3 %, graphs aside.
#
# Sampling takes twice as much where PyTorch sorts the vocabulary (no FlashInfer, no Triton kernel; vLLM up to 0.14):
# logs come to 38.6 bytes per request and vocabulary entry. That is why a log of Qwen3-235B on 4 H100 has 8 GiB for KV,
# with 1,024 sequences and 151,936 entries. docs/deployments.md compares both with logs.

SAMPLING_BYTES = 18
"""Per request and vocabulary entry."""
RUNTIME_BYTES = 500_000_000
"""Memory that is neither weights, activations nor KV cache."""
SORTED_SAMPLING_BYTES = 38.6
"""Per request and vocabulary entry, where PyTorch sorts."""
LINK_BYTES = 1_300_000_000
"""What a GPU needs that shares layers over NVLink: logs have 0.95 to 1.84 GiB that are none of PyTorch's."""
EXPERT_GRAPH_BYTES = 600_000
"""Per graph and layer of experts; logs have 0.4 to 1.0 MB."""
DENSE_GRAPH_BYTES = 150_000
"""The same of other layers; logs have 0.1 to 0.4 MB."""
ENCODER_MOST = 1.5
"""An encoder may take so many times what is counted of it."""
WORKSPACE_BYTES = 500_000_000
"""What FlashInfer and autotuning need, where there are any."""


class MemoryPart(msgspec.Struct, frozen=True):
    """What takes memory, in bytes on each GPU."""

    name: str
    likely: int
    most: int


class StepMemory(msgspec.Struct, frozen=True):
    """What a step takes besides weights and KV cache, on each GPU."""

    parts: tuple[MemoryPart, ...]
    """``activations``, ``sampler`` and ``encoder`` (what each takes beyond those before), ``runtime`` (context,
    workspaces), ``communication``, ``graphs``."""

    @property
    def likely(self) -> int:
        """Bytes."""
        return sum(each.likely for each in self.parts)

    @property
    def most(self) -> int:
        """Bytes where PyTorch sorts the vocabulary, and kernels have workspaces."""
        return sum(each.most for each in self.parts)


def activation_bytes(
    model: ModelSpec, *, max_num_batched_tokens: int, max_num_seqs: int, tensor_parallel_size: int = 1
) -> int:
    """Estimated peak memory of a step besides weights and KV cache, per GPU, in bytes.

    Links and graphs of experts are not in it.
    """
    tokens = max_num_batched_tokens * _token_bytes(model, tensor_parallel_size)
    return tokens + max_num_seqs * model.vocab_size * SAMPLING_BYTES + RUNTIME_BYTES


def _token_bytes(model: ModelSpec, tensor_parallel_size: int) -> int:
    """Bytes of one token of a step, in the widest moment of a layer."""
    width, chosen = max(model.intermediate_size, model.shared_intermediate_size), model.num_experts_per_tok
    widest = 3 * max(width, chosen * model.moe_intermediate_size) // tensor_parallel_size
    return ((4 + chosen) * model.hidden_size + widest) * max(model.dtype_bytes, 2)


def step_memory(
    model: ModelSpec,
    gpu: GPU,
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    cudagraph_capture_sizes: Sequence[int] = (),
    encoded: EncodedAtOnce | None = None,
    sorts: bool = False,
) -> StepMemory:
    """Memory of a step.

    ``encoded``: what vLLM has an encoder compute to measure. Without ``cudagraph_capture_sizes`` there are no CUDA
    graphs, or none that count. ``sorts``: PyTorch sorts the vocabulary.
    """
    joined = tensor_parallel_size > 1 and gpu.link_bandwidth > gpu.pcie_bandwidth
    graphs = num_graphs(cudagraph_capture_sizes, max_num_seqs)
    experts = sum(count for layer, count in model.layer_counts if isinstance(layer.mlp, MoE)) // pipeline_parallel_size
    tokens = max_num_batched_tokens * _token_bytes(model, tensor_parallel_size)
    dense = model.num_layers // pipeline_parallel_size - experts
    captured = graphs * (EXPERT_GRAPH_BYTES * experts + DENSE_GRAPH_BYTES * dense)
    # Hidden states of the step lie beside the logits; whatever else it needed is free again.
    kept = max_num_batched_tokens * model.hidden_size * max(model.dtype_bytes, 2)
    sampled = min(max_num_seqs, max_num_batched_tokens) * model.vocab_size
    likely, most = (
        max(0, int(kept + sampled * each) - tokens)
        for each in (SORTED_SAMPLING_BYTES if sorts else SAMPLING_BYTES, SORTED_SAMPLING_BYTES)
    )
    sampler = MemoryPart("sampler", likely, most)
    encoder = MemoryPart("encoder", 0, 0)
    if encoded is not None:
        others = MemoryPart("", tokens + sampler.likely, tokens + sampler.most)
        encoder = encoder_part(encoded, model, others, tensor_parallel_size)
    return StepMemory(
        (
            MemoryPart("activations", tokens, tokens),
            sampler,
            encoder,
            MemoryPart("runtime", RUNTIME_BYTES, RUNTIME_BYTES + WORKSPACE_BYTES),
            MemoryPart("communication", LINK_BYTES * joined, LINK_BYTES * joined),
            MemoryPart("graphs", captured, captured),
        )
    )


class EncodedAtOnce(NamedTuple):
    """What vLLM has an encoder compute to measure memory: the largest pictures or videos, as many as its budget has."""

    encoder: EncoderSpec
    embeddings: int
    """Embeddings of all of them."""
    items: int = 1

    def patches(self, tensor_parallel_size: int) -> int:
        """Patches that one GPU computes: all of them, or its share of the items."""
        each = self.encoder.num_patches(self.embeddings // self.items)
        return each * (-(-self.items // tensor_parallel_size) if self.encoder.shares_work else self.items)


def encoder_part(
    encoded: EncodedAtOnce, model: ModelSpec, others: MemoryPart, tensor_parallel_size: int = 1
) -> MemoryPart:
    """What an encoder takes beyond the decoder's step, which needs ``others``.

    vLLM measures both, one after the other: first the encoder with the largest pictures or videos that its budget
    holds, then the decoder beside the embeddings that came out. The larger counts.
    """
    size = max(model.dtype_bytes, 2)
    encoder = encoded.encoder
    kept = encoded.embeddings * encoder.vectors_per_embedding * model.hidden_size * size
    hidden, tp = encoder.hidden_size, encoder.ranks_sharing(tensor_parallel_size)
    wide = 3 * hidden + max(encoder.mlp_columns, 6 * hidden) // (1 if encoder.replicated_layer_parameters else tp)
    computed = encoded.patches(tensor_parallel_size) * wide * size + kept
    likely = max(kept, computed - others.likely)
    return MemoryPart("encoder", likely, max(likely, int(computed * ENCODER_MOST) - others.most))


def num_graphs(cudagraph_capture_sizes: Sequence[int], max_num_seqs: int) -> int:
    """CUDA graphs that vLLM captures: piecewise ones for any step, whole ones for steps that decode."""
    return len(cudagraph_capture_sizes) + sum(size <= max_num_seqs for size in cudagraph_capture_sizes)


def check_utilization(value: float) -> None:
    """Raise ConfigError unless ``gpu_memory_utilization`` is a share of the memory."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ConfigError("gpu_memory_utilization", value, "give a number above 0, up to 1")
