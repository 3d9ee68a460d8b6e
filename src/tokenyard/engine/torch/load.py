"""From a checkpoint to an engine that is ready to step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tokenyard.config import SchedulerConfig, async_scheduling_by_default
from tokenyard.connectors.config import KVTransferConfig
from tokenyard.connectors.prefill_decode_worker import OfferExchange
from tokenyard.engine.torch.adapters.settings import AdapterSettings, lora_modules_of
from tokenyard.engine.torch.attention.paged_attention import register_attention
from tokenyard.engine.torch.checkpoint import require_torch
from tokenyard.engine.torch.executor import TorchExecutor
from tokenyard.engine.torch.parts import EngineParts
from tokenyard.engine.torch.request_checks import TorchEngineCore
from tokenyard.engine.torch.settings import EngineSettings, speculation_of, transfer_config_of
from tokenyard.errors import ConfigError
from tokenyard.profiles import NEWEST, DecisionProfile
from tokenyard.sched.observer import StepObserver
from tokenyard.sched.policy import Policy
from tokenyard.sched.scheduler import Scheduler

__all__ = ["load_engine"]


def load_engine(
    model: str | Path,
    *,
    dtype: str = "auto",
    device: str | None = None,
    max_model_len: int | None = None,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
    block_size: int | None = None,
    num_gpu_blocks_override: int | None = None,
    gpu_memory_utilization: float | None = None,
    kv_cache_memory_bytes: int | None = None,
    enable_prefix_caching: bool = True,
    async_scheduling: bool | None = None,
    speculative_config: Mapping[str, Any] | None = None,
    kv_transfer_config: Mapping[str, Any] | KVTransferConfig | None = None,
    exchange: OfferExchange | None = None,
    enable_lora: bool = False,
    lora_modules: Mapping[str, str | Path] | Sequence[str] | None = None,
    max_loras: int = 1,
    max_lora_rank: int = 16,
    seed: int = 0,
    policy: str | Policy = "fcfs",
    profile: DecisionProfile = NEWEST,
    clock: Callable[[], float] = time.monotonic,
    observer: StepObserver | None = None,
    log_stats: bool = False,
    debug: bool | None = None,
    **scheduler: Any,
) -> TorchEngineCore:
    """An engine core for the checkpoint in the folder ``model``; ``core.executor.model`` says what was loaded.

    Names are vLLM's flags; :class:`~tokenyard.engine.torch.settings.EngineSettings` says what those of the model mean.
    ``scheduler`` are further fields of :class:`~tokenyard.SchedulerConfig`. ``async_scheduling`` is on unless there are
    drafts, as in vLLM. ``exchange`` is what two engines share of which one computes prompts for the other.
    ``lora_modules`` are folders of adapters by name, or texts ``NAME=FOLDER``; requests name theirs (``lora_name``).

    Raises ConfigError for a setting or a checkpoint that cannot work, MissingExtraError without torch.
    """
    require_torch()
    register_attention()
    settings = EngineSettings(
        dtype=dtype,
        device=device,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        block_size=block_size,
        num_gpu_blocks_override=num_gpu_blocks_override,
        gpu_memory_utilization=gpu_memory_utilization,
        kv_cache_memory_bytes=kv_cache_memory_bytes,
        enable_prefix_caching=enable_prefix_caching,
        seed=seed,
        speculation=speculation_of(speculative_config),
        kv_transfer=transfer_config_of(kv_transfer_config),
        adapters=AdapterSettings(
            enable_lora=enable_lora,
            max_loras=max_loras,
            max_lora_rank=max_lora_rank,
            lora_modules=lora_modules_of(lora_modules),
        ),
    )
    speculation = settings.speculation.config if settings.speculation is not None else None
    if async_scheduling and speculation is not None and not speculation.supports_async_scheduling:
        fix = "drafts from the text need the tokens of the step before: turn it off, or take a draft model"
        raise ConfigError("async_scheduling", async_scheduling, fix)
    parts = EngineParts(Path(model), settings)
    given: dict[str, Any] = {
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "max_model_len": parts.max_model_len,
        "max_loras": settings.adapters.most_in_a_step,
        "async_scheduling": async_scheduling_by_default(speculation) if async_scheduling is None else async_scheduling,
        "policy": policy if isinstance(policy, str) else "fcfs",
        # A window's blocks are freed where drafts of a step in flight count as computed, though they may be rejected.
        "profile": replace(profile, windows_free_processed_only=True),
        # vLLM 0.22 keeps blocks findable that nobody has written: tokens would be wrong.
        "rolled_back_work_stays_cached": False,
    }
    for name, value in scheduler.items():
        if name in given or name not in _SCHEDULER_FIELDS:
            raise ConfigError(name, value, "is no setting of the engine")
    config = SchedulerConfig(**given, **scheduler)
    cache = parts.cache_config
    transfers = parts.transfers(cache, clock, exchange) if settings.kv_transfer is not None else None
    made = Scheduler(
        config,
        cache,
        speculative_config=speculation,
        clock=clock,
        observer=observer,
        policy=None if isinstance(policy, str) else policy,
        kv_connector=transfers.scheduler if transfers is not None else None,
        log_stats=log_stats,
        debug=debug,
    )
    executor = TorchExecutor(
        parts.loaded,
        parts.runner(),
        made.kv.table,
        parts.tensors,
        drafts=speculation is not None,
        connector=transfers.worker if transfers is not None else None,
    )
    return TorchEngineCore(made, executor)


_SCHEDULER_FIELDS = tuple(field.name for field in fields(SchedulerConfig) if field.name != "pipeline_parallel_size")
