"""A KV connector whose far end is a test: it brings some tokens now, later or never, and keeps some blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from tests.support.worker import Worker

from tokenyard.core.kv.allocation import Blocks
from tokenyard.core.request import Request
from tokenyard.core.sched.connector import KVConnector, Match
from tokenyard.core.sched.outputs import ConnectorOutput
from tokenyard.core.sched.scheduler_output import SchedulerOutput

__all__ = ["Load", "ToyConnector"]

_FAILING = 0.15
"""Share of the asynchronous loads of which a block never arrives."""


class Load(NamedTuple):
    """KV for positions ``start..stop-1`` of a request."""

    request: Request
    blocks: list[int]
    start: int
    stop: int

    def carry_out(self, worker: Worker) -> None:
        worker.load(self.request, self.blocks, self.start, self.stop)


class ToyConnector(KVConnector):
    """Knows any prompt; how much of it, and how soon, is drawn."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.offers: dict[str, tuple[int, Match]] = {}
        """Request id -> local hit and what was offered beyond it."""
        self.loading: dict[str, Load] = {}
        self.sending: set[str] = set()
        self._now: list[Load] = []

    # ---- the scheduler's half

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> Match:
        missing = request.num_tokens - num_computed_tokens
        kind = self.random.choice(["nothing", "nothing", "unknown", "now", "later", "later"])
        if kind == "unknown":
            return Match(None)
        most = {"nothing": 0, "now": missing - 1, "later": missing}[kind]
        match = Match(self.random.randint(0, most), is_async=kind == "later")
        self.offers[request.request_id] = num_computed_tokens, match
        return match

    def update_state_after_alloc(self, request: Request, blocks: Blocks, num_external_tokens: int) -> None:
        if num_external_tokens:
            start, match = self.offers[request.request_id]
            assert match.num_tokens == num_external_tokens
            load = Load(request, list(blocks[0]), start, start + num_external_tokens)
            if match.is_async:
                self.loading[request.request_id] = load
            else:
                self._now.append(load)

    def build_connector_meta(self, output: SchedulerOutput) -> object:
        loads, self._now = tuple(self._now), []
        return loads

    def request_finished(self, request: Request, blocks: Blocks) -> tuple[bool, Mapping[str, object] | None]:
        keeps = bool(blocks[0]) and request.request_id not in self.loading and self.random.random() < 0.3
        if keeps:
            self.sending.add(request.request_id)
        return keeps, None

    # ---- the workers' half

    def report(self, worker: Worker, chosen: Callable[[], bool]) -> ConnectorOutput:
        """Some loads and some reads are complete."""
        received = {name for name in sorted(self.loading) if chosen()}
        missing: dict[str, int] = {}
        (_, size) = worker.groups[0]
        for name in sorted(received):
            load = self.loading.pop(name)
            if self.random.random() < _FAILING:
                first = self.random.randrange(load.start, load.stop) // size
                missing[name] = load.blocks[first]
                load = load._replace(stop=max(load.start, first * size))
            load.carry_out(worker)
        self.failed = sorted(missing)
        sent = {name for name in sorted(self.sending) if chosen()}
        self.sending -= sent
        return ConnectorOutput(
            finished_receiving=frozenset(received),
            finished_sending=frozenset(sent),
            invalid_block_ids=frozenset(missing.values()),
        )
