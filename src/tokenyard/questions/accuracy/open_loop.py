"""A result of ``vllm bench serve`` at a request rate, as a measured run: its requests, when they came, what they took.

Lengths and times of single requests are needed (``--save-detailed``). Requests arrive when the result says that they
were sent or, where it does not (before vLLM 0.11), at its rate, drawn. Its times are the client's, so that predicted
ones count what lies between client and scheduler, as those of closed loops do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.profiles import OLDEST, DecisionProfile
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.questions.accuracy.deployments import Recipe, measured_model, prepares_ahead
from tokenyard.questions.accuracy.measured_run import Floats, MeasuredRun
from tokenyard.questions.accuracy.points import Engine, json_object, kv_tokens
from tokenyard.questions.measured import measured_times
from tokenyard.workload.load import read_workload
from tokenyard.workload.record import Workload, WorkloadRequest

_MAX_SEQS = 1024
"""vLLM's default for a server on such GPUs, as for closed loops."""
_BLOCK_SIZE = 16
_DETAILED = "make it with vllm bench serve --save-result --save-detailed"


def is_open_loop(path: Path) -> bool:
    """Whether a result was sent at a rate, with no bound on how many are under way. Raises WorkloadError."""
    found = json_object(path)
    return found.get("max_concurrency") is None and request_rate(found) < math.inf


def request_rate(found: Mapping[str, Any]) -> float:
    """Requests a second, as a result says it; infinity: all at once."""
    try:
        return float(found.get("request_rate") or "inf")
    except (TypeError, ValueError):
        return math.inf


def read_open_loop(path: Path, engine: Engine, *, seed: int = 0, profile: DecisionProfile = OLDEST) -> MeasuredRun:
    """The run; ``profile`` will decide. Raises WorkloadError for a file that is none, ConfigError for what it lacks."""
    if engine.gpu is None:
        raise ConfigError("gpu", None, "give §gpu: a result of vllm bench serve does not name the GPU")
    found = json_object(path)
    workload = read_workload(path, format="vllm-bench", seed=seed)
    requests, times = _timed(path, workload)
    model = str(found.get("model_id") or "")
    spec = engine.spec or measured_model(model, "fp8" if "fp8" in model.lower() else "")
    recipe = Recipe(
        max_num_batched_tokens=engine.max_num_batched_tokens,
        kv_cache_dtype=engine.kv_cache_dtype,
        async_scheduling=prepares_ahead(engine.version),
    )
    held = kv_tokens(
        spec,
        engine.gpu,
        engine.parallel,
        gpu_memory_utilization=recipe.gpu_memory_utilization,
        kv_cache_dtype=recipe.kv_cache_dtype,
        max_num_batched_tokens=recipe.max_num_batched_tokens,
        max_num_seqs=_MAX_SEQS,
    )
    drawn = next((each for each in workload.remarks if each.code == "drawn_as_stated"), None)
    return MeasuredRun(
        name=path.name,
        spec=spec,
        gpu=engine.gpu,
        parallel=engine.parallel,
        version=engine.version,
        scheduler=SchedulerConfig(
            profile=profile,
            max_num_seqs=_MAX_SEQS,
            max_num_batched_tokens=recipe.max_num_batched_tokens,
            max_model_len=spec.max_model_len,
            async_scheduling=recipe.async_scheduling,
        ),
        cache=CacheConfig(num_gpu_blocks=int(held // _BLOCK_SIZE), block_size=_BLOCK_SIZE),
        kv_cache_dtype=engine.kv_cache_dtype,
        precision=spec.weight_format.name,
        arrived=np.array([each.arrival_time for each in requests]),
        input_tokens=np.array([each.num_prompt_tokens for each in requests], np.int64),
        output_tokens=np.array([each.max_tokens for each in requests], np.int64),
        ttft=times[:, 0],
        tpot=times[:, 1],
        e2e=times[:, 2],
        is_of_clients=True,
        arrivals="" if drawn is None else f", arrivals drawn at {request_rate(found):g} a second with seed {seed}",
    )


def _timed(path: Path, workload: Workload) -> tuple[list[WorkloadRequest], Floats]:
    """The requests whose whole answer was timed, in order of arrival, and TTFT, TPOT, E2E of each, in seconds.

    The TPOT of an answer of one token is 0, as in a measured run.
    """
    times = measured_times(workload)
    all_times = np.stack((times.ttft, np.nan_to_num(times.tpot), times.e2e), axis=1)
    known = np.flatnonzero(~np.isnan(all_times).any(axis=1)).tolist()
    if not known:
        raise WorkloadError(str(path), 1, f"has a request rate, and no times of single requests: {_DETAILED}")
    known.sort(key=lambda i: workload.requests[i].arrival_time)
    return [workload.requests[i] for i in known], all_times[known]
