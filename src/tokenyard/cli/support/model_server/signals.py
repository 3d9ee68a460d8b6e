"""Being told to end (SIGTERM, Ctrl-C) in every phase of a server.

loading     the load is broken off: ToldToEnd, or KeyboardInterrupt
serving     uvicorn's handlers (server/web/serve.py)
leaving     it ends already: what is open is closed, and nothing hurries that
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

__all__ = ["EndingByTheBook", "ToldToEnd"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_Handler = Callable[[int, FrameType | None], object] | int | None


class ToldToEnd(BaseException):
    """SIGTERM came before there was a server."""


class EndingByTheBook:
    """A context for all of a server's life, in the main thread: no signal ends the process halfway."""

    def __init__(self) -> None:
        self._is_loading = True
        self._was_told = False
        self._before: dict[signal.Signals, _Handler] = {}

    def __enter__(self) -> EndingByTheBook:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._told) for each in _SIGNALS}
        return self

    def serves(self) -> None:
        """The server's own handlers are in force from now on; when they are gone again, it is leaving."""
        self._is_loading = False

    def _told(self, sig: int, frame: FrameType | None) -> None:
        if self._is_loading and not self._was_told:
            self._was_told = True
            raise KeyboardInterrupt if sig == signal.SIGINT else ToldToEnd

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # A process that is about to end with its own code is not to be ended by a second signal on the last stretch.
        leaves = self._was_told or not self._is_loading
        for each, before in self._before.items():
            signal.signal(each, signal.SIG_IGN if leaves else before)
