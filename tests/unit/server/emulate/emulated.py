"""An emulated server in this process: its application, its engines, a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from typing import Any, Literal

import httpx
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenyard.deploy.deployment import Deployment
from tokenyard.serve.emulate.host import Emulation, emulate
from tokenyard.serve.emulate.live import WallClock
from tokenyard.serve.emulate.settings import EmulateSettings
from tokenyard.serve.emulate.surface import make_app

__all__ = ["LINE", "Emulated", "InTime", "emulated", "emulated_servers"]

LINE = "vllm serve Qwen/Qwen3-0.6B --max-num-seqs 16 --max-model-len 2048 --served-model-name toy"


_TURNS = 5
"""Turns of the event loop before the next thing happens."""


class InTime(WallClock):
    """A wall that comes to what is next when all clients have taken what was sent: no machine is too busy for it."""

    def __init__(self) -> None:
        super().__init__()
        self.num_untaken = 0
        """Sendings that their clients have not taken."""
        self._now = self._next = 0.0
        self._turns = 0

    def now(self) -> float:
        return self._now

    def seconds_until(self, moment: float) -> float:
        if moment > self._now:
            if moment != self._next or self.num_untaken:
                self._next, self._turns = moment, 0
            self._turns += 1
            if self._turns <= _TURNS:
                return 1e-5
            self._now = moment
        return 0.0

    def seen_by(self, app: ASGIApp) -> ASGIApp:
        """The same application, whose sendings it knows of."""

        async def seen(scope: Scope, receive: Receive, send: Send) -> None:
            async def counted(message: Message) -> None:
                self.num_untaken += 1
                try:
                    await send(message)
                finally:
                    self.num_untaken -= 1

            await app(scope, receive, counted if scope["type"] == "http" else send)

        return seen


class Emulated:
    """One that answers."""

    def __init__(self, client: TestClient, emulation: Emulation) -> None:
        self.client, self.emulation = client, emulation

    def post(self, path: str, **fields: Any) -> Any:
        """A request's answer."""
        return self.client.post(path, json=fields)

    def chat(self, text: str = "Hello there", **fields: Any) -> Mapping[str, Any]:
        """A chat's whole answer."""
        answer = self.post("/v1/chat/completions", messages=[{"role": "user", "content": text}], **fields)
        assert answer.status_code == 200, answer.text
        found: Mapping[str, Any] = answer.json()
        return found

    @property
    def num_held_blocks(self) -> int:
        """Blocks that requests hold; 0 when nothing runs."""
        schedulers = [rank.scheduler for group in self.emulation.engines.groups for rank in group.ranks]
        return sum(each.num_total_blocks - 1 - each.num_free_blocks for each in schedulers)


@contextmanager
def emulated(
    line: str = LINE,
    *,
    speed: float = 200.0,
    answers: Literal["words", "echo"] = "words",
    surface: str | None = None,
    wall: WallClock | None = None,
    max_late_s: float = 0.0,
    **given: Any,
) -> Iterator[Emulated]:
    """A server of that line, on an H100 that is fast forwarded, or keeps to ``wall``."""
    deployment = Deployment(line, gpu="h100", **given)
    settings = EmulateSettings(speed=speed, answers=answers, surface=surface, max_late_s=max_late_s)
    with closing(emulate(deployment, settings, wall=wall)) as emulation:
        app: ASGIApp = make_app(emulation, emulation.fronts[0], deployment, emulation.faults)
        if isinstance(wall, InTime):
            app = wall.seen_by(app)
        with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
            yield Emulated(client, emulation)


@asynccontextmanager
async def emulated_servers(
    line: str = LINE, **settings: Any
) -> AsyncIterator[tuple[Emulation, list[httpx.AsyncClient]]]:
    """Several servers of one emulation, each with its client, in the running event loop."""
    deployment = Deployment(line, gpu="h100")
    async with AsyncExitStack() as stack:
        emulation = stack.enter_context(closing(emulate(deployment, EmulateSettings(**{"speed": 200.0, **settings}))))
        clients = []
        for front in emulation.fronts:
            await stack.enter_async_context(front.llm)
            app = make_app(emulation, front, deployment, emulation.faults)
            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
            client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60)
            clients.append(await stack.enter_async_context(client))
        yield emulation, clients
