"""The fitted constants: a common set, and by how much GPUs, models and versions of vLLM differ from it.

    constant of a deployment = common x GPU's factor x model's factor on that generation x version's factor

Factors belong to groups of constants that stand for one thing (:data:`GROUPS`). What was never measured has the factor
1. ``constants.json`` is written by ``scripts/fit_latency.py``, which says what it was fitted to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from tokenyard.kv.sizing.gpus import GPU
from tokenyard.models.spec import ModelSpec
from tokenyard.sim.latency.steptime.rates import generation, has_nvlink, storage_kind

__all__ = ["GROUPS", "Constants", "model_key", "shipped_constants"]

GROUPS: dict[str, tuple[str, ...]] = {
    "gemm": ("gemm_bfloat16", "gemm_float8", "gemm_float4"),
    "memory": ("memory_16", "memory_8", "memory_4"),
    "experts": ("experts_bfloat16", "experts_float8", "experts_float4"),
    "expert_memory": ("expert_memory_16", "expert_memory_8", "expert_memory_4"),
    "launch": ("launch_step", "launch_layer", "launch_expert_layer", "eager_layer", "eager_expert_layer"),
}
"""Constants that share a factor; every other constant has one of its own."""


def model_key(spec: ModelSpec) -> str:
    """What a model was measured under: its shape and the format of most weights. Models of one shape share it."""
    weights = spec.weight_format
    form = weights.name if weights.name == "mxfp4" else storage_kind(weights)
    if form in ("8", "4") and weights.compute.startswith(("float", "int")):
        form += "q"  # activations are quantised as well
    experts = f"x{spec.num_experts}" if spec.num_experts else ""
    return f"{spec.num_layers}x{spec.hidden_size}{experts}:{form}"


@dataclass(frozen=True, slots=True)
class Constants:
    """What ``constants.json`` holds."""

    data: Mapping[str, Any]

    @property
    def provenance(self) -> str:
        """What was measured, and how it was fitted."""
        return str(self.data["provenance"])

    def measured_gpu(self, gpu: GPU) -> bool:
        return gpu.name in self.data["gpus"]

    def measured_model(self, spec: ModelSpec, gpu: GPU) -> bool:
        """Whether the model was measured on a GPU of the same generation."""
        return f"{model_key(spec)}/{generation(gpu)}" in self.data["models"]

    def measured_together(self, spec: ModelSpec, gpu: GPU) -> bool:
        """Whether the model was measured on this very GPU."""
        return f"{model_key(spec)}/{gpu.name}" in self.data["pairs"]

    def of(self, spec: ModelSpec, gpu: GPU, version: str | None = None) -> dict[str, float]:
        """The constants of one deployment. ``version`` of vLLM: None, or one not measured, is the newest measured."""
        values: dict[str, float] = dict(self.data["common"])
        model = f"{model_key(spec)}/{generation(gpu)}"
        versions: Mapping[str, Any] = self.data["versions"].get(model, {})
        newest = max(versions, key=_order, default="")
        for factors in (
            self.data["gpus"].get(gpu.name, {}),
            self.data["models"].get(model, {}),
            versions.get(version or "", versions.get(newest, {})),
        ):
            for group, factor in factors.items():
                for name in GROUPS.get(group, (group,)):
                    values[name] *= factor
        if not has_nvlink(gpu):
            values |= self.data["links"]["pcie"]
        return values

    def error(self, quantity: str, kind: str, spec: ModelSpec | None = None) -> Mapping[str, float]:
        """Of ``tpot`` or ``ttft`` for one kind of familiarity: median, p90 and n of the absolute error, and the range.

        With ``spec`` those of that measured model, if it has points enough.
        """
        of_models = self.data.get("errors_of_models", {}).get(model_key(spec), {}) if spec is not None else {}
        return dict(of_models.get(quantity, self.data["errors"][quantity][kind]))


@cache
def shipped_constants() -> Constants:
    """The ones of this version of the package."""
    text = files("tokenyard.sim.latency.steptime").joinpath("constants.json").read_text()
    return Constants(json.loads(text))


def _order(version: str) -> tuple[int, ...]:
    """Versions in their order; one that is not numbers comes first."""
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()
