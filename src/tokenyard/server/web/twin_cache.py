"""Parquet twins of traces that are asked for in SQL, or by step where the file cannot be read from its middle.

Made by a thread, one at a time, in a directory of our own that goes away with the server.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec

from tokenyard.trace.columnar.convert import convert
from tokenyard.trace.columnar.twins import ready_twin

__all__ = ["Converting", "TwinCache"]

_KEPT = 8
_Key = tuple[str, int, int, int]


class Converting(msgspec.Struct, frozen=True):
    """How far a conversion has come, in bytes of JSON text; ``total`` is None where it is not known."""

    done: int
    total: int | None


class _Twin:
    def __init__(self, path: Path, total: int | None) -> None:
        self.path = path
        self.total = total
        self.done = 0
        self.future: Future[Path] | None = None


class _StoppedError(Exception):
    """The server goes down."""


class TwinCache:
    """Twins by what they were made from: a file that has changed since is converted again."""

    def __init__(self) -> None:
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="tokenyard-twin")
        self._twins: dict[_Key, _Twin] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def close(self) -> None:
        """Stop converting and remove the twins."""
        self._stopping.set()
        self._maker.shutdown(wait=True, cancel_futures=True)
        if self._directory is not None:
            self._directory.cleanup()

    def twin(self, path: Path, kind: str, patience: float) -> Path | Converting:
        """The twin of a file; if it is not ready within ``patience`` seconds, how far it is.

        Raises what the conversion raised.
        """
        ready = ready_twin(path, kind)
        if ready is not None:
            return ready
        twin = self._known_or_begun(path, kind)
        assert twin.future is not None
        if not wait([twin.future], patience).done:
            return Converting(twin.done, twin.total)
        return twin.future.result()

    def _known_or_begun(self, path: Path, kind: str) -> _Twin:
        status = path.stat()
        key = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
        with self._lock:
            twin = self._twins.pop(key, None)
            if twin is None or (twin.future is not None and twin.future.done() and twin.future.exception()):
                twin = _Twin(self._new_path(kind), status.st_size if path.suffix == ".jsonl" else None)
                twin.future = self._maker.submit(self._make, path, kind, twin)
            self._twins[key] = twin  # the last one is the one asked for last
            self._forget(str(path), key)
        return twin

    def _new_path(self, kind: str) -> Path:
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="tokenyard-view-")
        self._count += 1
        return Path(self._directory.name) / f"{self._count}.{kind}.parquet"

    def _make(self, path: Path, kind: str, twin: _Twin) -> Path:
        convert(path, twin.path, kind, compression="snappy", on_progress=self._watch(twin))
        return twin.path

    def _watch(self, twin: _Twin) -> Callable[[int], None]:
        def watch(done: int) -> None:
            twin.done = done
            if self._stopping.is_set():
                raise _StoppedError

        return watch

    def _forget(self, path: str, key: _Key) -> None:
        """Drop twins of the same file as it was before, and the ones not asked for in the longest time."""
        old = [each for each in self._twins if each != key and each[0] == path]
        old += [each for each in self._twins if each not in old][: max(0, len(self._twins) - len(old) - _KEPT)]
        for each in old:
            twin = self._twins.pop(each)
            if twin.future is not None and (twin.future.cancel() or twin.future.done()):
                twin.path.unlink(missing_ok=True)
