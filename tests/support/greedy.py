"""Compilers of grammars that take too much of a process; called in one of its own."""

from __future__ import annotations

import os
import time
from typing import Any

from tokenyard.trace.columnar.child import keep_memory_within

__all__ = ["dies", "grows", "sleeps"]


def sleeps(model: Any, kind: str, value: Any, megabytes: int) -> None:
    """Take for ever."""
    time.sleep(10_000)


def grows(model: Any, kind: str, value: Any, megabytes: int) -> None:
    """Take all memory that there is."""
    keep_memory_within(megabytes)
    held = []
    while True:
        held.append(bytearray(2**24))


def dies(model: Any, kind: str, value: Any, megabytes: int) -> None:
    """End as a library does that is refused memory."""
    os.abort()
