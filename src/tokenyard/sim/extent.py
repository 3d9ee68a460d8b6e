"""How much of a workload a replay runs, which part of it counts, and how it ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from math import inf

import msgspec

from tokenyard.arguments import is_number
from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass
from tokenyard.sim.traffic import ClientSessions, OnProgress, Progress

_SECONDS_PER_LINE = 0.1


class EndedBy(StrEnum):
    """Why a replay ended."""

    WORKLOAD = "workload"
    """All requests have ended."""
    UNTIL = "until"
    """Its time was over."""
    ON_PROGRESS = "on_progress"
    """``on_progress`` returned "stop"."""


class Extent(msgspec.Struct, frozen=True):
    """From when on requests count, and when the replay ends; in seconds of virtual time."""

    warmup: float = 0.0
    until: float = inf

    @classmethod
    def of(cls, warmup: float, until: float | None) -> Extent:
        """Raises ConfigError for what is no time."""
        if not is_number(warmup):
            raise ConfigError("warmup", warmup, "give seconds from the start of the workload, not negative")
        if until is None:
            return cls(float(warmup))
        if isinstance(until, bool) or not isinstance(until, int | float) or not until > warmup:
            raise ConfigError("until", until, f"give seconds from the start of the workload, above warmup ({warmup:g})")
        return cls(float(warmup), float(until))

    def reaches(self, moment: float, *, may_be_last: bool) -> bool:
        """Whether something that is to happen at that moment still does: at the very last one, where it may."""
        return moment < self.until or (may_be_last and moment == self.until)

    def ended_by(self, traffic: ClientSessions, *, out_of_time: bool) -> EndedBy:
        """Why the replay has ended."""
        if not traffic.unfinished and not traffic.num_not_arrived:
            return EndedBy.WORKLOAD
        return EndedBy.ON_PROGRESS if traffic.is_stopped and not out_of_time else EndedBy.UNTIL


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """What a replay that ended before its workload has left undone."""

    ended_by: EndedBy = EndedBy.WORKLOAD
    """Why it ended: everything was done, ``until`` was reached, or ``on_progress`` returned ``"stop"``."""
    unfinished: tuple[str, ...] = ()
    """Requests that had arrived and not ended."""
    num_not_arrived: int = 0
    """Requests that were still to come."""


@contextmanager
def shown_progress(on_progress: OnProgress | None, num_requests: int, *, shown: bool) -> Iterator[OnProgress | None]:
    """``on_progress``, with a line on standard error beside it if it is to be ``shown``."""
    if not shown:
        yield on_progress
        return
    line = _Line(on_progress, num_requests)
    try:
        yield line
    finally:
        line.close()


class _Line:
    """One line that is written anew ten times a second."""

    def __init__(self, on_progress: OnProgress | None, num_requests: int) -> None:
        self._on_progress = on_progress
        self._num_requests = num_requests
        self._next = 0.0
        self._last = ""

    def __call__(self, progress: Progress) -> object:
        text = (
            f"{progress.num_done:,} of {self._num_requests:,} requests, {progress.now:,.1f} s, "
            f"{progress.steps:,} steps, {progress.num_running:,} running, {progress.num_waiting:,} waiting"
        )
        if time.monotonic() >= self._next:
            self._write(text)
        self._last = text
        return None if self._on_progress is None else self._on_progress(progress)

    def _write(self, text: str) -> None:
        self._next = time.monotonic() + _SECONDS_PER_LINE
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()

    def close(self) -> None:
        """The last state stays."""
        if self._last:
            self._write(self._last)
            sys.stderr.write("\n")
