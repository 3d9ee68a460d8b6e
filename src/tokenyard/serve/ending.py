"""Signals that end the process of a server (SIGTERM, Ctrl-C), in every phase of its life.

loading     the load is broken off: EndedWhileLoading, or KeyboardInterrupt
serving     uvicorn's handlers (web/serve.py)
leaving     it ends already: what is open is closed, and a signal does not hurry that
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_Handler = Callable[[int, FrameType | None], object] | int | None


class EndedWhileLoading(BaseException):
    """SIGTERM came before the model was loaded."""


class OrderlyEnd:
    """A context for a server's whole life, in the main thread: no signal ends the process halfway."""

    def __init__(self) -> None:
        self._is_loading = True
        self._was_signalled = False
        self._handlers_before: dict[signal.Signals, _Handler] = {}

    def __enter__(self) -> OrderlyEnd:
        if threading.current_thread() is threading.main_thread():
            self._handlers_before = {each: signal.signal(each, self._on_signal) for each in _SIGNALS}
        return self

    def serves(self) -> None:
        """The server's own handlers are in force from now on; when they are gone again, it is leaving."""
        self._is_loading = False

    def _on_signal(self, sig: int, frame: FrameType | None) -> None:
        if self._is_loading and not self._was_signalled:
            self._was_signalled = True
            raise KeyboardInterrupt if sig == signal.SIGINT else EndedWhileLoading

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # A process that is about to end with its own exit code must not be ended by a second signal.
        is_leaving = self._was_signalled or not self._is_loading
        for each, before in self._handlers_before.items():
            signal.signal(each, signal.SIG_IGN if is_leaving else before)
