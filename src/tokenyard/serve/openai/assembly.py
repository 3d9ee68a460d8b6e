"""What stands between an engine and its application, and who watches the engine: alike for one server and for many."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenyard.core.engine import EngineCore
from tokenyard.core.sched.observer import Observers, StepObserver
from tokenyard.errors import ConfigError, MissingExtraError
from tokenyard.policies.named import policy_label
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.serve.async_llm import AsyncLLM
from tokenyard.serve.front import FrontSettings
from tokenyard.serve.generation import read_generation_config
from tokenyard.serve.grammars import GrammarCompiler
from tokenyard.serve.metrics import MetricsObserver
from tokenyard.serve.openai.app import scraped
from tokenyard.serve.openai.asking import ClientLimits, ServerContext
from tokenyard.serve.openai.tool_calls.parsers import parser_named
from tokenyard.serve.served_model import GrammarSource, grammars_of, model_of, tokenizer_of
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
