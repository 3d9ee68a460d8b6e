"""From settings to an engine with a model, and to its trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from tokenyard.core.engine import EngineCore
from tokenyard.core.profiles import decision_profile
from tokenyard.deploy.spec import open_trace
from tokenyard.policies.named import policy_label, policy_maker
from tokenyard.record.writer import TraceWriter
from tokenyard.serve.front import json_object
from tokenyard.serve.openai.assembly import unix_clock
from tokenyard.serve.served_model import load_core, make_demo_model
from tokenyard.trace.config import TraceConfig

_OF_LOADING = ("dtype", "device", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "seed")
_MEMORY = ("num_gpu_blocks_override", "gpu_memory_utilization", "kv_cache_memory_bytes", "enable_prefix_caching")
_OF_ADAPTERS = ("enable_lora", "lora_modules", "max_loras", "max_lora_rank")
_OF_SCHEDULER = ("enable_chunked_prefill", "long_prefill_token_threshold", "async_scheduling")


def loaded_engine(model: str, settings: Mapping[str, Any], demo_folder: str | None) -> EngineCore:
    """The engine of the model; the demo's is made in ``demo_folder`` first. Raises TokenyardError.

    ``settings``: by the names of the flags of ``tokenyard serve``, None where one is not given.
    """
    given: dict[str, Any] = {
        name: value
        for name in (*_OF_LOADING, *_MEMORY, *_OF_ADAPTERS, *_OF_SCHEDULER)
        if (value := settings.get(name)) is not None
    }
    for name in ("speculative_config", "kv_transfer_config"):
        if (text := settings.get(name)) is not None:
            given[name] = json_object(name, text)
    return load_core(
        model if demo_folder is None else make_demo_model(Path(demo_folder)),
        {
            **given,
            "policy": policy_maker(settings["scheduling_policy"], "scheduling_policy")(),
            "profile": decision_profile(settings["vllm_version"]),
            "clock": unix_clock(),
        },
    )


def trace_of(asked: TraceConfig, stack: ExitStack, say: Callable[[str], None]) -> TraceWriter:
    """The writer of the trace; without a path it writes none.

    A server is started again and again, also by others: the trace of an earlier start is left where it is, and the
    new one goes beside it, which ``say`` is called with.
    """
    config = _unused(asked)
    if config.path != asked.path:
        say(f"{asked.path} holds the trace of an earlier run: this one goes to {config.path}")
    writer = stack.enter_context(TraceWriter(config))
    open_trace(writer)
    return writer


def _unused(config: TraceConfig) -> TraceConfig:
    """The settings with the first folder, of DIR, DIR-2, DIR-3 ..., that holds no such trace."""
    asked = config.path
    if asked is None:
        return config
    for number in count(2):
        files = [path for path in (config.steps_path, config.requests_path) if path is not None]
        if not any(path.is_file() and path.stat().st_size for path in files):
            return config
        config = replace(config, path=asked.with_name(f"{asked.name}-{number}"))
    raise AssertionError("numbers do not end")


def trace_config(
    trace: Path | None, policy: str, *, record_requests: bool, max_ids_per_step: int | None
) -> TraceConfig:
    """The environment's settings, overridden by these; its name for the policy counts before ``policy``."""
    environment = TraceConfig.from_env()
    named = environment.policy != TraceConfig().policy
    return replace(
        environment,
        path=environment.path if trace is None else trace,
        policy=environment.policy if named else policy_label(policy),
        request_records=record_requests,
        max_ids_per_step=max_ids_per_step,
    )
