"""A whole engine for connectors: scheduler, connector, its worker, and a model that checks every KV it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import sleep
from typing import Any

import numpy as np
from tests.support.toy_engine import Watcher, make_request
from tests.support.worker import Worker

from tokenyard.connectors.tier_worker import BlockMemory, Tensors
from tokenyard.connectors.tiers import ConnectorWorker
from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.request import Request
from tokenyard.core.sched.connector import KVConnector
from tokenyard.core.sched.outcomes import Reason
from tokenyard.core.sched.outputs import ConnectorOutput, EngineOutputs, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput

__all__ = ["ConnectorEngine", "DigestMemory"]


class DigestMemory:
    """The memory of a :class:`Worker`, block by block: what it holds is a digest of all tokens before."""

    def __init__(self, worker: Worker, block_size: int) -> None:
        self._cells = worker.memory
        self._size = block_size

    def read(self, block: int) -> Tensors:
        return {"digests": np.array([self._cells.get((block, i), 0) for i in range(self._size)], np.int64)}

    def write(self, block: int, tensors: Tensors) -> None:
        (digests,) = tensors.values()
        for i, digest in enumerate(digests.tolist()):
            self._cells[block, i] = digest


class ConnectorEngine:
    """Steps as an engine does them; a toy model samples ever new tokens. All invariants are checked all the time."""

    def __init__(
        self,
        make_connector: Callable[[CacheConfig], KVConnector],
        make_worker: Callable[[BlockMemory], ConnectorWorker],
        *,
        num_gpu_blocks: int = 21,
        **settings: Any,
    ) -> None:
        self.cache = CacheConfig(num_gpu_blocks=num_gpu_blocks, block_size=4, enable_kv_cache_events=True)
        self.config = SchedulerConfig(
            **{"max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 64} | settings
        )
        self.now = 0.0
        self.watcher = Watcher()
        self.connector = make_connector(self.cache)
        self.scheduler = Scheduler(
            self.config, self.cache, clock=lambda: self.now, observer=self.watcher, kv_connector=self.connector
        )
        self.worker = Worker(self.cache)
        self.mover = make_worker(DigestMemory(self.worker, 4))
        self.num_sampled = 0
        self.news: list[Any] = []
        self.requests: dict[str, Request] = {}
        self.reasons: list[Reason] = []
        """Why requests were passed over, of all steps."""

    def add(self, request_id: str, prompt: int | Sequence[int] = 4, **options: Any) -> Request:
        request = make_request(request_id, prompt, **{"ignore_eos": True} | options)
        self.scheduler.add_request(request)
        self.requests[request_id] = request
        return request

    def step(self) -> tuple[SchedulerOutput, EngineOutputs]:
        output = self.scheduler.schedule()
        return output, self.finish_step(output)

    def finish_step(self, output: SchedulerOutput) -> EngineOutputs:
        """All of a step but its decision."""
        self.reasons += [each.reason for each in self.watcher.outcomes.skipped]
        plan: Any = output.kv_connector_metadata
        self.mover.before_step(plan)
        first = self.mover.report()
        self.worker.bad = set(first.invalid_block_ids) if first is not None else set()
        sampled = self.worker.execute(output, self.sample)
        self.mover.after_step(plan)
        report = merged(first, self.mover.report())
        result = self.scheduler.update_from_output(output, ModelOutput.from_lists(sampled, report))
        self.news += result
        self.scheduler.check_invariants()
        return result

    def sample(self, name: str, drafts: list[int]) -> list[int]:
        self.num_sampled += 1
        return [1_000_000 + self.num_sampled]

    def run(self, limit: int = 3000) -> None:
        """Step until nothing is left to do or to report."""
        for _ in range(limit):
            if not self.scheduler.has_requests():
                return
            if not self.step()[0].req_ids:
                sleep(0.001)  # a worker may have threads
        raise AssertionError(f"{self.scheduler.get_num_unfinished_requests()} requests are left after {limit} steps")

    def serve(self, request_id: str, prompt: int | Sequence[int], max_tokens: int = 1, **options: Any) -> Request:
        """Add one request and run until all is quiet."""
        request = self.add(request_id, prompt, max_tokens=max_tokens, **options)
        self.run()
        return request

    @property
    def is_quiet(self) -> bool:
        """No block is held by anybody."""
        return self.scheduler.num_free_blocks == self.scheduler.num_total_blocks - 1


def merged(*reports: ConnectorOutput | None) -> ConnectorOutput | None:
    """Several reports as one."""
    given = [report for report in reports if report is not None]
    if not given:
        return None
    return ConnectorOutput(
        finished_sending=frozenset().union(*(each.finished_sending for each in given)),
        finished_receiving=frozenset().union(*(each.finished_receiving for each in given)),
        invalid_block_ids=frozenset().union(*(each.invalid_block_ids for each in given)),
        completed_jobs=frozenset().union(*(each.completed_jobs for each in given)),
    )
