"""Puts lines on the disk from a thread of its own, so that a slow disk does not hold up the scheduler.

Batches are written in the order in which they are given. At most 32 MiB wait in memory; a disk that cannot keep up with
that makes the caller wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from tokenyard.trace.lines import LineFile, Lines

__all__ = ["Spool"]

_BYTES_WAITING = 32 * 1024 * 1024


class Spool:
    """Takes batches until told to stop. ``failed`` is called once, from the thread, if the disk refuses."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._batches: deque[tuple[LineFile, Lines]] = deque()
        self._bytes = 0
        """Of the batches that wait or are being written."""
        self._changed = threading.Condition()
        self.thread: threading.Thread | None = None
        """Started with the first batch."""
        self._writing = False
        self._stopping = False
        self._broken = False

    def put(self, file: LineFile) -> None:
        """Have everything written that waits in ``file``."""
        if self._broken or not file.waiting.forms:
            return
        if self.thread is None and not self._start():
            self._write((file, file.waiting.take()))
            return
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < _BYTES_WAITING)
            lines = file.waiting.take()  # not before: whoever interrupts the wait loses nothing
            self._batches.append((file, lines))
            self._bytes += lines.num_bytes
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until everything is written."""
        with self._changed:
            self._changed.wait_for(lambda: not self._batches and not self._writing)

    def stop(self) -> None:
        """Write everything and end the thread."""
        thread = self.thread
        if thread is not None:
            with self._changed:
                self._stopping = True
                self._changed.notify_all()
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
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._batches or self._stopping)
                if not self._batches:
                    return
                batch = self._batches.popleft()
                self._writing = True
            self._write(batch)
            with self._changed:
                self._writing = False
                self._bytes = 0 if self._broken else self._bytes - batch[1].num_bytes
                self._changed.notify_all()

    def _write(self, batch: tuple[LineFile, Lines]) -> None:
        if self._broken:
            return
        try:
            batch[0].put_down(batch[1])
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for this thread in vain
            self._broken = True
            self._failed(error)
