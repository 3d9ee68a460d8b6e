"""A server with a model: its settings, the engine, the application, the socket, and how the process ends."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from tokenyard.core.engine import EngineCore
from tokenyard.core.sched.observer import StepObserver
from tokenyard.deploy.settings import TraceSettings
from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass
from tokenyard.serve.ending import OrderlyEnd
from tokenyard.serve.front import AccessSettings, FrontSettings
from tokenyard.serve.openai.app import make_api
from tokenyard.serve.openai.asking import ServerContext
from tokenyard.serve.openai.assembly import build_server, limits_of, loaded_engine, trace_config, trace_of, watch
from tokenyard.serve.served_model import DEMO
from tokenyard.web.connections import is_loopback
from tokenyard.web.serve import bound, require_port, serve, url_of, viewing

# ---------------------------------------------------------------------------------------------------------------------
# Clients that keep a server busy, for a look at it: conversations that grow, one after the other.

_SAYING = "please look into the build why does this test fail again write a patch for the parser then run it"
_WORDS = _SAYING.split(" ")
_MOST_TURNS = 6


@contextmanager
def chatting(url: str, model: str, number: int, keys: Sequence[str]) -> Iterator[None]:
    """Run ``number`` clients, each with conversations that grow, one after the other."""
    over = threading.Event()
    threads = [
        threading.Thread(target=_converse, args=(url, model, seed, keys, over), daemon=True) for seed in range(number)
    ]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        over.set()


def _converse(url: str, model: str, seed: int, keys: Sequence[str], over: threading.Event) -> None:
    import httpx  # noqa: PLC0415 - an extra

    chance = random.Random(seed)
    headers = {"Authorization": f"Bearer {keys[0]}"} if keys else {}
    with httpx.Client(base_url=url, headers=headers, timeout=600) as client:
        while not over.is_set():
            job, turns = f"agent-{seed}-{chance.randrange(10**6)}", chance.randint(1, _MOST_TURNS)
            messages: list[dict[str, str]] = []
            for turn in range(turns):
                messages.append({"role": "user", "content": " ".join(chance.choices(_WORDS, k=chance.randint(4, 30)))})
                body = {
                    "model": model,
                    "messages": messages,
                    "max_tokens": chance.randint(8, 48),
                    "job_id": job,
                    "is_last_step": turn == turns - 1,
                }
                try:
                    answer = client.post("v1/chat/completions", json=body)
                except httpx.HTTPError:
                    return  # the server has ended
                if answer.status_code != 200:
                    break  # too long by now, or the queue is full: another conversation
                said = msgspec.json.decode(answer.content)["choices"][0]["message"]["content"]
                messages.append({"role": "assistant", "content": said})
                if over.wait(chance.expovariate(2)):
                    return
            over.wait(0.2)


# ---------------------------------------------------------------------------------------------------------------------

_VIEWED = Path("traces/serve")
"""The trace that is viewed, where no directory is named."""
_MOST_CLIENTS = 200
_LONGEST_SHUTDOWN = 86_400
"""Largest ``--shutdown-timeout``, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServerSettings:
    """Settings of a server with a model, by the names of the flags of ``tokenyard serve``. Raises ConfigError."""

    model: str
    """A folder with a checkpoint, or ``demo``."""
    engine: Mapping[str, Any]
    """Settings of the model, its memory and its scheduler; None where one is not given."""
    access: AccessSettings
    front: FrontSettings
    output: TraceSettings
    view: bool
    """Also show the trace in the viewer."""
    demo_clients: int

    def __post_init__(self) -> None:
        require_port(self.access.port)
        _ = limits_of(self.front), self.front.generation_overrides  # a mistake there ends it before the model is loaded
        if not 0 <= self.access.shutdown_timeout <= _LONGEST_SHUTDOWN:
            raise ConfigError(
                "shutdown_timeout", self.access.shutdown_timeout, f"give seconds from 0 to {_LONGEST_SHUTDOWN}"
            )
        if not 0 <= self.demo_clients <= _MOST_CLIENTS:
            raise ConfigError("demo_clients", self.demo_clients, f"give a number from 0 to {_MOST_CLIENTS}")


