"""The API with a toy model behind it, on a socket, and what a client may find out afterwards."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from tests.support.toy_model import ToyExecutor, byte_tokenizer, toy_core, toy_tokenizer

from tokenyard.core.request import Request
from tokenyard.core.sched.observer import Observers, StepObserver
from tokenyard.serve.async_llm import AsyncLLM
from tokenyard.serve.generation import GenerationDefaults
from tokenyard.serve.grammars import GrammarCompiler
from tokenyard.serve.metrics import MetricsObserver
from tokenyard.serve.openai.app import make_api, scraped
from tokenyard.serve.openai.asking import ClientLimits, ServerContext
from tokenyard.serve.openai.tool_calls.parsers import ToolCallParser
from tokenyard.web.connections import BoundedConnection
from tokenyard.web.serve import bound, edge_config

__all__ = ["ApiServer", "serving_api", "until"]


class Arrivals(StepObserver):
    """Keeps the newest request that the scheduler has accepted."""

    newest: Request

    def request_arrived(self, ts: float, request: Request) -> None:
        self.newest = request


class ApiServer:
    """One that answers."""

    def __init__(self, context: ServerContext, port: int, arrivals: Arrivals) -> None:
        self.context = context
        self.arrivals = arrivals
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.core = context.llm.core

    @property
    def executor(self) -> ToyExecutor:
        assert isinstance(self.core.executor, ToyExecutor)
        return self.core.executor

    @property
    def num_held_blocks(self) -> int:
        """Blocks that requests hold; 0 when nothing runs."""
        scheduler = self.core.scheduler
        return scheduler.cache_config.num_gpu_blocks - 1 - scheduler.num_free_blocks

    def until_empty(self) -> None:
        """Wait until nothing is left of anybody; fails if something stays."""
        until(lambda: not self.core.scheduler.requests and not self.context.llm.num_unfinished)
        until(lambda: self.num_held_blocks == 0)


def until(happened: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@contextmanager
def serving_api(
    *,
    api_keys: tuple[str, ...] = (),
    limits: ClientLimits | None = None,
    max_queued_requests: int = 1000,
    gather_ms: float = 0,
    tool_parser: Callable[[], ToolCallParser] | None = None,
    defaults: GenerationDefaults | None = None,
    **settings: Any,
) -> Iterator[ApiServer]:
    """A server whose engine has these settings; at its end nothing may be left in the engine, unless it died."""
    metrics, watcher = MetricsObserver(model_name="toy"), Arrivals()
    core = toy_core(observer=Observers(metrics, watcher), **settings)
    llm = AsyncLLM(core, tokenizer=toy_tokenizer(), max_queued_requests=max_queued_requests, gather_ms=gather_ms)
    told = scraped(metrics.registry)
    stack = ExitStack()
    folder = stack.enter_context(TemporaryDirectory())
    byte_tokenizer().save(f"{folder}/tokenizer.json")
    grammars = GrammarCompiler(folder, llm.model.vocab_size, llm.model.eos_token_ids)
    context = ServerContext(
        llm=llm,
        names=("toy", "also"),
        limits=limits or ClientLimits(),
        grammars=grammars,
        defaults=defaults or GenerationDefaults({}),
        tool_parser=tool_parser,
        metrics=told,
    )
    app = make_api(context, api_keys=api_keys)
    with stack, closing(bound("127.0.0.1", 0)) as listener:
        config = edge_config(app, idle_per_client=BoundedConnection.most)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            until(lambda: server.started)
            served = ApiServer(context, listener.getsockname()[1], watcher)
            yield served
            if llm.death is None:
                served.until_empty()
        finally:
            server.should_exit = True
            thread.join()
            grammars.shutdown()
