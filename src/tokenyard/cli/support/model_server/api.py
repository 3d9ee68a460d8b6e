"""A server from its flags: engine, application, socket, what it says when it starts, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, TracebackType
from typing import NamedTuple

from rich.markup import escape

from tokenyard.cli.support.console import errors, results, warn
from tokenyard.cli.support.flags import ServeCommand
from tokenyard.cli.support.model_server.beside import viewing
from tokenyard.core.engine import EngineCore
from tokenyard.serve.openai.app import make_api
from tokenyard.serve.openai.asking import ServerContext
from tokenyard.serve.openai.assembly import build_server, watch
from tokenyard.serve.openai.demo_clients import chatting
from tokenyard.serve.openai.hosting import front_settings, loaded_engine, trace_config, trace_of
from tokenyard.serve.served_model import DEMO
from tokenyard.web.guard import is_loopback
from tokenyard.web.serve import bound, serve, url_of

# ---------------------------------------------------------------------------------------------------------------------
# Signals that end a process (SIGTERM, Ctrl-C) in every phase of a server.
#
#     loading     the load is broken off: ToldToEnd, or KeyboardInterrupt
#     serving     uvicorn's handlers (web/serve.py)
#     leaving     it ends already: what is open is closed, and nothing hurries that

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_Handler = Callable[[int, FrameType | None], object] | int | None


class ToldToEnd(BaseException):
    """SIGTERM came before there was a server."""


class EndingByTheBook:
    """A context for all of a server's life, in the main thread: no signal ends the process halfway."""

    def __init__(self) -> None:
        self._is_loading = True
        self._was_told = False
        self._before: dict[signal.Signals, _Handler] = {}

    def __enter__(self) -> EndingByTheBook:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._told) for each in _SIGNALS}
        return self

    def serves(self) -> None:
        """The server's own handlers are in force from now on; when they are gone again, it is leaving."""
        self._is_loading = False

    def _told(self, sig: int, frame: FrameType | None) -> None:
        if self._is_loading and not self._was_told:
            self._was_told = True
            raise KeyboardInterrupt if sig == signal.SIGINT else ToldToEnd

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # A process that is about to end with its own code is not to be ended by a second signal on the last stretch.
        leaves = self._was_told or not self._is_loading
        for each, before in self._before.items():
            signal.signal(each, signal.SIG_IGN if leaves else before)


# ---------------------------------------------------------------------------------------------------------------------
# A server from its flags: engine, front end, application, socket; and what it says when it is ready.

_VIEWED = Path("traces/serve")
"""The trace that is viewed, where none was asked for."""


class _Engine(NamedTuple):
    """A server's, before it listens."""

    core: EngineCore
    context: ServerContext
    trace: Path | None
    """The directory of its trace."""


def serve_model(flags: ServeCommand, ending: EndingByTheBook) -> None:
    """Serve until a signal ends it. Raises TokenyardError.

    The port is taken at once, and connections to it are refused until the model is loaded, as in vLLM: a client that
    can connect is served, and a port that is not free is known before a long load.
    """
    front = flags.front
    keys = (*front.api_key, *filter(None, [os.environ.get("VLLM_API_KEY")]))
    with ExitStack() as stack:
        listener = stack.enter_context(closing(bound(front.host, front.port)))
        engine = _engine(flags, stack)
        app = make_api(engine.context, host=front.host, api_keys=keys)
        url = url_of(listener, front.host)
        if not is_loopback(front.host) and not keys:
            warn(f"anyone who reaches {front.host} may use the model: give --api-key")

        def ready() -> None:
            ending.serves()
            _announce(engine, url)
            if flags.view and engine.trace is not None:
                stack.enter_context(viewing(engine.trace, has_key=bool(keys)))
            stack.enter_context(chatting(url, engine.context.names[0], flags.demo_clients, keys))
            errors().print("[dim]Ctrl-C ends it.[/]")

        def stop() -> None:
            engine.context.is_draining = True

        serve(app, listener, on_ready=ready, on_stop=stop, seconds_to_end=front.shutdown_timeout)
    _leave(engine)


def _leave(engine: _Engine) -> None:
    """End the process where Python would crash: a thread of it is still compiling. All that was open is closed."""
    grammars = engine.context.grammars
    if grammars is None:
        return
    grammars.shutdown()
    if grammars.is_busy:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _engine(flags: ServeCommand, stack: ExitStack) -> _Engine:
    """Load the model; what has to be closed afterwards joins ``stack``."""
    settings, names = front_settings(asdict(flags.front)), flags.front.served_model_name or (flags.model,)
    given = asdict(flags.engine)
    folder = stack.enter_context(TemporaryDirectory(prefix="tokenyard-")) if flags.model == DEMO else None
    with errors().status(f"loading {escape(flags.model)}"):
        core = loaded_engine(flags.model, given, folder)
        made = build_server(core, names, settings)
    policy, output = flags.engine.scheduling_policy, flags.output
    config = trace_config(
        output.trace or (_VIEWED if flags.view else None),
        policy,
        record_requests=output.record_requests,
        max_ids_per_step=output.max_ids_per_step or None,
    )
    trace = trace_of(config, stack, warn)
    header = {name: value for name, value in given.items() if value is not None}
    watch(core, made.metrics, trace, policy=policy, model=names[0], engine=header)
    return _Engine(core, made.context, trace.config.path)


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
        out.print(f"The trace is written to [bold]{escape(str(engine.trace.resolve()))}[/]", soft_wrap=True)
    dtype, device = getattr(engine.context.llm.model, "dtype", "?"), engine.context.llm.model.device
    out.print(f"Computed in {dtype} on {device}; --dtype float32, bfloat16 or float16 chooses", soft_wrap=True)
