"""What the recorder may see of vLLM's scheduler: the same questions that ours answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from tokenyard.request import Request
from tokenyard.sched.observer import Counts, Gauges
from tokenyard.vllm.tracing.requests import TracedRequest
from tokenyard.vllm.versions import max_running, waiting_queues

__all__ = ["EngineState"]


class _Queue:
    """One of vLLM's waiting queues, to be looked at."""

    __slots__ = ("_known", "_queue")

    def __init__(self, queue: Any, known: dict[str, TracedRequest]) -> None:
        self._queue = queue
        self._known = known

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        for request in self._queue:
            traced = self._known.get(request.request_id)
            if traced is not None:
                yield cast("Request", traced)


class EngineState:
    """A ``SchedulerState`` over a vLLM scheduler.

    ``known``: request id -> request, of all that vLLM has been given; whoever keeps it says when the running list has
    changed.
    """

    __slots__ = (
        "_known",
        "_manager",
        "_pool",
        "_scheduler",
        "block_size",
        "max_num_running_reqs",
        "max_num_scheduled_tokens",
        "num_total_blocks",
        "queues",
        "running_version",
        "skipped_waiting",
        "waiting",
        "waiting_reorders",
    )

    def __init__(self, scheduler: Any, known: dict[str, TracedRequest]) -> None:
        self._scheduler = scheduler
        self._known = known
        self._manager = scheduler.kv_cache_manager
        self._pool = self._manager.block_pool
        self.queues = waiting_queues(scheduler)
        first, second = self.queues
        self.skipped_waiting, self.waiting = _Queue(first, known), _Queue(second, known)
        self.block_size = int(scheduler.block_size)
        self.max_num_scheduled_tokens = int(scheduler.max_num_scheduled_tokens)
        self.max_num_running_reqs = max_running(scheduler)
        self.num_total_blocks = int(self._pool.num_gpu_blocks)
        self.running_version = 0
        self.waiting_reorders = False

    @property
    def running(self) -> Sequence[Request]:
        """In running order."""
        known = self._known
        found = [known.get(request.request_id) for request in self._scheduler.running]
        return cast("list[Request]", [request for request in found if request is not None])

    @property
    def pinned(self) -> Sequence[Request]:
        """Nobody: vLLM pins nothing."""
        return ()

    @property
    def num_free_blocks(self) -> int:
        """Blocks in the free queue."""
        return int(self._pool.get_num_free_blocks())

    @property
    def num_cached_blocks(self) -> int:
        """Distinct hashes in the prefix index."""
        return len(self._pool.cached_block_hash_to_block)

    @property
    def cpu_blocks(self) -> tuple[int, int] | None:
        """None: vLLM's connectors do not say."""
        return None

    @property
    def num_waiting(self) -> int:
        """Requests in both waiting queues."""
        first, second = self.queues
        return len(first) + len(second)

    def counts(self) -> Counts:
        """What statistics take of every step."""
        return Counts(self.num_free_blocks, len(self._scheduler.running), self.num_waiting, None)

    def gauges(self) -> Gauges:
        """What may change with every step."""
        first, second = self.queues
        num_first = len(first)
        return Gauges(
            self.running_version,
            self._pool.get_num_free_blocks(),
            len(self._pool.cached_block_hash_to_block),
            num_first + len(second),
            num_first,
            0,
            None,
        )

    def num_blocks_of(self, request: Request) -> int:
        """Blocks the request holds, all groups together."""
        blocks = self._manager.get_blocks(request.request_id).blocks
        return sum(map(len, blocks))
