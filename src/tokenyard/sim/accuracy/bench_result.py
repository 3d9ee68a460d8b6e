"""A result file of ``vllm bench serve`` (``--save-result``) as a measured point.

It tells the load and the times, but not the engine: model, GPU and parallelism are given with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.kv.sizing.gpus import GPU
from tokenyard.models.spec import ModelSpec
from tokenyard.sim.accuracy.input_files import json_object
from tokenyard.sim.accuracy.models import measured_model
from tokenyard.sim.accuracy.points import Point
from tokenyard.sim.accuracy.recipes import Recipe
from tokenyard.sim.latency.steptime.amounts import Parallelism

__all__ = ["Engine", "read_bench_result"]

_NEEDED = ("num_prompts", "total_input_tokens", "total_output_tokens", "mean_ttft_ms", "mean_tpot_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What a result file does not tell."""

    spec: ModelSpec | None = None
    """None: by the result's ``model_id``."""
    gpu: GPU | None = None
    parallel: Parallelism = field(default_factory=Parallelism)
    version: str = ""
    max_num_batched_tokens: int = 8192
    kv_cache_dtype: str | None = None


def read_bench_result(path: Path, engine: Engine) -> Point:
    """The point. Raises WorkloadError for a file that is none, ConfigError for what is not told."""
    found = json_object(path)
    missing = [name for name in _NEEDED if not isinstance(found.get(name), int | float)]
    if missing:
        raise WorkloadError(str(path), 1, f"is no result of vllm bench serve: it lacks {', '.join(missing)}")
    if engine.gpu is None:
        raise ConfigError("gpu", None, "give --gpu: a result of vllm bench serve does not name the GPU")
    prompts = int(found["num_prompts"])
    users = found.get("max_concurrency")
    if users is None:
        if _rate(found) < math.inf:
            raise WorkloadError(
                str(path), 1, "has a request rate and no max_concurrency: only closed loops are compared"
            )
        users = prompts
    if prompts < 1 or int(users) < 1:
        raise WorkloadError(str(path), 1, "must have num_prompts and max_concurrency above 0")
    model = str(found.get("model_id") or "")
    spec = engine.spec or measured_model(model, "fp8" if "fp8" in model.lower() else "")
    recipe = Recipe(
        max_num_batched_tokens=engine.max_num_batched_tokens, kv_cache_dtype=engine.kv_cache_dtype, shortest=1.0
    )
    ttft, tpot = float(found["mean_ttft_ms"]), float(found["mean_tpot_ms"])
    if not (0 < ttft < math.inf and 0 < tpot < math.inf):
        raise WorkloadError(str(path), 1, "must have mean_ttft_ms and mean_tpot_ms above 0")
    return Point(
        name=path.name,
        model=model or spec.name,
        precision=spec.weight_format.name,
        spec=spec,
        gpu=engine.gpu,
        version=engine.version,
        parallel=engine.parallel,
        recipe=recipe,
        input_tokens=max(1, round(found["total_input_tokens"] / prompts)),
        output_tokens=max(2, round(found["total_output_tokens"] / prompts)),
        users=min(int(users), prompts),
        rounds=max(1, round(prompts / min(int(users), prompts))),
        ttft=ttft / 1e3,
        tpot=tpot / 1e3,
    )


def _rate(found: Mapping[str, Any]) -> float:
    try:
        return float(found.get("request_rate") or "inf")
    except (TypeError, ValueError):
        return math.inf
