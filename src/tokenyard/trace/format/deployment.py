"""What a replay stood for: the deployment as it was understood, and everything that was assumed or passed over.

It is the section ``deployment`` of a trace's configuration, and part of every report's header. None where nobody said.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["SECTION", "Assumption", "Deployment", "deployment_of"]

SECTION = "deployment"
"""Of the configuration in ``trace_start``."""


class Assumption(msgspec.Struct, frozen=True, kw_only=True):
    """Something that nobody said, and what was taken."""

    name: str
    """The flag, without dashes, or what else it is."""
    value: Any
    why: str

    def __str__(self) -> str:
        value = f"{self.value:,}" if isinstance(self.value, int) and not isinstance(self.value, bool) else self.value
        return f"{self.name} {value}: {self.why}"


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """What is served, on what, and how far that is known."""

    kv_tokens: int | None = None
    """Tokens that the KV cache holds, as vLLM logs them (``GPU KV cache size``)."""
    num_gpu_blocks: int | None = None
    block_size: int | None = None
    """Tokens per block."""
    kv_dtype: str | None = None
    kv_gib: float | None = None
    """KV cache on each GPU, in GiB."""
    kv_groups: list[str] = []
    """Layers that share block tables, in words."""
    weight_gib: float | None = None
    """Weights on each GPU, in GiB."""
    weight_dtype: str | None = None
    """Of most weights."""
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    enable_expert_parallel: bool | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    async_scheduling: bool | None = None
    vllm_version: str | None = None
    """Whose defaults were taken."""
    step_time: str | None = None
    """Where step times come from: as ``--latency`` names it."""
    step_time_error: str | None = None
    """What is known of their error."""
    assumed: list[Assumption] = []
    """What nobody said."""
    used: list[str] = []
    """Flags of ``vllm serve`` that count here."""
    without_effect: list[str] = []
    """Flags that change nothing in a replay, with the reason."""
    ignored: list[str] = []
    """What would change something, and is not modelled, with what it would change."""


def deployment_of(config: dict[str, Any] | None) -> Deployment:
    """The section of a configuration; an empty one where there is none, or one that nobody can read."""
    try:
        return msgspec.convert((config or {}).get(SECTION, {}), Deployment)
    except msgspec.ValidationError:
        return Deployment()
