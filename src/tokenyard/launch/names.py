"""Names of settings: vLLM's flag is the name; configurations call some otherwise, and people abbreviate."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["OTHER_NAMES", "setting_name"]

OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "num_gpu_blocks": "num_gpu_blocks_override",
        "policy": "scheduling_policy",
        "method": "speculative_method",
        "acceptance": "acceptance_rates",
        "tp": "tensor_parallel_size",
        "pp": "pipeline_parallel_size",
        "dp": "data_parallel_size",
    }
)
"""Another name -> the setting; every place that reads or says names of settings reads this."""


def setting_name(given: str) -> str:
    """The setting that somebody means: dashes are as good as underscores, and other names will do."""
    name = given.strip().removeprefix("--").replace("-", "_")
    return OTHER_NAMES.get(name, name)
