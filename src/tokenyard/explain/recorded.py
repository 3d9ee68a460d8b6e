"""The recorded reasons, added up: how many steps each held requests back, how many requests, for how long."""

from __future__ import annotations

from collections import Counter

import msgspec

from tokenyard.trace.schema import AdmissionOutcome, KVNumbers

__all__ = ["KVMeans", "RecordedReason", "RecordedReasons"]


class KVMeans(msgspec.Struct, frozen=True):
    """Mean numbers, in blocks, over the steps in which this KV check stopped admission."""

    needed: float
    """By the head of the queue."""
    free: float
    cached_hits: float
    """Of ``needed``: free blocks that hold the head's own cached prefix."""
    reserved: float
    watermark: float
    smallest_need: float | None
    """By the smallest waiting request."""
    smaller_would_fit_steps: int
    """Steps in which the smallest waiting request needed no more than was free."""


class RecordedReason(msgspec.Struct, frozen=True):
    """What one reason cost."""

    steps: int
    """Steps in which it held back at least one request."""
    requests: int
    """Requests it held back, added over the steps."""
    seconds: float
    """Request-seconds lost: each step's duration times the requests it held back."""
    kv: KVMeans | None = None
    """For ``kv_*`` reasons."""


class _KVSums:
    """Sums of the numbers of one KV check."""

    def __init__(self) -> None:
        self.steps = self.needed = self.free = self.cached_hits = self.reserved = self.watermark = 0
        self.smallest_steps = self.smallest = self.fits = 0

    def add(self, kv: KVNumbers, smallest: int | None) -> None:
        free = kv.free or 0
        self.steps += 1
        self.needed += kv.needed or 0
        self.free += free
        self.cached_hits += kv.cached_hits or 0
        self.reserved += kv.reserved or 0
        self.watermark += kv.watermark or 0
        if smallest is not None:
            self.smallest_steps += 1
            self.smallest += smallest
            self.fits += smallest <= free

    def means(self) -> KVMeans:
        n = self.steps
        return KVMeans(
            needed=self.needed / n,
            free=self.free / n,
            cached_hits=self.cached_hits / n,
            reserved=self.reserved / n,
            watermark=self.watermark / n,
            smallest_need=self.smallest / self.smallest_steps if self.smallest_steps else None,
            smaller_would_fit_steps=self.fits,
        )


class RecordedReasons:
    """Adds up outcomes."""

    def __init__(self) -> None:
        self._steps: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._kv: dict[str, _KVSums] = {}

    def add(self, outcome: AdmissionOutcome, seconds: float) -> None:
        """Take one step's outcome; ``seconds`` is the step's duration."""
        held: dict[str, int] = {}
        reason = outcome.reason
        if reason is not None and outcome.num_requests:
            held[reason] = outcome.num_requests
            if outcome.kv is not None:
                self._kv.setdefault(reason, _KVSums()).add(outcome.kv, outcome.smallest_need)
        for counts in (outcome.skipped_counts, outcome.not_scheduled_counts):
            if counts:
                for name, count in counts.items():
                    held[name] = held.get(name, 0) + count
        for name, count in held.items():
            self._steps[name] += 1
            self._requests[name] += count
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds * count

    def result(self) -> dict[str, RecordedReason]:
        """Most time lost first."""
        names = sorted(self._steps, key=lambda name: (-self._seconds[name], -self._requests[name], name))
        return {
            name: RecordedReason(
                self._steps[name],
                self._requests[name],
                self._seconds[name],
                self._kv[name].means() if name in self._kv else None,
            )
            for name in names
        }
