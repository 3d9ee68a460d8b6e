"""A measured run as a folder: ``meta.json`` (engine arguments) and ``requests.jsonl`` (lengths and times), replayed.

The layout is that of LLMServingSim's benchmark of vLLM. TTFT counts from the moment in which the engine queued the
request; so does the end-to-end time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokenyard.core.config import MAX_COUNT, CacheConfig, SchedulerConfig
from tokenyard.core.profiles import OLDEST, DecisionProfile
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.memory.room import check_utilization
from tokenyard.models.gpus import GPU, GPUS
from tokenyard.models.spec import ModelSpec
from tokenyard.questions.accuracy.closed_loop import Ended
from tokenyard.questions.accuracy.deployments import measured_model
from tokenyard.questions.accuracy.points import json_object, json_rows, kv_tokens
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.replay import replay_engines
from tokenyard.sim.routers import Fleet
from tokenyard.sim.settings import ReplaySettings
from tokenyard.steptime.calibrated import CalibratedLatency
from tokenyard.steptime.formula import Parallelism
from tokenyard.steptime.front_end import FrontEndTime
from tokenyard.steptime.known_error import KnownError, SentLoad
from tokenyard.steptime.model import RanksLatency
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens, seed_of

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What was run, and what was measured. Times are in seconds, lengths in tokens; arrays have one per request."""

    name: str
    spec: ModelSpec
    gpu: GPU
    parallel: Parallelism
    version: str
    scheduler: SchedulerConfig
    cache: CacheConfig
    kv_cache_dtype: str | None
    precision: str
    arrived: Floats
    input_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    ttft: Floats
    tpot: Floats
    e2e: Floats
    arrivals: str = ""
    """How arrivals were made up, behind a comma; empty: they were recorded."""
    is_of_clients: bool = False
    """TTFT and E2E are the clients', with the front end; else the engine's, from the moment in which it queued them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """A run replayed: every request's times of both, in seconds, in order of arrival."""

    run: MeasuredRun
    predicted: Mapping[str, Floats]
    measured: Mapping[str, Floats]
    known: KnownError


def read_measured_run(
    folder: Path,
    *,
    spec: ModelSpec | None = None,
    gpu: GPU | None = None,
    profile: DecisionProfile = OLDEST,
) -> MeasuredRun:
    """Read a folder; ``spec`` and ``gpu`` replace what it names, ``profile`` will decide.

    Raises WorkloadError or ConfigError.
    """
    meta = json_object(folder / "meta.json")
    given = _section(meta, "engine_kwargs")
    model = str(given.get("model") or meta.get("model") or "")
    precision = "fp8" if "fp8" in f"{model} {given.get('quantization') or ''}".lower() else ""
    spec = spec or measured_model(model, precision)
    gpu = gpu or _gpu(meta, folder)
    parallel = Parallelism(
        tensor=_count("tensor_parallel_size", 1, given),
        data=_count("data_parallel_size", 1, given),
        pipeline=_count("pipeline_parallel_size", 1, given),
        expert=bool(given.get("enable_expert_parallel")),
    )
    kv_cache_dtype = None if given.get("kv_cache_dtype") in (None, "auto") else str(given["kv_cache_dtype"])
    scheduler = _scheduler(meta, given, spec, profile)
    rows = _requests(folder / "requests.jsonl")
    queued, first, last = (
        np.array([row[key] for row in rows]) for key in ("queued_ts", "first_token_ts", "last_token_ts")
    )
    outputs = np.array([row["output_toks"] for row in rows], np.int64)
    return MeasuredRun(
        name=folder.name,
        spec=spec,
        gpu=gpu,
        parallel=parallel,
        version=str(meta.get("vllm_version") or ""),
        scheduler=scheduler,
        cache=_cache(meta, spec, gpu, parallel, scheduler, kv_cache_dtype),
        kv_cache_dtype=kv_cache_dtype,
        precision=precision or spec.weight_format.name,
        arrived=queued - queued.min(),
        input_tokens=np.array([row["input_toks"] for row in rows], np.int64),
        output_tokens=outputs,
        ttft=first - queued,
        tpot=(last - first) / np.maximum(outputs - 1, 1),
        e2e=last - queued,
    )


class ReplayedTimes(NamedTuple):
    """Times of every request of a replay, in order of arrival; seconds."""

    ttft: Floats
    tpot: Floats
    e2e: Floats


def calibrated(run: MeasuredRun) -> CalibratedLatency:
    """Step times of what was run."""
    return CalibratedLatency(
        run.spec,
        run.gpu,
        parallel=run.parallel,
        kv_cache_dtype=run.kv_cache_dtype,
        version=run.version or None,
        prepared_ahead=run.scheduler.async_scheduling,
    )


