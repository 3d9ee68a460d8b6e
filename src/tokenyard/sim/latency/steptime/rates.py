"""What a GPU does per second beyond its data sheet's first line: arithmetic by number format, and its generation.

Dense rates relative to bfloat16, from the vendors' data sheets.
"""

from __future__ import annotations

from tokenyard.kv.sizing.gpus import GPU
from tokenyard.models.weights import WeightFormat

__all__ = [
    "GPUS_PER_MACHINE",
    "arithmetic_kind",
    "arithmetic_rate",
    "generation",
    "gpus_together",
    "has_nvlink",
    "named_generation",
    "storage_kind",
]

_GENERATIONS = {
    "ampere": ("a10", "a100-40gb", "a100-80gb"),
    "ada": ("l4", "l40s", "rtx4090"),
    "hopper": ("h100", "h200"),
    "blackwell": ("b200", "b300", "gb200"),
    "blackwell-rtx": ("rtx5090", "rtxpro6000"),
}
_OF_GPU = {gpu: name for name, gpus in _GENERATIONS.items() for gpu in gpus}
_FASTER = {
    "ampere": {"int8": 2.0},
    "ada": {"int8": 2.0, "float8": 2.0},
    "hopper": {"int8": 2.0, "float8": 2.0},
    "blackwell": {"int8": 2.0, "float8": 2.0, "float4": 4.0},
    "blackwell-rtx": {"int8": 2.0, "float8": 2.0, "float4": 4.0},
}
GPUS_PER_MACHINE = 8
"""Where nobody says: most machines with such GPUs have 8 of them."""
_NVLINK_DOMAINS = {"gb200": 72}
"""GPUs of several machines that one NVLink switch joins (NVL72)."""
_KINDS = {"float8": "float8", "float8_e4m3fn": "float8", "float8_e5m2": "float8", "int8": "int8", "float4": "float4"}


def generation(gpu: GPU) -> str:
    """Name of the GPU's architecture; ``unknown`` for one that is not in the table."""
    return named_generation(gpu.name)


def named_generation(name: str) -> str:
    """The same by the GPU's name."""
    return _OF_GPU.get(name, "unknown")


def has_nvlink(gpu: GPU) -> bool:
    """Whether the GPUs of a node are joined by more than PCIe."""
    return gpu.link_bandwidth > gpu.pcie_bandwidth


def gpus_together(gpu: GPU, gpus_per_machine: int = 0) -> int:
    """GPUs that are joined by their own links, not by a network: those of a machine, or of an NVLink domain.

    ``gpus_per_machine``: 0 where nobody says: 8.
    """
    return max(_NVLINK_DOMAINS.get(gpu.name, 0), gpus_per_machine or GPUS_PER_MACHINE)


def arithmetic_kind(gpu: GPU, weights: WeightFormat) -> str:
    """Units that multiply such weights: bfloat16, float8, int8 or float4.

    Where the GPU has no units for a format, values are widened to bfloat16 first; MXFP4 weights meet 8-bit activations
    on Blackwell (vLLM's FlashInfer kernels), and are widened elsewhere (Marlin).
    """
    kind = _KINDS.get(weights.compute, "bfloat16")
    if weights.name == "mxfp4":
        kind = "float8" if generation(gpu) == "blackwell" else "bfloat16"
    return kind if kind in _FASTER.get(generation(gpu), {}) else "bfloat16"


def arithmetic_rate(gpu: GPU, kind: str) -> float:
    """FLOP per second of the units for ``kind``."""
    return gpu.bf16_flops * _FASTER.get(generation(gpu), {}).get(kind, 1.0)


def storage_kind(weights: WeightFormat) -> str:
    """Bits per weight in memory, as constants are named: 16, 8 or 4."""
    return "16" if weights.bits > 8 else "8" if weights.bits > 4 else "4"
