"""Who is told how far a question has come, and what is to be said beside its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tokenyard.sim.traffic import Progress

__all__ = ["Bars", "OnProgress", "Say", "bars_of", "nothing"]

OnProgress = Callable[[Progress], None]
"""Called with the state of a replay, now and then."""
Bars = Callable[[int, str], AbstractContextManager[OnProgress | None]]
"""Number of requests, and what is replayed, if it is not the run itself -> whom to tell, as long as that lasts."""
Say = Callable[[str], None]
"""Called with a sentence that somebody should read."""


def nothing(_: str) -> None:
    """Nobody reads it."""


def bars_of(progress: OnProgress | None) -> Bars:
    """The same function for every replay."""

    @contextmanager
    def bar(_: int, __: str) -> Iterator[OnProgress | None]:
        yield progress

    return bar