def replay_run(run: MeasuredRun, latency: RanksLatency, front_end: FrontEndTime | None = None) -> ReplayedTimes:
    """Replay a run with step times of ``latency``, behind a front end if there is one."""
    order = np.argsort(run.arrived, kind="stable").tolist()
    requests = [
        WorkloadRequest(
            request_id=str(number),
            prompt=StreamTokens.unique(seed_of("measured run", i), int(run.input_tokens[i])),
            max_tokens=int(run.output_tokens[i]),
            arrival_time=float(run.arrived[i]),
            output_seed=seed_of("output", i),
        )
        for number, i in enumerate(order)
    ]
    fleet = Fleet(run.parallel.data, run.spec.num_experts > 0, run.scheduler.profile.vllm_version)
    ended, workload = Ended(), Workload(run.name, requests)
    replay_engines(
        workload if front_end is None else workload.with_front_end(front_end.seconds),
        ReplaySettings(run.scheduler, run.cache, latency, fleet=fleet),
        observers=[ended] * fleet.num_engines,
        policy=run.scheduler.policy,
    )
    arrived, first, last = ended.moments
    return ReplayedTimes(first - arrived, (last - first) / np.maximum(run.output_tokens[order] - 1, 1), last - arrived)


def compare_run(run: MeasuredRun) -> RunComparison:
    """Replay a run with the calibrated step times."""
    latency = calibrated(run)
    predicted = replay_run(run, latency, latency.front_end if run.is_of_clients else None)
    order = np.argsort(run.arrived, kind="stable")
    measured = {"ttft": run.ttft, "tpot": run.tpot, "e2e": run.e2e}
    return RunComparison(
        run=run,
        predicted=predicted._asdict(),
        measured={name: values[order] for name, values in measured.items()},
        known=latency.known_error(
            SentLoad(input_tokens=float(run.input_tokens.mean()), output_tokens=float(run.output_tokens.mean()))
        ),
    )


def _requests(path: Path) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    needed = ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")
    for number, row in json_rows(path):
        try:
            fields = row if isinstance(row, dict) else {}
            values = [float(fields[key]) for key in needed]
        except (ValueError, KeyError, TypeError):
            raise WorkloadError(str(path), number, f"must be an object with numbers {', '.join(needed)}") from None
        if not all(np.isfinite(values)) or min(values[:2]) < 1:
            raise WorkloadError(str(path), number, "holds a length below 1 or a time that is not a number")
        rows.append(fields)
    if not rows:
        raise WorkloadError(str(path), 0, "holds no request")
    return rows


def _gpu(meta: Mapping[str, Any], folder: Path) -> GPU:
    """The GPU by the device's name; else by that of the folder."""
    hardware = _section(meta, "hardware")
    for text in (str(hardware.get("device_name") or ""), folder.resolve().name):
        plain = "".join(c for c in text.lower() if c.isalnum())
        for name in sorted(GPUS, key=len, reverse=True):
            if name.replace("-", "") in plain:
                return GPUS[name]
    raise ConfigError("gpu", hardware.get("device_name"), f"give §gpu, one of: {', '.join(GPUS)}")


def _section(meta: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Part of what the run says of itself; empty where it says nothing."""
    found = meta.get(name) or {}
    if not isinstance(found, dict):
        raise ConfigError(name, found, "meta.json must give an object")
    return found


def _count(name: str, default: int, *sections: Mapping[str, Any]) -> int:
    """A whole number above 0, of the first section that gives it."""
    value = next((section[name] for section in sections if section.get(name)), default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_COUNT:
        raise ConfigError(name, value, "meta.json must give a whole number above 0")
    return value


def _resolved(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    return _section(_section(meta, "resolved_config"), "scheduler_config")


def _decides_ahead(meta: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether it ran with async scheduling: vLLM's default since 0.14."""
    said = given.get("async_scheduling", _resolved(meta).get("async_scheduling"))
    if said is not None:
        return bool(said)
    numbers = str(meta.get("vllm_version") or "").split(".")[:2]
    return not all(part.isdigit() for part in numbers) or tuple(map(int, numbers)) >= (0, 14)


def _scheduler(
    meta: Mapping[str, Any], given: Mapping[str, Any], spec: ModelSpec, profile: DecisionProfile
) -> SchedulerConfig:
    resolved = _resolved(meta)
    return SchedulerConfig(
        profile=profile,
        max_num_seqs=_count("max_num_seqs", 256, given, resolved),
        max_num_batched_tokens=_count("max_num_batched_tokens", 8192, given, resolved),
        max_model_len=_count("max_model_len", spec.max_model_len, given, resolved),
        long_prefill_token_threshold=_count("long_prefill_token_threshold", 0, given, resolved),
        async_scheduling=_decides_ahead(meta, given),
    )


def _cache(
    meta: Mapping[str, Any],
    spec: ModelSpec,
    gpu: GPU,
    parallel: Parallelism,
    scheduler: SchedulerConfig,
    kv_cache_dtype: str | None,
) -> CacheConfig:
    """The dtype as the engine logged it; estimated where it did not."""
    known = _section(meta, "kv_cache")
    block_size = _count("block_size", 16, known)
    blocks: float = _count("num_gpu_blocks", 0, known)
    if not blocks:
        share = known.get("gpu_memory_utilization") or 0.9
        check_utilization(share)
        tokens = kv_tokens(
            spec,
            gpu,
            parallel,
            gpu_memory_utilization=share,
            kv_cache_dtype=kv_cache_dtype,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            max_num_seqs=scheduler.max_num_seqs,
        )
        blocks = tokens // block_size
    return CacheConfig(num_gpu_blocks=int(blocks), block_size=block_size)
