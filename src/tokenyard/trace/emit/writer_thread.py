"""Writes lines to the disk from a thread of its own, so that a slow disk does not hold up the scheduler.

Batches are written in the order in which they are given. Where more than 32 MiB wait in memory, the disk cannot keep
up, and the caller waits until it has.

Ctrl-C reaches the caller between any two of its instructions. So it holds no lock that the thread needs: what passes
between them is one queue whose operations are atomic, and a lock per wait that nobody else has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from tokenyard.trace.emit.line_file import LineFile, Lines

__all__ = ["WriterThread"]

_BYTES_WAITING = 32 * 1024 * 1024


class WriterThread:
    """Takes batches until it is stopped. ``failed`` is called once, from the thread, if the disk refuses."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._queue: SimpleQueue[tuple[LineFile, Lines] | Callable[[], None] | None] = SimpleQueue()
        """Batches; what to call when all before it is written; None: stop."""
        self._bytes_given = 0
        """Kept by the caller."""
        self._bytes_done = 0
        """Kept by the thread."""
        self.thread: threading.Thread | None = None
        """Started with the first batch."""
        self._broken = False

    def put(self, file: LineFile) -> None:
        """Have everything written that waits in ``file``."""
        if self._broken or not file.waiting.templates:
            return
        if self.thread is None and not self._start():
            self._write((file, file.waiting.take()))
            return
        if self._bytes_given - self._bytes_done > _BYTES_WAITING:
            self.drain()
        lines = file.waiting.take()  # not before: whoever interrupts the wait loses nothing
        self._bytes_given += lines.num_bytes
        self._queue.put((file, lines))

    def drain(self) -> None:
        """Wait until everything is written."""
        if self.thread is not None:
            written = threading.Lock()
            written.acquire()
            self._queue.put(written.release)
            written.acquire()

    def stop(self) -> None:
        """Write everything and end the thread."""
        thread = self.thread
        if thread is not None:
            self._queue.put(None)
            thread.join()
            self.thread = None

    def _start(self) -> bool:
        """Start the thread; False where none can be had, as late in the interpreter's life."""
        thread = threading.Thread(target=self._run, name="tokenyard-trace", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self.thread = thread
        return True

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if not isinstance(item, tuple):
                item()
                continue
            self._write(item)
            self._bytes_done += item[1].num_bytes

    def _write(self, batch: tuple[LineFile, Lines]) -> None:
        if self._broken:
            return
        try:
            batch[0].put_down(batch[1])
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for this thread in vain
            self._broken = True
            self._failed(error)
