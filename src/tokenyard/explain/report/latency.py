"""How long requests took, from the records of their ends."""

from __future__ import annotations

from collections import Counter

from tokenyard.explain.report.percentiles import LatencyFigures, Series
from tokenyard.trace.format.schema import RequestFinished

__all__ = ["LatencyCounter"]

_CUT_SHORT = frozenset(("abort", "error"))
"""Finish reasons of requests that did not get what they asked for; they have no end-to-end time."""


class LatencyCounter:
    """Waiting, time to the first token, time per further token, and end to end."""

    def __init__(self) -> None:
        self.finished = 0
        self.finish_reasons: Counter[str] = Counter()
        self.output_tokens = 0
        self._queue = Series()
        self._ttft = Series()
        self._tpot = Series()
        self._e2e = Series()

    def add(self, record: RequestFinished) -> None:
        """Take one finished request."""
        self.finished += 1
        self.finish_reasons[record.finish_reason or "unknown"] += 1
        output = record.num_output_tokens or 0
        self.output_tokens += output
        arrival, first_token, end = record.arrival_time, record.first_token_time, record.finished_time
        if arrival is None:
            return
        if record.first_scheduled_time is not None:
            self._queue.add(record.first_scheduled_time - arrival)
        if first_token is not None:
            self._ttft.add(first_token - arrival)
        if end is None or record.finish_reason in _CUT_SHORT:
            return
        self._e2e.add(end - arrival)
        if first_token is not None and output > 1:
            self._tpot.add((end - first_token) / (output - 1))

    def join(self, other: LatencyCounter) -> None:
        """The requests of another engine, too."""
        self.finished += other.finished
        self.finish_reasons += other.finish_reasons
        self.output_tokens += other.output_tokens
        for mine, theirs in (
            (self._queue, other._queue),
            (self._ttft, other._ttft),
            (self._tpot, other._tpot),
            (self._e2e, other._e2e),
        ):
            mine.join(theirs)

    @property
    def queue_ms(self) -> LatencyFigures:
        """Arrival to first scheduled."""
        return self._queue.latency()

    @property
    def ttft_ms(self) -> LatencyFigures:
        """Arrival to first token."""
        return self._ttft.latency()

    @property
    def tpot_ms(self) -> LatencyFigures:
        """Per output token after the first."""
        return self._tpot.latency()

    @property
    def e2e_ms(self) -> LatencyFigures:
        """Arrival to end."""
        return self._e2e.latency()
