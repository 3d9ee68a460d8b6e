"""Named GPUs: what sizing the KV cache and estimating a step's duration need to know of them.

``memory_bytes`` is what the driver hands to one process (``torch.cuda.get_device_properties().total_memory``), which
is less than the number on the box. Bandwidths and FLOP rates are the vendors' data sheets, dense (no sparsity), in
one direction; what a kernel reaches of them is the latency model's business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tokenyard.errors import ConfigError

__all__ = ["GPU", "GPUS", "gpu_of_device", "named_gpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GPU:
    """One accelerator."""

    name: str
    memory_bytes: int
    """Device memory in bytes."""
    memory_bandwidth: float
    """Device memory, bytes per second."""
    bf16_flops: float
    """Dense bfloat16 tensor throughput, FLOP per second."""
    pcie_bandwidth: float
    """Host to device, bytes per second."""
    link_bandwidth: float
    """To the other GPUs of the node, bytes per second: NVLink where there is one, else PCIe."""
    compute_capability: tuple[int, int]
    """CUDA's, major and minor: by it vLLM chooses kernels and some defaults."""


_GIB = float(1 << 30)
_PCIE4 = 32e9
_PCIE5 = 64e9


def _gpu(
    name: str,
    memory_gib: float,
    bandwidth_gb: float,
    tflops: float,
    *,
    capability: tuple[int, int],
    pcie: float,
    nvlink_gb: float = 0,
) -> GPU:
    return GPU(
        name=name,
        memory_bytes=int(memory_gib * _GIB),
        memory_bandwidth=bandwidth_gb * 1e9,
        bf16_flops=tflops * 1e12,
        pcie_bandwidth=pcie,
        link_bandwidth=nvlink_gb * 1e9 or pcie,
        compute_capability=capability,
    )


_ALL = (
    _gpu("a10", 22.06, 600, 125, capability=(8, 6), pcie=_PCIE4),
    _gpu("a100-40gb", 39.59, 1_555, 312, capability=(8, 0), pcie=_PCIE4, nvlink_gb=300),
    _gpu("a100-80gb", 79.25, 2_039, 312, capability=(8, 0), pcie=_PCIE4, nvlink_gb=300),
    _gpu("h100", 79.19, 3_350, 989, capability=(9, 0), pcie=_PCIE5, nvlink_gb=450),
    _gpu("h200", 139.81, 4_800, 989, capability=(9, 0), pcie=_PCIE5, nvlink_gb=450),
    _gpu("b200", 178.36, 8_000, 2_250, capability=(10, 0), pcie=_PCIE5, nvlink_gb=900),
    _gpu("b300", 267.68, 8_000, 2_250, capability=(10, 3), pcie=_PCIE5, nvlink_gb=900),
    _gpu("gb200", 184.00, 8_000, 2_450, capability=(10, 0), pcie=_PCIE5, nvlink_gb=900),
    _gpu("l4", 22.03, 300, 121, capability=(8, 9), pcie=_PCIE4),
    _gpu("l40s", 44.40, 864, 362, capability=(8, 9), pcie=_PCIE4),
    _gpu("rtx4090", 23.5165, 1_008, 165.2, capability=(8, 9), pcie=_PCIE4),
    _gpu("rtx5090", 31.36, 1_792, 209.5, capability=(12, 0), pcie=_PCIE5),
    _gpu("rtxpro6000", 94.97, 1_597, 503.8, capability=(12, 0), pcie=_PCIE5),
)

GPUS: dict[str, GPU] = {gpu.name: gpu for gpu in _ALL}
"""By name, as ``--gpu`` takes it."""


def named_gpu(name: str) -> GPU:
    """The GPU called ``name``, by us (case and ``_`` for ``-`` do not matter) or by its driver (``NVIDIA L40S``).

    Raises ConfigError listing our names.
    """
    text = name.lower() if isinstance(name, str) else ""
    gpu = GPUS.get(text.replace("_", "-"))
    if gpu is None and text.startswith("nvidia"):
        gpu = gpu_of_device(re.sub(r"[_-]+", " ", text))
    if gpu is None:
        raise ConfigError("gpu", name, f"use one of: {', '.join(GPUS)}")
    return gpu


_SLOWER = ("pcie", "nvl", "mig")
"""In a device's name: another memory, or part of one, than that of the GPU without it."""


def gpu_of_device(name: str) -> GPU | None:
    """The GPU that a driver calls ``name`` (``NVIDIA H100 80GB HBM3``); None for one that is not known here."""
    words = name.lower()
    if any(re.search(rf"\b{word}\b", words) for word in _SLOWER):
        return None
    found = [gpu for gpu in _ALL if all(re.search(_spelled(part), words) for part in gpu.name.split("-"))]
    return found[0] if len(found) == 1 else None


def _spelled(part: str) -> str:
    """``rtx4090`` as a pattern that also matches ``RTX 4090``."""
    return r"\b" + r"\W*".join(re.findall(r"\d+gb|gb(?=\d)|rtx|pro|[a-z]+(?=\d)|\d+[a-z]*", part)) + r"\b"
