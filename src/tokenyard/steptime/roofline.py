"""Roofline: a step takes as long as arithmetic or memory traffic takes, whichever is slower, plus fixed costs.

    linear layers   2 x active weights x tokens FLOP against the bytes of the weights that are touched
    output head     the same over the tokens that are sampled
    prefill         4 x layers x heads x head size FLOP per (query, key) pair
    decode          the KV bytes of the whole context, once per step
    elementwise     activations, norms, rotary embedding: their memory traffic per token
    all-reduce      two per layer under tensor parallelism
    fixed           per layer (launches), per step (input preparation) and per sampled sequence (sampling)

Arithmetic and memory overlap imperfectly where they are about equal: their times are joined by a cubic mean.
The efficiencies say how much of the data sheet kernels reach. They were read off kernel timings where we have them
(H100, H200: aiconfigurator's vLLM 0.24 tables; RTX 4090 and RTX PRO 6000: LLMServingSim's profiles) and are typical
values elsewhere. Expect errors of 10 to 25 % of a step.
"""

from __future__ import annotations

import math

from tokenyard.models.gpus import GPU
from tokenyard.models.spec import ModelSpec
from tokenyard.quick_dataclass import dataclass
from tokenyard.steptime.model import StepShape, StepWork, Transfer, TransferDirection, require_seconds
from tokenyard.steptime.tables import all_reduce_seconds, elementwise_bytes


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Share of the data sheet that kernels reach."""

    gemm: float = 0.75
    """Share of the tensor throughput that large matrix products reach."""
    attention: float = 0.55
    """Share of the tensor throughput that prefill attention reaches."""
    memory: float = 0.82
    """Share of the memory bandwidth that is reached."""
    experts: float = 0.5
    """Share of ``gemm`` that the small matrix products of experts reach."""
    mixed: float = 1.0
    """Share of ``memory`` that attention reaches in decodes beside a prefill (1: not measured)."""


EFFICIENCIES = {
    "h100": Efficiency(0.80, 0.60, 0.82),
    "h200": Efficiency(0.80, 0.60, 0.75),
    "rtx4090": Efficiency(1.00, 0.80, 0.92, mixed=0.5),
    "rtxpro6000": Efficiency(0.78, 0.53, 0.89, mixed=0.6),
}
"""Measured ones, by the GPU's name; all others are typical values."""

_COUNTS_KEPT = 65_536


class RooflineLatency:
    """Step times of a named GPU and a model's shape."""

    def __init__(
        self,
        model: ModelSpec,
        gpu: GPU,
        *,
        tensor_parallel_size: int = 1,
        kv_dtype_bytes: int | None = None,
        efficiency: Efficiency | None = None,
        step_overhead: float = 1.5e-3,
        layer_overhead: float = 18e-6,
        sequence_overhead: float = 10e-6,
    ) -> None:
        """Overheads are in seconds. Raises ConfigError if the model cannot be split so."""
        model.check_tensor_parallel(tensor_parallel_size)
        require_seconds("step_overhead", step_overhead)
        require_seconds("layer_overhead", layer_overhead)
        require_seconds("sequence_overhead", sequence_overhead)
        share = efficiency or EFFICIENCIES.get(gpu.name, Efficiency())
        world = tensor_parallel_size
        gemm = gpu.bf16_flops * share.gemm * world
        memory = gpu.memory_bandwidth * share.memory
        dense = model.num_layers * (model.attention_parameters + model.dense_mlp_parameters)
        expert = model.num_layers * model.expert_parameters
        self._flop_seconds = 2.0 * dense / gemm
        self._weight_seconds = dense * model.dtype_bytes / world / memory
        self._elementwise_seconds = model.num_layers * elementwise_bytes(model, world) / gpu.memory_bandwidth
        self._expert_flop_seconds = 2.0 * expert * model.num_experts_per_tok / (gemm * share.experts)
        self._expert_weight_seconds = expert * model.dtype_bytes * model.num_experts / world / memory
        self._experts_missed = 1.0 - model.num_experts_per_tok / model.num_experts if model.num_experts else 0.0
        self._head_flop_seconds = 2.0 * model.head_parameters / gemm
        self._head_weight_seconds = model.head_parameters * model.dtype_bytes / world / memory
        flops_per_pair = 4.0 * model.num_layers * model.num_heads * model.head_size / world
        self._pair_seconds = flops_per_pair / (gpu.bf16_flops * share.attention)
        self._mixed_slowdown = 1.0 / share.mixed
        self._context_seconds = model.kv_bytes_per_token(world, kv_dtype_bytes) / memory
        self.host_seconds = step_overhead
        self._step_seconds = step_overhead + model.num_layers * layer_overhead
        self._sequence_seconds = sequence_overhead
        self._reduces = 2 * model.num_layers if world > 1 else 0
        self._reduce_bytes = model.hidden_size * max(model.dtype_bytes, 2)
        self._world = world
        self._link = gpu.link_bandwidth
        self._transfer = Transfer.of(gpu)
        self._by_counts: dict[tuple[int, int], tuple[float, float]] = {}

    def step_seconds(self, shape: StepShape) -> float:
        work = StepWork.of(shape)
        counts = work.num_tokens, work.num_sampled
        by_counts = self._by_counts.get(counts)
        if by_counts is None:
            by_counts = self._seconds_by_counts(*counts)
        seconds, reduces = by_counts
        seconds += work.prefill_pairs * self._pair_seconds
        slower = self._mixed_slowdown if work.num_prefills else 1.0
        seconds += (slower * work.decode_context + work.prefill_context) * self._context_seconds
        return seconds + work.num_sampled * self._sequence_seconds + reduces

    def _seconds_by_counts(self, tokens: int, sampled: int) -> tuple[float, float]:
        """What depends on the numbers of tokens alone, which steps repeat: the work on weights, and on the links."""
        seconds = self._step_seconds + tokens * self._elementwise_seconds
        seconds += _joined(tokens * self._flop_seconds, self._weight_seconds)
        if self._experts_missed:
            touched = 1.0 - self._experts_missed**tokens
            seconds += _joined(tokens * self._expert_flop_seconds, touched * self._expert_weight_seconds)
        if sampled:
            seconds += _joined(sampled * self._head_flop_seconds, self._head_weight_seconds)
        reduces = 0.0
        if self._reduces:
            reduces = self._reduces * all_reduce_seconds(tokens * self._reduce_bytes, self._world, self._link)
        if len(self._by_counts) >= _COUNTS_KEPT:
            self._by_counts.clear()
        self._by_counts[tokens, sampled] = seconds, reduces
        return seconds, reduces

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return self._transfer.seconds(num_bytes, direction)


def _joined(arithmetic: float, memory: float) -> float:
    """Time of two activities that overlap, but not perfectly."""
    longer, shorter = (arithmetic, memory) if arithmetic > memory else (memory, arithmetic)
    ratio = shorter / longer if longer else 0.0
    return longer * math.cbrt(1.0 + ratio * ratio * ratio)
