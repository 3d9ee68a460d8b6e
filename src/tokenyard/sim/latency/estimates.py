"""Estimates that the roofline needs everywhere, and measured tables where they have gaps."""

from __future__ import annotations

from tokenyard.models.spec import ModelSpec

__all__ = ["all_reduce_seconds", "elementwise_bytes"]

LATENCY = 8e-6
"""Seconds of an all-reduce however small: launch, flags, skew between the GPUs."""
LINK_EFFICIENCY = 0.35
"""Share of the link's bandwidth that messages of some ten megabytes reach."""


def all_reduce_seconds(num_bytes: float, world: int, link_bandwidth: float) -> float:
    """Each GPU sends and receives ``2 (world - 1) / world`` of the message over its link."""
    return LATENCY + 2.0 * (world - 1) / world * num_bytes / (link_bandwidth * LINK_EFFICIENCY)


def elementwise_bytes(model: ModelSpec, world: int) -> int:
    """Memory traffic per token and layer of everything between the matrix products.

    The activation reads two MLP widths and writes one; norms, residuals and rotary embedding come to four hidden
    states beyond what the caches catch.
    """
    width = model.intermediate_size
    if model.num_experts:
        width = model.num_experts_per_tok * model.moe_intermediate_size + model.shared_intermediate_size
    return (3 * width // world + 4 * model.hidden_size) * max(2, model.dtype_bytes)
