"""What observers see of a scheduler: read-only, and the same object for its whole life."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tokenyard.core.request import Request
from tokenyard.core.sched.context import SchedulerContext
from tokenyard.core.sched.features.sessions import PinBoard
from tokenyard.core.sched.observer import Counts, Gauges
from tokenyard.core.sched.queues import RequestQueue


class _Queue:
    """One of the waiting queues, to be looked at."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Callable[[], RequestQueue]) -> None:
        self._queue = queue

    def __len__(self) -> int:
        return len(self._queue())

    def __iter__(self) -> Iterator[Request]:
        return iter(self._queue())


class ObserverView:
    """A ``SchedulerState``: it hands out numbers, copies and iterators, and no part of the scheduler."""

    __slots__ = (
        "_kv",
        "_pins",
        "_policy",
        "_queues",
        "_running",
        "_transfers",
        "block_size",
        "max_num_running_reqs",
        "max_num_scheduled_tokens",
        "num_total_blocks",
        "skipped_waiting",
        "waiting",
    )

    def __init__(self, context: SchedulerContext, pins: PinBoard) -> None:
        self._kv = context.kv
        self._policy = context.policy.policy
        self._running = context.running
        self._queues = queues = context.waiting_queues
        self._pins = pins
        self._transfers = context.features.transfers
        self.block_size = context.cache_config.tokens_per_block
        self.max_num_running_reqs = context.config.max_num_seqs
        self.max_num_scheduled_tokens = context.config.max_num_batched_tokens
        self.num_total_blocks = context.kv.num_total_blocks
        self.waiting = _Queue(lambda: queues.waiting)
        self.skipped_waiting = _Queue(lambda: queues.skipped)

    @property
    def running(self) -> Sequence[Request]:
        """In running order."""
        return self._running.members()

    @property
    def running_version(self) -> int:
        """Changes with the running list."""
        return self._running.version

    @property
    def pinned(self) -> Sequence[Request]:
        """Finished turns whose blocks are kept."""
        return tuple(self._pins)

    @property
    def waiting_reorders(self) -> bool:
        """The waiting order may change by itself."""
        return self._policy.reorders

    @property
    def num_free_blocks(self) -> int:
        """Blocks in the free queue."""
        return self._kv.num_free_blocks

    @property
    def num_cached_blocks(self) -> int:
        """Distinct hashes in the prefix index."""
        return self._kv.num_cached_blocks

    @property
    def cpu_blocks(self) -> tuple[int, int] | None:
        """Free and total blocks of a tier in CPU memory."""
        return None if self._transfers is None else self._transfers.connector.cpu_blocks

    def num_blocks_of(self, request: Request) -> int:
        """Blocks the request holds."""
        return self._kv.num_blocks_of(request)

    def counts(self) -> Counts:
        """What statistics take of every step."""
        queues = self._queues
        return Counts(
            self._kv.num_free_blocks,
            len(self._running.requests),
            len(queues) if queues.occupied else 0,
            self.cpu_blocks,
        )

    def gauges(self) -> Gauges:
        """What may change with every step."""
        kv, queues = self._kv, self._queues
        in_turn, num_skipped = queues.counts
        return Gauges(
            self._running.version,
            kv.num_free_blocks,
            kv.num_cached_blocks,
            in_turn + num_skipped,
            num_skipped,
            len(self._pins),
            self.cpu_blocks,
        )