class ServedModel(msgspec.Struct, frozen=True):
    """A model that is served."""

    url: str
    core: EngineCore
    context: ServerContext
    trace: Path | None
    """The directory of its trace."""

    @property
    def facts(self) -> list[str]:
        """Sentences about its memory, its limits, and how it is computed."""
        config, cache = self.core.scheduler.config, self.core.scheduler.cache_config
        model = self.context.llm.model
        sizes = (
            f"{cache.num_gpu_blocks:,} blocks of {cache.block_size} tokens, {config.max_num_seqs:,} requests at a time,"
            f" {config.max_num_batched_tokens:,} tokens a step, {config.max_model_len:,} tokens a request"
        )
        sentences = [sizes]
        if self.trace is not None:
            sentences.append(f"The trace is written to {self.trace.resolve()}")
        dtype = getattr(model, "dtype", "?")
        sentences.append(f"Computed in {dtype} on {model.device}; --dtype float32, bfloat16 or float16 chooses")
        return sentences


def serve_model(
    settings: ModelServerSettings,
    ending: OrderlyEnd,
    *,
    loading: Callable[[str], AbstractContextManager[object]],
    on_ready: Callable[[ServedModel], None],
    warn: Callable[[str], None],
) -> None:
    """Serve until a signal ends it. Raises TokenyardError.

    The port is taken at once, and connections to it are refused until the model is loaded, as in vLLM: a client that
    can connect is served, and a port that is not free is known before a long load. ``loading`` is a context around
    the load, made with the model's name; ``on_ready`` is called when clients can connect.
    """
    host = settings.access.host
    keys = (*settings.access.api_key, *filter(None, [os.environ.get("VLLM_API_KEY")]))
    with ExitStack() as stack:
        listener = stack.enter_context(closing(bound(host, settings.access.port)))
        url = url_of(listener, host)
        with loading(settings.model):
            core, context, metrics = _load(settings, stack)
        trace = _watched(settings, core, metrics, stack, warn)
        served = ServedModel(url, core, context, trace)
        app = make_api(served.context, host=host, api_keys=keys)
        if not is_loopback(host) and not keys:
            warn(f"anyone who reaches {host} may use the model: give --api-key")

        def ready() -> None:
            ending.serves()
            on_ready(served)
            if settings.view and served.trace is not None:
                stack.enter_context(viewing(served.trace, has_key=bool(keys)))
            stack.enter_context(chatting(url, served.context.names[0], settings.demo_clients, keys))

        def stop() -> None:
            served.context.is_draining = True

        serve(app, listener, on_ready=ready, on_stop=stop, seconds_to_end=settings.access.shutdown_timeout)
    _leave(served)


def _load(settings: ModelServerSettings, stack: ExitStack) -> tuple[EngineCore, ServerContext, StepObserver]:
    """Load the model; what has to be closed afterwards joins ``stack``."""
    folder = stack.enter_context(TemporaryDirectory(prefix="tokenyard-")) if settings.model == DEMO else None
    core = loaded_engine(settings.model, settings.engine, folder)
    return core, *build_server(core, settings.access.served_model_name or (settings.model,), settings.front)


def _watched(
    settings: ModelServerSettings,
    core: EngineCore,
    metrics: StepObserver,
    stack: ExitStack,
    warn: Callable[[str], None],
) -> Path | None:
    """Attach metrics and trace to the engine; the directory of the trace, if one is written."""
    policy, output = settings.engine["scheduling_policy"], settings.output
    config = trace_config(
        output.trace or (_VIEWED if settings.view else None),
        policy,
        record_requests=output.record_requests,
        max_ids_per_step=output.max_ids_per_step or None,
    )
    trace = trace_of(config, stack, warn)
    given = {name: value for name, value in settings.engine.items() if value is not None}
    name = (settings.access.served_model_name or (settings.model,))[0]
    watch(core, metrics, trace, policy=policy, model=name, engine=given)
    return trace.config.path


def _leave(served: ServedModel) -> None:
    """End the process where Python would crash: a thread of it is still compiling. All that was open is closed."""
    grammars = served.context.grammars
    if grammars is None:
        return
    grammars.shutdown()
    if grammars.is_busy:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
