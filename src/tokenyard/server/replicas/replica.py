"""One engine and its application, as Ray Serve runs them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from ray import serve

from tokenyard.engine.core import EngineCore
from tokenyard.engine.demo_model import DEMO, make_demo_model
from tokenyard.engine.loading import load_core
from tokenyard.policies.named import policy_label, policy_maker
from tokenyard.server.openai.app import make_api
from tokenyard.server.openai.assembly import assembled, unix_clock, watch
from tokenyard.server.openai.scrape import scraped
from tokenyard.server.replicas.passing import Carried, Head, answered
from tokenyard.server.replicas.prompts import RoutedPrompt
from tokenyard.server.replicas.settings import ReplicaSettings
from tokenyard.trace.emit.writer import TraceWriter
from tokenyard.trace.format.config import TraceConfig

__all__ = ["REPLICA_HEADER", "Replica"]

REPLICA_HEADER = b"tokenyard-replica"
"""Names the replica that answered."""


class Replica:
    """A deployment: everything that `tokenyard serve` is behind its socket."""

    async def __init__(self, settings: ReplicaSettings) -> None:  # type: ignore[misc] # Ray waits for it
        replica = serve.get_replica_context()
        tag = replica.replica_tag
        self._header = (REPLICA_HEADER, tag.encode())
        core = _loaded(settings)
        made = assembled(core, settings.names, settings.front, engine=replica.rank.rank)
        policy = settings.engine.get("policy", core.scheduler.config.policy)
        writer = TraceWriter(
            TraceConfig(
                path=None if settings.trace is None else Path(settings.trace) / tag, policy=policy_label(policy)
            )
        )
        writer.claim()
        watch(core, made.metrics, writer, policy=policy, model=settings.names[0], engine=settings.engine)
        self._metrics = scraped(made.metrics.registry)
        self._llm = made.context.llm
        self._app = make_api(made.context, host="")  # who may ask was settled at the front
        await self._llm.start()

    async def answer(self, request: Carried, prompt: RoutedPrompt | None) -> AsyncGenerator[Head | bytes, None]:
        """The answer of this engine, with its name in the head. ``prompt`` was for the router."""
        async for part in answered(self._app, request):
            yield part._replace(headers=[*part.headers, self._header]) if isinstance(part, Head) else part

    async def metrics(self) -> tuple[bytes, str]:
        """Prometheus's text and its content type; the label ``engine`` is the replica's number."""
        return self._metrics()

    def check_health(self) -> None:
        """Ray asks every few seconds, and starts another replica in the place of one that raises."""
        if self._llm.death is not None:
            raise self._llm.death


def _loaded(settings: ReplicaSettings) -> EngineCore:
    given: dict[str, Any] = {"clock": unix_clock(), **settings.engine}
    if "policy" in given:
        given["policy"] = policy_maker(given["policy"], "policy")()
    model = make_demo_model(Path(mkdtemp(prefix="tokenyard-"))) if settings.model == DEMO else settings.model
    return load_core(model, given)
