"""The worker half of tiered connectors: memory cut into blocks, files of blocks, copies between them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from tokenyard.connectors.tiers import Address, Load, Store, TransferPlan, check_namespace, check_storage_path
from tokenyard.core.config import require_int
from tokenyard.core.sched.outputs import ConnectorOutput
from tokenyard.errors import ConfigError, MissingExtraError

# ---------------------------------------------------------------------------------------------------------------------
# Memory that is cut into blocks, as the worker half of a connector sees it.
#
# An engine implements :class:`BlockMemory` over its KV tensors; :class:`ArrayMemory` does it over NumPy arrays, which
# tests and the CPU tier use.

Tensors = Mapping[str, npt.NDArray[Any]]
"""What one block holds: name (a layer, mostly) -> array, C-contiguous."""


class BlockMemory(Protocol):
    """Blocks that hold the same named tensors each."""

    def read(self, block: int) -> Tensors:
        """A copy of a block, or a view that stays true as long as the block is not written."""

    def write(self, block: int, tensors: Tensors) -> None:
        """Replace a block. ValueError, and nothing changes, if names, shapes or types are not this memory's."""


class ArrayMemory:
    """One array per name, its first dimension counts blocks."""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        assert arrays, "a memory without tensors"
        self._arrays = dict(arrays)

    @classmethod
    def like(cls, tensors: Tensors, num_blocks: int) -> ArrayMemory:
        """Memory for ``num_blocks`` blocks that hold what ``tensors`` does."""
        return cls({name: np.zeros((num_blocks, *array.shape), array.dtype) for name, array in tensors.items()})

    def read(self, block: int) -> Tensors:
        return {name: array[block] for name, array in self._arrays.items()}

    def write(self, block: int, tensors: Tensors) -> None:
        self.check(tensors)
        for name, array in self._arrays.items():
            array[block] = tensors[name]

    def check(self, tensors: Tensors) -> None:
        """ValueError unless these could be a block of this memory."""
        if set(tensors) != set(self._arrays):
            raise ValueError(f"a block has {sorted(tensors)} where {sorted(self._arrays)} were expected")
        for name, array in self._arrays.items():
            given = tensors[name]
            if given.shape != array.shape[1:] or given.dtype != array.dtype:
                wanted = f"{array.dtype}{list(array.shape[1:])}"
                raise ValueError(f"{name} is {given.dtype}{list(given.shape)} where {wanted} was expected")


# ---------------------------------------------------------------------------------------------------------------------
# Blocks on a disk that several engines share: one safetensors file per block, named by the hash of its content.
#
#     root / namespace / ab / abcdef....safetensors
#
# A block's hash covers all tokens before it, so equal names mean equal KV, whichever engine computed it, as long as the
# namespace says what else the KV depends on: weights, precision, shape. Files are written under another name and
# renamed when they are complete; readers see a whole file or none. Files may be deleted at any time.

_SUFFIX = ".safetensors"
_CHECKSUM = "xxh3_128"
"""Name of the header field with the checksum over the tensors."""


class BlockFiles:
    """A ``BlockStore`` over files; addresses are block hashes."""

    def __init__(self, root: Path | str, namespace: str = "default") -> None:
        """Makes the folder. ConfigError if it cannot be used, MissingExtraError without safetensors."""
        check_storage_path(root)
        check_namespace(namespace)
        try:
            import safetensors.numpy  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            raise MissingExtraError("safetensors", "storage") from None
        self._format, self._format_error = safetensors.numpy, safetensors.SafetensorError
        self.folder = Path(root) / namespace
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError("shared_storage_path", str(root), f"cannot be used: {error.strerror or error}") from None

    def path_of(self, block_hash: bytes) -> Path:
        """Where a block is, if it is here."""
        name = block_hash.hex()
        return self.folder / name[:2] / f"{name}{_SUFFIX}"

    def __contains__(self, block_hash: object) -> bool:
        return isinstance(block_hash, bytes) and self.path_of(block_hash).exists()

    def get(self, address: Address) -> Tensors:
        """Reads and checks a block; a damaged file is deleted, so that an engine stores it anew."""
        path = self.path_of(_hash(address))
        content = path.read_bytes()
        try:
            return self._decoded(content)
        except ValueError:
            self._delete(path)
            raise

    def _decoded(self, content: bytes) -> Tensors:
        """ValueError unless the content is what :meth:`put` wrote."""
        try:
            tensors: dict[str, Any] = self._format.load(content)
        except self._format_error as error:
            raise ValueError(f"not a safetensors file: {error}") from None
        sums = tensors.pop(_CHECKSUM, None)
        if sums is None or sums.tobytes() != _checksum(tensors):
            raise ValueError("the checksum is not that of the content")
        return tensors

    def put(self, address: Address, tensors: Tensors) -> None:
        path = self.path_of(_hash(address))
        if path.exists():
            return
        sums = np.frombuffer(_checksum(tensors), np.uint8)
        content = self._format.save({**tensors, _CHECKSUM: sums})
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_name(f".{path.stem}.{os.getpid()}.{get_ident()}")
        try:
            unfinished.write_bytes(content)
            unfinished.replace(path)
        except OSError:
            self._delete(unfinished)
            raise

    @staticmethod
    def _delete(path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            return  # a folder that may only be read: an engine that may write it will have to


def _hash(address: Address) -> bytes:
    assert isinstance(address, bytes), "files are addressed by hashes"
    return address


def _checksum(tensors: Tensors) -> bytes:
    """Over names and contents, in order of the names."""
    state = xxhash.xxh3_128()
    for name in sorted(tensors):
        state.update(name.encode())
        state.update(np.ascontiguousarray(tensors[name]).view(np.uint8).reshape(-1).data)
    return state.digest()


# ---------------------------------------------------------------------------------------------------------------------
# The worker half of every connector that keeps blocks in a tier: copies between the GPU's memory and a store.
#
# A load that fails ends like any other, and its blocks are reported as invalid: the scheduler rewinds requests that
# relied on them. A store that fails leaves nothing behind: the block is simply not found later.


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
        self.memory: ArrayMemory | None = None

    def get(self, address: Address) -> Tensors:
        if self.memory is None:
            raise ValueError("nothing has been stored yet")
        return self.memory.read(int(address))

    def put(self, address: Address, tensors: Tensors) -> None:
        if self.memory is None:
            self.memory = ArrayMemory.like(tensors, self._num_blocks)
        self.memory.write(int(address), tensors)


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
        self.memory = memory
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
                self.begin(load)

    def after_step(self, plan: TransferPlan | None) -> None:
        for store in plan.stores if plan is not None else ():
            self.begin(store)

    def begin(self, job: Load | Store) -> None:
        """Move the blocks of a job, on a thread where there are any; :meth:`report` returns what came of it."""
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
                self.memory.write(block, self.fetch(load, source))
            except (OSError, ValueError):
                failed.append(block)
        return FinishedTransfer(load, tuple(failed))

    def fetch(self, load: Load, source: Address) -> Tensors:
        """The tensors of one block of a load. Raises OSError or ValueError for one that cannot be loaded."""
        return self._store.get(source)

    def _put_all(self, store: Store) -> FinishedTransfer:
        for block, target in zip(store.blocks, store.targets, strict=True):
            tensors = {name: np.ascontiguousarray(array) for name, array in self.memory.read(block).items()}
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
    """Finished jobs, as they are reported to the scheduler."""
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
