"""The fitted constants: a common set, and by how much GPUs, models and versions of vLLM differ from it.

    constant of a deployment = common x GPU's factor x model's factor on that generation x version's factor

Generations of GPUs that no point was measured on have factors of what their vendor publishes (``lab/fit_gpu.py``), and
GPUs whose kernels were timed those of what kernels reach (``lab/fit_kernels.py``).

Factors belong to groups of constants that stand for one thing (:data:`GROUPS`). What was never measured has the factor
1. ``constants.json`` is written by ``lab/fit_latency.py``, which says what it was fitted to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any

import msgspec

from tokenyard.files import packaged
from tokenyard.models.gpus import GPU
from tokenyard.models.spec import ModelSpec
from tokenyard.quick_dataclass import dataclass
from tokenyard.steptime.formula import generation, has_nvlink
from tokenyard.steptime.kernels import storage_kind

FEWEST_POINTS = 10
"""Measured points from which on a model has an error of its own, in place of that of all models."""

GROUPS: dict[str, tuple[str, ...]] = {
    "gemm": ("gemm_bfloat16", "gemm_float8", "gemm_float4"),
    "memory": ("memory_16", "memory_8", "memory_4", "memory_4_widened"),
    "experts": ("experts_bfloat16", "experts_widened", "experts_float8", "experts_float4"),
    "expert_memory": ("expert_memory_16", "expert_memory_8", "expert_memory_4", "expert_memory_4_widened"),
    "launch": ("launch_step", "launch_kernel", "eager_kernel"),
}
"""Constants that share a factor; every other constant has one of its own."""
ON_HOST = ("launch_step", "launch_kernel", "eager_kernel", "host", "host_request", "request", "request_token")
"""What the processor takes, not the GPU."""


def bounded(values: dict[str, float]) -> dict[str, float]:
    """The same; dense products at no more than the data sheet's rate, whatever a server's points seem to say."""
    return values | {name: min(1.0, values[name]) for name in GROUPS["gemm"]}


def model_key(spec: ModelSpec) -> str:
    """What a model was measured under: its shape and the format of most weights. Models of one shape share it."""
    weights = spec.weight_format
    form = weights.name if weights.name == "mxfp4" else storage_kind(weights)
    if form in ("8", "4") and weights.compute.startswith(("float", "int")):
        form += "q"  # activations are quantised as well
    experts = f"x{spec.num_experts}" if spec.num_experts else ""
    return f"{spec.num_layers}x{spec.hidden_size}{experts}:{form}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDeployment:
    """One model on one GPU, spread in one way, and the loads that it was measured under."""

    key: str
    """The key of :func:`model_key`."""
    model: str
    """The model as the points name it."""
    precision: str
    gpu: str
    layout: tuple[int, int, int, bool]
    """Sizes of tensor, data and pipeline parallelism; whether experts are whole."""
    kv_dtype: str
    """``auto``: the model's own."""
    versions: tuple[str, ...]
    """Versions of vLLM; an empty one is not known."""
    points: int
    users: tuple[int, int]
    """Fewest and most, over all data-parallel ranks."""
    input_tokens: tuple[int, int]
    output_tokens: tuple[int, int]

    @property
    def shape(self) -> str:
        """The key without the format of the weights."""
        return self.key.partition(":")[0]

    @property
    def size(self) -> int:
        """Layers times width, to tell which model is near."""
        layers, width = self.shape.split("x")[:2]
        return int(layers) * int(width)

    @staticmethod
    def layout_in_words(tensor: int, data: int, pipeline: int, expert: bool) -> str:
        """``TP 8``, ``TP 1 DP 4 EP``."""
        more = (("DP", data), ("PP", pipeline))
        words = [f"TP {tensor}", *(f"{name} {size}" for name, size in more if size > 1), *(["EP"] if expert else [])]
        return " ".join(words)

    def __str__(self) -> str:
        def span(ends: tuple[int, int]) -> str:
            return f"{ends[0]:,}" if ends[0] == ends[1] else f"{ends[0]:,} to {ends[1]:,}"

        named = [each for each in self.versions if minor_version(each) is not None]
        version = f", vLLM {' and '.join(named)}" if named else ""
        loads = f"{span(self.users)} users, {span(self.input_tokens)} + {span(self.output_tokens)} tokens"
        name, layout = self.model.rsplit("/", 1)[-1], self.layout_in_words(*self.layout)
        served = f"{name} {self.precision} on {self.gpu}, {layout}, KV {self.kv_dtype}{version}"
        return f"{served} ({self.points} point{'s' * (self.points > 1)}: {loads})"


