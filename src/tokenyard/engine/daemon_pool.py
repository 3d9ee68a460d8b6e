"""A few threads that work is handed to, and that no process waits for when it ends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["DaemonPool"]

_Result = TypeVar("_Result")


class DaemonPool:
    """Like ``ThreadPoolExecutor``, whose threads Python joins at the end, however long their work takes."""

    def __init__(self, num_threads: int, name: str) -> None:
        """Threads start with the first work."""
        self._num_threads, self._name = num_threads, name
        self._waiting = queue.SimpleQueue[Callable[[], None] | None]()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_over = False
        self._num_running = 0

    @property
    def is_busy(self) -> bool:
        """Work has begun that has not ended. A process must not end by itself then: Python may crash, see os._exit."""
        return self._num_running > 0

    def submit(self, work: Callable[[], _Result]) -> Future[_Result]:
        """The future of ``work``'s result; cancelling it drops work that has not begun."""
        future = Future[_Result]()

        def do() -> None:
            if self._is_over:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - raised again by whoever asks for the result
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            self._waiting.put(do)
            if len(self._threads) < self._num_threads:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def shutdown(self) -> None:
        """Drop what has not begun; nobody waits for what has."""
        self._is_over = True
        with self._lock:
            for _ in self._threads:
                self._waiting.put(None)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            with self._lock:
                self._num_running += 1
            work()
            with self._lock:
                self._num_running -= 1
