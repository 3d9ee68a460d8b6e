"""A scheduler belongs to one thread. In debug mode its calls check that; otherwise nobody asks, and nothing costs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["OneThread"]


class OneThread:
    """Knows the thread that made the first call."""

    def __init__(self) -> None:
        self._owner: threading.Thread | None = None

    def guard(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, with RuntimeError in any other thread before it does anything.

        Once the first thread has ended, another may go on.
        """

        @wraps(call)
        def guarded(*args: Any, **options: Any) -> Any:
            owner = self._owner
            if owner is None or owner.ident != threading.get_ident():
                self._change_hands(owner, call.__name__)
            return call(*args, **options)

        return guarded

    def _change_hands(self, owner: threading.Thread | None, called: str) -> None:
        thread = threading.current_thread()
        if owner is not None and owner.is_alive():
            text = f"{called}() was called in thread {thread.name!r}, and the scheduler is used in {owner.name!r}"
            raise RuntimeError(f"{text}: it is not thread-safe; use EngineCore.submit() and submit_abort() from others")
        self._owner = thread