@dataclass(frozen=True)
class Constants:
    """What ``constants.json`` holds."""

    data: Mapping[str, Any]

    @property
    def provenance(self) -> str:
        """What was measured, and how it was fitted."""
        return str(self.data["provenance"])

    @cached_property
    def deployments(self) -> tuple[MeasuredDeployment, ...]:
        """What was measured."""
        return msgspec.convert(self.data["deployments"], tuple[MeasuredDeployment, ...])

    @property
    def newest_version(self) -> str:
        """The newest version of vLLM that was measured."""
        found = {each for one in self.deployments for each in one.versions}
        return max(found, key=lambda each: minor_version(each) or 0, default="")

    @property
    def estimates(self) -> Mapping[str, float]:
        """How far constants lay from what was estimated before they were fitted: a median, and between what nine of
        ten were, as fitted over estimated.
        """
        found: Mapping[str, float] = self.data["estimates"]
        return found

    def measured_gpu(self, gpu: GPU) -> bool:
        """Whether anything was served on it; kernels that were timed alone say nothing of the rest of a step."""
        return any(each.gpu == gpu.name for each in self.deployments)

    def published_for(self, gpu: GPU) -> bool:
        """Whether its generation has factors of what its vendor publishes."""
        return generation(gpu) in self.data.get("published", {})

    def of(self, spec: ModelSpec, gpu: GPU, version: str | None = None) -> dict[str, float]:
        """The constants of one deployment. ``version`` of vLLM: None, or one not measured, is the newest measured."""
        values: dict[str, float] = dict(self.data["common"])
        model = f"{model_key(spec)}/{generation(gpu)}"
        versions: Mapping[str, Any] = self.data["versions"].get(model, {})
        newest = max(versions, key=_order, default="")
        for factors in (
            self.data["gpus"].get(gpu.name) or self.data.get("kernels", {}).get(gpu.name, {}),
            self.data.get("published", {}).get(generation(gpu), {}),
            self.data["models"].get(model, {}),
            versions.get(version or "", versions.get(newest, {})),
        ):
            for group, factor in factors.items():
                for name in GROUPS.get(group, (group,)):
                    values[name] *= factor
        values = bounded(values)
        pcie: Mapping[str, float] = self.data["links"]["pcie"]
        if not has_nvlink(gpu):
            values |= pcie
        floors = {f"network_{name}": pcie[name] for name in ("all_reduce", "all_to_all")}
        return values | floors | {"network": gpu.network_bandwidth, "layer": 0.0}

    def errors(self, quantity: str) -> Mapping[str, Mapping[str, float]]:
        """Errors of ``tpot`` or ``ttft``: what was left out of the fit -> median, p90 and n of the absolute error, and
        the range in which nine of ten lay, as measured over predicted.
        """
        found: Mapping[str, Mapping[str, float]] = self.data["errors"][quantity]
        return found

    def error_of_model(self, quantity: str, key: str) -> Mapping[str, float]:
        """The same of loads of one model that were left out; that of all models where it has too few points."""
        own = self.data["errors_of_models"].get(key, {}).get(quantity)
        return own if own is not None else self.errors(quantity)["load"]


@cache
def shipped_constants() -> Constants:
    """The ones of this version of the package."""
    return Constants(json.loads(packaged("tokenyard.steptime", "constants.json")))


def minor_version(version: str) -> int | None:
    """A number that grows by one with every minor version of vLLM; None for what is no release."""
    found = re.match(r"(\d+)\.(\d+)(\.|$)", version)
    return None if found is None else int(found[1]) * 100 + int(found[2])


def _order(version: str) -> tuple[int, ...]:
    """Versions in their order; one that is not numbers comes first."""
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()
