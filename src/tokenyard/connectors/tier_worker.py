"""The worker half of every connector that keeps blocks in a tier: copies between the GPU's memory and a store.

A load that fails ends like any other, and its blocks are reported as invalid: the scheduler rewinds whoever relied on
them. A store that fails leaves nothing behind: the block is simply not found later.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from tokenyard.config import require_int
from tokenyard.connectors.memory import ArrayMemory, BlockMemory, Tensors
from tokenyard.connectors.plan import Address, Load, Store, TransferPlan
from tokenyard.sched.steps.model_output import ConnectorOutput

__all__ = ["BlockStore", "FinishedTransfer", "HostMemory", "TierWorker"]


class BlockStore(Protocol):
    """Where a tier's blocks really are."""

    def get(self, address: Address) -> Tensors:
        """A block's tensors. OSError or ValueError if it is missing or damaged."""

    def put(self, address: Address, tensors: Tensors) -> None:
        """Keep a copy. OSError if that cannot be done: nothing is left behind then."""


class HostMemory:
    """Blocks in CPU memory, by number; the arrays are made when the first block shows what one holds."""

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._memory: ArrayMemory | None = None

    def get(self, address: Address) -> Tensors:
        if self._memory is None:
            raise ValueError("nothing has been stored yet")
        return self._memory.read(int(address))

    def put(self, address: Address, tensors: Tensors) -> None:
        if self._memory is None:
            self._memory = ArrayMemory.like(tensors, self._num_blocks)
        self._memory.write(int(address), tensors)


class FinishedTransfer(NamedTuple):
    """A job that is over."""

    job: Load | Store
    failed: tuple[int, ...] = ()
    """Blocks of the GPU that hold nothing valid."""


class TierWorker:
    """Moves blocks between ``memory`` and ``store``, at once or on threads.

    With ``num_threads`` asynchronous loads and stores run beside the model; ``memory`` must allow that for blocks the
    model does not touch. Without, they are done before the step goes on.
    """

    def __init__(self, memory: BlockMemory, store: BlockStore, *, num_threads: int = 0) -> None:
        """Raises ConfigError for a number of threads that cannot be."""
        require_int("num_threads", num_threads, 0)
        self._memory = memory
        self._store = store
        self._threads = ThreadPoolExecutor(num_threads, "kv-transfer") if num_threads else None
        self._running: list[Future[FinishedTransfer]] = []
        self._done: list[FinishedTransfer] = []

    def before_step(self, plan: TransferPlan | None) -> None:
        if plan is None:
            return
        self._done += map(self._put_all, plan.saves)
        self._done += [self._get_all(load) for load in plan.loads if not load.is_async]
        for load in plan.loads:
            if load.is_async:
                self._begin(load)

    def after_step(self, plan: TransferPlan | None) -> None:
        for store in plan.stores if plan is not None else ():
            self._begin(store)

    def _begin(self, job: Load | Store) -> None:
        move = partial(self._get_all, job) if isinstance(job, Load) else partial(self._put_all, job)
        if self._threads is None:
            self._done.append(move())
        else:
            self._running.append(self._threads.submit(move))

    # ---- copies

    def _get_all(self, load: Load) -> FinishedTransfer:
        failed = []
        for block, source in zip(load.blocks, load.sources, strict=True):
            try:
                self._memory.write(block, self._fetch(load, source))
            except (OSError, ValueError):
                failed.append(block)
        return FinishedTransfer(load, tuple(failed))

    def _fetch(self, load: Load, source: Address) -> Tensors:
        return self._store.get(source)

    def _put_all(self, store: Store) -> FinishedTransfer:
        for block, target in zip(store.blocks, store.targets, strict=True):
            tensors = {name: np.ascontiguousarray(array) for name, array in self._memory.read(block).items()}
            try:
                self._store.put(target, tensors)
            except OSError:
                break  # a full disk stays full for the blocks after it
        return FinishedTransfer(store)

    # ---- news

    def report(self) -> ConnectorOutput | None:
        for each in [future for future in self._running if future.done()]:
            self._running.remove(each)
            self._done.append(each.result())
        if not self._done:
            return None
        done, self._done = self._done, []
        return _connector_output(done)

    def shutdown(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)


def _connector_output(done: Iterable[FinishedTransfer]) -> ConnectorOutput:
    """Jobs that are over, as the scheduler hears of them."""
    sent: set[str] = set()
    received: set[str] = set()
    failed: set[int] = set()
    jobs: set[int] = set()
    for job, bad in done:
        jobs.add(job.job_id)
        failed.update(bad)
        if isinstance(job, Load):
            received.update([job.request_id] if job.is_async else [])
        elif job.request_id is not None:
            sent.add(job.request_id)
    return ConnectorOutput(
        finished_sending=frozenset(sent),
        finished_receiving=frozenset(received),
        invalid_block_ids=frozenset(failed),
        completed_jobs=frozenset(jobs),
    )
