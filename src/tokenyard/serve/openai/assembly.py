"""What stands between an engine and its application, and who watches the engine: alike for one server and for many."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tokenyard.core.engine import EngineCore
from tokenyard.core.profiles import decision_profile
from tokenyard.core.sched.observer import Observers, StepObserver
from tokenyard.deploy.spec import open_trace
from tokenyard.errors import ConfigError, MissingExtraError
from tokenyard.policies.named import policy_label, policy_maker
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.serve.async_llm import AsyncLLM
from tokenyard.serve.front import FrontSettings, json_object
from tokenyard.serve.generation import read_generation_config
from tokenyard.serve.grammars import GrammarCompiler
from tokenyard.serve.metrics import MetricsObserver
from tokenyard.serve.openai.app import scraped
from tokenyard.serve.openai.asking import ClientLimits, ServerContext
from tokenyard.serve.openai.tool_calls.parsers import parser_named
from tokenyard.serve.served_model import GrammarSource, grammars_of, load_core, make_demo_model, model_of, tokenizer_of
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.start import describe_run


def limits_of(front: FrontSettings) -> ClientLimits:
    """Limits of one client's requests. Raises ConfigError."""
    return ClientLimits(
        max_body_bytes=front.max_body_bytes,
        max_grammar_bytes=front.max_grammar_bytes,
        request_timeout_s=front.request_timeout_s,
    )


class BuiltServer(NamedTuple):
    """A server before it listens."""

    context: ServerContext
    metrics: MetricsObserver
    """Observer that is to be attached to the scheduler: see :func:`watch`."""


def build_server(core: EngineCore, names: Sequence[str], front: FrontSettings, *, engine: int = 0) -> BuiltServer:
    """What serves the model of ``core``, the engine of this number, by these names. Raises TokenyardError."""
    model = model_of(core)
    for name in set(names) & set(model.adapters):
        raise ConfigError("lora_modules", name, "is a name of the model as well: choose another")
    source = grammars_of(model, front.tokenizer, max_grammar_bytes=front.max_grammar_bytes)
    llm = AsyncLLM(
        core,
        tokenizer=tokenizer_of(model, front.tokenizer, front.chat_template),
        gather_ms=front.gather_ms,
        max_queued_requests=front.max_queued_requests,
        max_logprobs=front.max_logprobs,
        grammars=source,
    )
    metrics = MetricsObserver(model_name=names[0], engine=engine)
    context = ServerContext(
        llm=llm,
        names=names,
        limits=limits_of(front),
        grammars=_grammars(llm, source),
        defaults=read_generation_config(Path(model.name), front.generation_config, front.generation_overrides),
        tool_parser=parser_named(front.tool_call_parser, enabled=front.enable_auto_tool_choice),
        metrics=scraped(metrics.registry),
    )
    return BuiltServer(context, metrics)


def _grammars(llm: AsyncLLM, source: GrammarSource) -> GrammarCompiler | None:
    """None without the library, a tokenizer or an end-of-sequence token: requests for a grammar get an error."""
    if llm.tokenizer is None:
        return None
    try:
        return source()
    except (MissingExtraError, ConfigError):
        return None


def unix_clock() -> Callable[[], float]:
    """Unix seconds that never go back: traces record the time of day, and durations are differences."""
    start = time.time() - time.monotonic()
    return lambda: start + time.monotonic()


def watch(
    core: EngineCore, metrics: StepObserver, writer: TraceWriter, *, policy: str, model: str, engine: Mapping[str, Any]
) -> None:
    """Attach the metrics, and a trace if the writer wants one, to the scheduler as observers.

    ``policy`` is as the user named it; ``engine`` are the settings in the trace's header.
    """
    scheduler = core.scheduler
    if not writer.is_open:
        scheduler.attach_observer(metrics)
        return
    start = describe_run(
        scheduler.config,
        scheduler.cache_config,
        host="engine",
        policy=policy_label(policy),
        ts=scheduler.clock(),
        model=model,
        gpu=model_of(core).device,
        bytes_per_block=model_of(core).bytes_per_block,
        sections={"engine": engine},
    )
    scheduler.attach_observer(Observers(metrics, TraceRecorder(writer, start=start)))


# ---------------------------------------------------------------------------------------------------------------------
# From settings to an engine with a model, and to its trace.

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
