"""How long requests took, from the records of their ends."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from math import nan

import numpy as np

from tokenyard.explain.report.percentiles import LatencyFigures, Series
from tokenyard.explain.report.slo import SLO, Goodput, goodput_of
from tokenyard.explain.report.token_gaps import TokenGaps
from tokenyard.trace.format.schema import RequestFinished

__all__ = ["LatencyCounter"]

_CUT_SHORT = frozenset(("abort", "error"))
"""Finish reasons of requests that did not get what they asked for; they have no end-to-end time."""
_COLUMNS = ("queue", "ttft", "tpot", "e2e")


class LatencyCounter:
    """Waiting, time to the first token, time per further token, between tokens, and end to end."""

    def __init__(self) -> None:
        self.finished = 0
        self.finish_reasons: Counter[str] = Counter()
        self.output_tokens = 0
        self._columns = {name: array("d") for name in _COLUMNS}
        """Seconds of each ended request, NaN where it has none."""
        self._gaps = TokenGaps()

    def add(self, record: RequestFinished) -> None:
        """Take one finished request."""
        self.finished += 1
        self.finish_reasons[record.finish_reason or "unknown"] += 1
        output = record.num_output_tokens or 0
        self.output_tokens += output
        arrival, first_token, end = record.arrival_time, record.first_token_time, record.finished_time
        queue = ttft = tpot = e2e = nan
        if arrival is not None:
            if record.first_scheduled_time is not None:
                queue = record.first_scheduled_time - arrival
            if first_token is not None:
                ttft = first_token - arrival
            if end is not None and record.finish_reason not in _CUT_SHORT:
                e2e = end - arrival
                if first_token is not None and output > 1:
                    tpot = (end - first_token) / (output - 1)
                    self._gaps.request_finished(first_token, end, output)
        for name, seconds in zip(_COLUMNS, (queue, ttft, tpot, e2e), strict=True):
            self._columns[name].append(seconds)

    def step_completed(self, ts: float | None, sampled: int | None) -> None:
        """A step ended, with so many tokens."""
        self._gaps.step_completed(ts, sampled)

    def join(self, other: LatencyCounter) -> None:
        """The requests of another engine, too."""
        self.finished += other.finished
        self.finish_reasons += other.finish_reasons
        self.output_tokens += other.output_tokens
        for name, column in self._columns.items():
            column.extend(other._columns[name])
        self._gaps.join(other._gaps)

    @property
    def queue_ms(self) -> LatencyFigures:
        """Arrival to first scheduled."""
        return self._figures("queue")

    @property
    def ttft_ms(self) -> LatencyFigures:
        """Arrival to first token."""
        return self._figures("ttft")

    @property
    def tpot_ms(self) -> LatencyFigures:
        """Per output token after the first."""
        return self._figures("tpot")

    @property
    def e2e_ms(self) -> LatencyFigures:
        """Arrival to end."""
        return self._figures("e2e")

    @property
    def num_with_tpot(self) -> int:
        """Requests that ``tpot_ms`` is of."""
        return int(np.count_nonzero(~np.isnan(self._columns["tpot"])))

    def itl_ms(self) -> tuple[LatencyFigures, int]:
        """Between two tokens of an answer, and of how many requests that is known."""
        return self._gaps.result()

    def goodput(self, slos: Sequence[SLO], itl: LatencyFigures, seconds: float | None) -> Goodput | None:
        """What came of the bounds in a run of so many seconds."""
        columns = {name: np.array(column) for name, column in self._columns.items()}
        figures = {name: self._figures(name) for name in _COLUMNS} | {"itl": itl}
        return goodput_of(slos, columns, figures, seconds)

    def _figures(self, name: str) -> LatencyFigures:
        values = np.array(self._columns[name])
        return Series.of(values[~np.isnan(values)]).latency()
