"""Formats in which weights are stored: bits per weight, scales included.

A format says what memory and traffic cost; ``compute`` says in which arithmetic the products are taken, which is
less precise than the model's own dtype only where activations are quantised too.
"""

from __future__ import annotations

from dataclasses import replace

from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass

DTYPE_BYTES = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
    "uint8": 1,
}
"""Bytes per element, by torch's names."""
NO_FLOAT16 = ("gemma2", "gemma3", "gemma3_text", "glm4")
"""Model types that vLLM does not run in float16."""
_SMALLEST_GROUP = 32


def dtype_bytes(dtype: str) -> int:
    """Bytes per element of a dtype, or ConfigError listing the known ones."""
    size = DTYPE_BYTES.get(dtype) if isinstance(dtype, str) else None
    if size is None:
        raise ConfigError("dtype", dtype, f"use one of: {', '.join(DTYPE_BYTES)}")
    return size


KV_CACHE_DTYPES = {"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "nvfp4": 0.5625}
"""Bytes per element by ``--kv-cache-dtype``; nvfp4 with its scale per 16 elements."""


def kv_element_bytes(dtype: str) -> float:
    """Bytes per element of keys and values in a resolved ``kv_cache_dtype``."""
    return KV_CACHE_DTYPES[dtype] if dtype in KV_CACHE_DTYPES else float(dtype_bytes(dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How one kind of weight is stored and multiplied."""

    name: str
    """bfloat16, fp8, mxfp4, awq ...: as reports show it."""
    bits: float
    """Per weight, without scales and zero points."""
    group_size: int = 0
    """Weights that share a scale; 0: scales are too few to count."""
    group_bits: float = 0
    """Scale and zero point of a group, in bits."""
    compute: str = "bfloat16"
    """Arithmetic of the matrix products: bfloat16, float8, int8 or float4."""
    alignment: int = 1
    """Columns of a matrix that cannot be parted: the share of a GPU has to be a multiple of it."""
    groups_halve: bool = False
    """Groups are halved until they divide the share of a GPU, down to 32: experts of integers, as vLLM keeps them."""

    @property
    def bits_per_weight(self) -> float:
        """Scales and zero points included."""
        return self.bits + (self.group_bits / self.group_size if self.group_size else 0.0)

    def dividing(self, *sizes: int) -> WeightFormat:
        """The format with groups that divide these sizes."""
        group = self.group_size
        while self.groups_halve and group >= 2 * _SMALLEST_GROUP and any(size % group for size in sizes):
            group //= 2
        return self if group == self.group_size else replace(self, group_size=group)

    def num_bytes(self, num_weights: int) -> int:
        """Bytes of so many weights, rounded up."""
        return -int(-num_weights * self.bits_per_weight // 8)


def plain_format(dtype: str) -> WeightFormat:
    """Weights as they are, in ``dtype``: not quantised."""
    return WeightFormat(name=dtype, bits=8 * dtype_bytes(dtype), compute=dtype)


BFLOAT16_BYTES = 2
BFLOAT16 = plain_format("bfloat16")
