"""From flags to an engine with a model, and who watches it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tokenyard.cli.support.flags import EngineFlags, Serve
from tokenyard.cli.support.setup import open_trace
from tokenyard.engine.core import EngineCore
from tokenyard.engine.demo_model import make_demo_model
from tokenyard.engine.loading import load_core
from tokenyard.engine.served_model import model_of
from tokenyard.errors import ConfigError
from tokenyard.policies.named import policy_label, policy_maker
from tokenyard.profiles import decision_profile
from tokenyard.sched.observer import Observers, StepObserver
from tokenyard.trace.emit.recorder import TraceRecorder
from tokenyard.trace.emit.writer import TraceWriter
from tokenyard.trace.format.config import TraceConfig
from tokenyard.trace.format.start import describe_run

__all__ = ["DEMO", "loaded_engine", "served_names", "watched"]

DEMO = "demo"
"""The model that is made on the spot."""

_OF_LOADING = ("dtype", "device", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "seed")
_MEMORY = ("num_gpu_blocks_override", "gpu_memory_utilization", "kv_cache_memory_bytes", "enable_prefix_caching")
_OF_ADAPTERS = ("enable_lora", "lora_modules", "max_loras", "max_lora_rank")
_OF_SCHEDULER = ("enable_chunked_prefill", "long_prefill_token_threshold", "async_scheduling")


def served_names(flags: Serve) -> Sequence[str]:
    """By which clients call the model."""
    return flags.front.served_model_name or (flags.model,)


def loaded_engine(flags: Serve, demo_folder: str | None) -> EngineCore:
    """The engine of the model; the demo's is made in ``demo_folder`` first. Raises TokenyardError."""
    engine = flags.engine
    given: dict[str, Any] = {
        name: value
        for name in (*_OF_LOADING, *_MEMORY, *_OF_ADAPTERS, *_OF_SCHEDULER)
        if (value := getattr(engine, name)) is not None
    }
    for name in ("speculative_config", "kv_transfer_config"):
        if (text := getattr(engine, name)) is not None:
            given[name] = _object(name, text)
    model = flags.model if demo_folder is None else make_demo_model(Path(demo_folder))
    return load_core(
        model,
        {
            **given,
            "policy": policy_maker(engine.scheduling_policy, "scheduling_policy")(),
            "profile": decision_profile(engine.vllm_version),
            "clock": _unix_clock(),
        },
    )


def _object(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(name, text, f"is no JSON: {error}") from None


def _unix_clock() -> Any:
    """Unix seconds that never go back: traces tell the time of day, and durations are differences."""
    start = time.time() - time.monotonic()
    return lambda: start + time.monotonic()


def watched(core: EngineCore, metrics: StepObserver, flags: Serve, trace: Path | None, stack: ExitStack) -> Path | None:
    """Have the metrics, and a trace if one is wanted, told what the scheduler does; where the trace is."""
    config = _trace_config(flags, trace)
    writer = stack.enter_context(TraceWriter(config))
    if open_trace(writer) is None:
        core.scheduler.attach_observer(metrics)
        return None
    start = describe_run(
        replace(core.scheduler.config, policy=policy_label(flags.engine.scheduling_policy)),
        core.scheduler.cache_config,
        host="engine",
        ts=core.scheduler.clock(),
        model=served_names(flags)[0],
        gpu=model_of(core).device,
        sections={"engine": _told(flags.engine)},
    )
    core.scheduler.attach_observer(Observers(metrics, TraceRecorder(writer, start=start)))
    return config.path


def _told(flags: EngineFlags) -> dict[str, Any]:
    return {name: value for name, value in asdict(flags).items() if value is not None}


def _trace_config(flags: Serve, trace: Path | None) -> TraceConfig:
    """The environment's settings, overridden by flags."""
    environment = TraceConfig.from_env()
    named = environment.policy != TraceConfig().policy
    return replace(
        environment,
        path=environment.path if trace is None else trace,
        policy=environment.policy if named else policy_label(flags.engine.scheduling_policy),
        request_records=flags.output.record_requests,
        max_ids_per_step=flags.output.max_ids_per_step or None,
    )
