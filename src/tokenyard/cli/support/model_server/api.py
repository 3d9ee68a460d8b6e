"""A server from its flags: engine, front end, application, socket; and what it says when it is ready."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.markup import escape

from tokenyard.cli.support.console import errors, results, warn
from tokenyard.cli.support.flags import Serve
from tokenyard.cli.support.model_server.loading import DEMO, loaded_engine, served_names, watched
from tokenyard.cli.support.model_server.side_shows import chatting, viewing
from tokenyard.engine.async_llm import AsyncLLM
from tokenyard.engine.core import EngineCore
from tokenyard.engine.grammars import GrammarCompiler
from tokenyard.engine.loading import tokenizer_of
from tokenyard.engine.served_model import model_of
from tokenyard.errors import ConfigError, MissingExtraError
from tokenyard.server.metrics import MetricsObserver
from tokenyard.server.openai.app import make_api
from tokenyard.server.openai.context import Limits, ServerContext
from tokenyard.server.openai.scrape import scraped
from tokenyard.server.web.guard import is_loopback
from tokenyard.server.web.serve import listen, serve, url_of

__all__ = ["serve_model"]

_VIEWED = Path("traces/serve")
"""The trace that is viewed, where none was asked for."""


class _Engine(NamedTuple):
    """A server's, before it listens."""

    core: EngineCore
    context: ServerContext
    trace: Path | None
    """The directory of its trace."""


def serve_model(flags: Serve) -> None:
    """Serve until told to end. Raises TokenyardError."""
    front = flags.front
    keys = (*front.api_key, *filter(None, [os.environ.get("VLLM_API_KEY")]))
    with ExitStack() as stack:
        listener = stack.enter_context(closing(listen(front.host, front.port)))
        engine = _engine(flags, stack)
        app = make_api(engine.context, host=front.host, api_keys=keys)
        url = url_of(listener, front.host)
        if not is_loopback(front.host) and not keys:
            warn(f"whoever reaches {front.host} may use the model: give --api-key")

        def ready() -> None:
            _announce(engine, url)
            if flags.view and engine.trace is not None:
                stack.enter_context(viewing(engine.trace))
            stack.enter_context(chatting(url, engine.context.names[0], flags.demo_clients, keys))
            errors().print("[dim]Ctrl-C ends it.[/]")

        def stop() -> None:
            engine.context.is_draining = True

        serve(app, listener, on_ready=ready, on_stop=stop, seconds_to_end=front.shutdown_timeout)


def _engine(flags: Serve, stack: ExitStack) -> _Engine:
    """Load the model; what has to be closed afterwards joins ``stack``."""
    front = flags.front
    limits = Limits(max_body_bytes=front.max_body_bytes, request_timeout_s=front.request_timeout_s)
    folder = stack.enter_context(TemporaryDirectory(prefix="tokenyard-")) if flags.model == DEMO else None
    with errors().status(f"loading {escape(flags.model)}"):
        core = loaded_engine(flags, folder)
        tokenizer = tokenizer_of(model_of(core), front.tokenizer, front.chat_template)
    names = served_names(flags)
    for name in set(names) & set(model_of(core).adapters):
        raise ConfigError("lora_modules", name, "is a name of the model as well: choose another")
    metrics = MetricsObserver(model_name=names[0])
    trace = watched(core, metrics, flags, flags.output.trace or (_VIEWED if flags.view else None), stack)
    llm = AsyncLLM(
        core,
        tokenizer=tokenizer,
        gather_ms=front.gather_ms,
        max_queued_requests=front.max_queued_requests,
        max_logprobs=front.max_logprobs,
    )
    context = ServerContext(
        llm=llm, names=names, limits=limits, grammars=_grammars(llm, front.tokenizer), metrics=scraped(metrics.registry)
    )
    return _Engine(core, context, trace)


def _grammars(llm: AsyncLLM, tokenizer: str | None) -> GrammarCompiler | None:
    """None without the library, a tokenizer or an end-of-sequence token: whoever asks for a grammar is told."""
    path = tokenizer or llm.model.tokenizer
    if llm.tokenizer is None or path is None:
        return None
    try:
        return GrammarCompiler(path, llm.model.vocab_size, llm.model.eos_token_ids)
    except (MissingExtraError, ConfigError):
        return None


def _announce(engine: _Engine, url: str) -> None:
    """Its address, its model, its memory."""
    config, cache = engine.core.scheduler.config, engine.core.scheduler.cache_config
    out = results()
    out.print(f"[bold]{escape(engine.context.names[0])}[/] is served at [bold]{escape(url)}v1[/]", soft_wrap=True)
    out.print(
        f"{cache.num_gpu_blocks:,} blocks of {cache.block_size} tokens, {config.max_num_seqs:,} requests at a time,"
        f" {config.max_num_batched_tokens:,} tokens a step, {config.max_model_len:,} tokens a request",
        soft_wrap=True,
    )
    if engine.trace is not None:
        out.print(f"The trace is in [bold]{escape(str(engine.trace))}[/]", soft_wrap=True)
