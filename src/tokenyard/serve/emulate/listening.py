"""Listening for an emulation: a socket, as many connections as there are files, and a clean end."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import msgspec
import uvicorn
from starlette.types import ASGIApp

from tokenyard.core.sched.observer import StepObserver
from tokenyard.deploy.deployment import Deployment
from tokenyard.deploy.record import ASKED, asked_flags
from tokenyard.deploy.spec import open_trace
from tokenyard.policies.named import policy_label
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.serve.emulate.capacity import Capacity, Unhurried, capacity, tokens_per_second
from tokenyard.serve.emulate.faults import Fault, read_fault
from tokenyard.serve.emulate.host import Emulation, emulate
from tokenyard.serve.emulate.live import WallClock
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.emulate.surface import make_app
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.start import SECTION, describe_run
from tokenyard.web.connections import BoundedConnection, Bounds, EdgeServer
from tokenyard.web.serve import bound, client_bounds, edge_config, now_listens, run_in_loop, url_of

# ---------------------------------------------------------------------------------------------------------------------
# The trace of an emulation: decisions as any trace has them, from which a replay can begin.


@contextmanager
def recorder_of(deployment: Deployment, folder: Path | None, wall: WallClock) -> Iterator[Sequence[StepObserver]]:
    """What writes the trace of the first engine into ``folder``; none without one. Raises ConfigError.

    The trace says how its clock follows ``wall``.
    """
    if folder is None:
        yield []
        return
    resolved = deployment.resolve()
    label = policy_label(resolved.scheduler.policy)
    with ExitStack() as stack:
        config = TraceConfig(path=folder, policy=label, request_records=True)
        writer = stack.enter_context(TraceWriter(config))
        open_trace(writer)
        start = describe_run(
            resolved.scheduler,
            resolved.cache,
            host="emulate",
            model=resolved.settled.model.name,
            gpu=resolved.settled.gpu.name,
            bytes_per_block=resolved.plan.bytes_per_block,
            clock_zero=wall.zero,
            clock_speed=wall.speed,
            sections={SECTION: msgspec.to_builtins(resolved.header), ASKED: asked_flags(deployment.settings)},
        )
        yield [TraceRecorder(writer, start=start)]


# ---------------------------------------------------------------------------------------------------------------------

_SECONDS_TO_END = 5
_OBJECTS_BETWEEN = 50_000
"""New objects after which the collector looks at them."""


def serve_emulated(
    deployment: Deployment,
    settings: EmulateSettings,
    *,
    host: str,
    port: int | None,
    trace: Path | None,
    faults: Sequence[str],
    on_start: Callable[[Sequence[str]], None],
    on_ready: Callable[[Sequence[str]], None],
) -> str:
    """Serve what the deployment would serve until a signal ends it; a sentence on how late steps were.

    ``port`` is the first of as many as there are servers; None takes the deployment's, else 8000. ``faults`` are
    written as ``--fault`` takes them. ``on_start`` is given the lines of the start log, ``on_ready`` the addresses.
    Raises TokenyardError.
    """
    begun = [read_fault(text) for text in faults]
    given = deployment.settings.launch.asked.value("port") if port is None else port
    first = 8000 if given is None else int(str(given))
    count = 2 if settings.split else settings.servers
    with ExitStack() as stack:
        listeners = [stack.enter_context(closing(bound(host, first and first + i))) for i in range(count)]
        known = known_capacity(deployment, settings)
        wall = WallClock(settings.speed)
        observers = stack.enter_context(recorder_of(deployment, trace, wall))
        emulation = stack.enter_context(closing(emulate(deployment, settings, observers=observers, wall=wall)))
        emulation.capacity = known
        on_start(emulation.start_log())
        Listening(emulation, deployment, begun).serve(listeners, host, on_ready)
        return emulation.engines.lateness.sentence


def known_capacity(deployment: Deployment, settings: EmulateSettings) -> Capacity | None:
    """What an emulation can hold, as given, or as a small one of the same kind shows; None: it streams no tokens."""
    alike = replace(settings, servers=1, split=None, lengths=None, max_late_s=0.0)
    with closing(emulate(deployment, alike, wall=Unhurried(), publishes=False)) as small:
        front, resolved = small.fronts[0], small.resolved
        if front.model.is_pooling:
            return None
        rate = settings.holds
        if rate is None:
            app = make_app(small, front, deployment, small.faults)
            rate = tokens_per_second(front.llm, server_config(app))
    most = resolved.scheduler.max_num_seqs
    return capacity(rate, resolved.latency, most, settings.speed, is_measured=settings.holds is None)


def server_config(app: ASGIApp) -> uvicorn.Config:
    """How an application is served. Where uvloop and httptools are installed, uvicorn takes them."""
    return edge_config(app, _http_protocol(), server_header=True, **client_bounds(_SECONDS_TO_END))


def _http_protocol() -> type[Bounds]:
    """The protocol class with which uvicorn serves HTTP."""
    if find_spec("httptools") is None:
        return BoundedConnection
    from tokenyard.serve.openai.told_connection import ToldConnection  # noqa: PLC0415 - httptools is not always there

    return ToldConnection


class Listening:
    """Serves an emulation."""

    def __init__(self, emulation: Emulation, deployment: Deployment, faults: Sequence[Fault] = ()) -> None:
        self._emulation, self._deployment, self._faults = emulation, deployment, faults

    def serve(self, listeners: Sequence[socket.socket], host: str, on_ready: Callable[[Sequence[str]], None]) -> None:
        """Answer until a signal ends it, at a socket for each front; ``on_ready`` is given the addresses."""
        emulation, servers = self._emulation, list[EdgeServer]()
        spare_collector()
        for fault in self._faults:
            if fault.kind == "slow_start":
                time.sleep(fault.seconds or 0.0)
            else:
                emulation.faults.begin(fault)
        for listener in listeners:
            now_listens(listener)
        urls = [
            f"{front.role} {url_of(listener, host)}" if front.role else url_of(listener, host)
            for front, listener in zip(emulation.fronts, listeners, strict=True)
        ]

        class Server(EdgeServer):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                if all(each.started for each in servers):
                    on_ready(urls)

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                for each in servers:
                    each.force_exit = each.should_exit
                    each.should_exit = True

        for front in emulation.fronts:
            app = make_app(emulation, front, self._deployment, emulation.faults, host=host)
            servers.append(Server(server_config(app)))

        async def together() -> None:
            pairs = zip(servers, listeners, strict=True)
            await asyncio.gather(*(server.serve([listener]) for server, listener in pairs))

        with suppress(KeyboardInterrupt):
            run_in_loop(servers[0].config, together())


def spare_collector() -> None:
    """Python's collector of cycles leaves alone what is there for good, and comes seldom: requests are no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN, 20, 50)
