"""The first record of a trace of vLLM: what runs, on what, under which configuration."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import Any

import msgspec

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.trace.schema import FORMAT_VERSION, TraceStart
from tokenyard.trace.start import SECTION, DeploymentHeader
from tokenyard.units import GIB
from tokenyard.version import __version__
from tokenyard.vllm.versions import data_parallel_rank, installed_version, known_group

_MODEL = ("model", "dtype", "quantization", "max_model_len", "runner_type", "enforce_eager", "seed")
_PARALLEL = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "prefill_context_parallel_size",
    "enable_expert_parallel",
)
_MEMORY = ("gpu_memory_utilization", "num_gpu_blocks_override", "kv_cache_memory_bytes")
"""How the size of the KV cache was settled."""
_SPECULATION = ("method", "num_speculative_tokens")
_RETENTION = "prefix_cache_retention_interval"
_TRANSFER = ("kv_connector", "kv_role", "kv_load_failure_policy")


def describe_engine(scheduler: Any, policy: str, ts: float) -> TraceStart:
    """The ``trace_start`` of a vLLM scheduler, made of its ``VllmConfig``; ``ts`` in Unix seconds."""
    config = scheduler.vllm_config
    emulated = emulated_settings(config)
    blocks = int(config.cache_config.num_gpu_blocks or 0)
    block_size = int(scheduler.block_size)
    per_block = None if emulated else _bytes_per_block(scheduler.kv_cache_config, blocks)
    return TraceStart(
        format_version=FORMAT_VERSION,
        ts=ts,
        policy=policy,
        tokenyard_version=__version__,
        host="vllm",
        model=str(emulated.get("model", config.model_config.model)),
        gpu=str(emulated["gpu"]) if "gpu" in emulated else _device_name(),
        block_size=block_size,
        bytes_per_block=per_block,
        config=_with_emulated(_sections(scheduler, blocks, per_block), emulated),
    )


def emulated_settings(config: Any) -> dict[str, Any]:
    """What ``--additional-config '{"tokenyard": {...}}'`` says of the deployment whose step times pass, if anything."""
    given = getattr(config, "additional_config", None)
    found = given.get("tokenyard") if isinstance(given, dict) else None
    return dict(found) if isinstance(found, dict) else {}


def _with_emulated(sections: dict[str, Any], emulated: dict[str, Any]) -> dict[str, Any]:
    """The deployment that is emulated, whose step times pass, in place of the small one that vLLM has loaded."""
    if not emulated:
        return sections
    sections["model"] |= {"dtype": "auto", "quantization": None} | _those_given(emulated, _MODEL)
    sections["parallel"] |= _those_given(emulated, _PARALLEL)
    sections["engine"] |= {"kv_cache_memory_bytes": None} | _those_given(emulated, _MEMORY)
    sections[SECTION] |= _those_given(
        emulated, ("tensor_parallel_size", "pipeline_parallel_size", "enable_expert_parallel")
    ) | {"step_time": emulated.get("latency", "calibrated")}
    return sections


def _those_given(given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}


def _sections(scheduler: Any, blocks: int, per_block: int | None) -> dict[str, Any]:
    config = scheduler.vllm_config
    model, parallel = config.model_config, config.parallel_config
    limits = _taken(config.scheduler_config, (field.name for field in dataclasses.fields(SchedulerConfig)))
    limits["max_num_batched_tokens"] = int(scheduler.max_num_scheduled_tokens)
    limits["max_model_len"] = int(scheduler.max_model_len)
    cache = _taken(config.cache_config, (field.name for field in dataclasses.fields(CacheConfig)))
    cache["block_size"] = int(scheduler.block_size)
    cache |= _pool(config, scheduler.kv_cache_config)
    if config.lora_config is not None:
        limits["max_loras"] = int(config.lora_config.max_loras)
    sections: dict[str, Any] = {
        "scheduler": limits,
        "cache": cache,
        "model": _taken(model, _MODEL),
        "parallel": _taken(parallel, _PARALLEL),
        "engine": _taken(config.cache_config, _MEMORY),
        SECTION: _deployment(scheduler, blocks, per_block),
    }
    if config.speculative_config is not None:
        sections["speculation"] = _taken(config.speculative_config, _SPECULATION)
    if config.kv_transfer_config is not None:
        sections["kv_transfer"] = _taken(config.kv_transfer_config, _TRANSFER)
    rank = data_parallel_rank(config)
    if rank is not None:
        sections["data_parallel_rank"] = rank
    return sections


def _pool(config: Any, kv_cache_config: Any) -> dict[str, Any]:
    """What a replay needs of the KV cache, where we have rules for all its groups."""
    groups = [known_group(group) for group in kv_cache_config.kv_cache_groups]
    known = [dataclasses.asdict(group) for group in groups if group is not None]
    pool: dict[str, Any] = {"watermark": float(getattr(config.scheduler_config, "watermark", 0.0) or 0.0)}
    if len(known) == len(groups):
        pool["groups"] = known
    if hasattr(kv_cache_config, _RETENTION):
        pool[_RETENTION] = getattr(kv_cache_config, _RETENTION)
    return pool


def _deployment(scheduler: Any, blocks: int, per_block: int | None) -> dict[str, Any]:
    config = scheduler.vllm_config
    parallel = config.parallel_config
    deployment = DeploymentHeader(
        kv_tokens=blocks * int(scheduler.block_size),
        num_gpu_blocks=blocks,
        block_size=int(scheduler.block_size),
        kv_dtype=str(config.cache_config.cache_dtype),
        kv_gib=None if per_block is None else per_block * blocks / GIB,
        kv_groups=[_group(group) for group in scheduler.kv_cache_config.kv_cache_groups],
        tensor_parallel_size=parallel.tensor_parallel_size,
        pipeline_parallel_size=parallel.pipeline_parallel_size,
        data_parallel_size=parallel.data_parallel_size,
        enable_expert_parallel=parallel.enable_expert_parallel,
        max_num_batched_tokens=int(scheduler.max_num_scheduled_tokens),
        max_num_seqs=int(scheduler.max_num_running_reqs),
        max_model_len=int(scheduler.max_model_len),
        async_scheduling=bool(config.scheduler_config.async_scheduling),
        vllm_version=installed_version(),
    )
    return msgspec.structs.asdict(deployment)


def _group(group: Any) -> str:
    spec = group.kv_cache_spec
    return f"{len(group.layer_names)} layers of {type(spec).__name__}, {spec.block_size} tokens per block"


def _taken(config: Any, names: Iterable[str]) -> dict[str, Any]:
    """The settings that ``config`` has, as JSON can hold them."""
    found = {name: getattr(config, name) for name in names if hasattr(config, name)}
    return {name: _json_value(value) for name, value in found.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return _json_value(value.value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _bytes_per_block(kv_cache_config: Any, blocks: int) -> int | None:
    """Bytes of a block on one GPU, all layers together; None where vLLM does not say."""
    total = sum(int(tensor.size) for tensor in kv_cache_config.kv_cache_tensors)
    return total // blocks if total and blocks else None


def _device_name() -> str | None:
    """The device's name, as vLLM's platform has it; ``cpu`` where it has no name."""
    from vllm.platforms import current_platform as platform

    try:
        return str(platform.get_device_name()) or platform.device_type
    except Exception:  # noqa: BLE001 - a driver that does not answer: the name is all that is missing
        return str(platform.device_type) or None
