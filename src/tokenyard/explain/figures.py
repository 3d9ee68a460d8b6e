"""Figures of a run, gathered one by one: percentiles, token gaps, arrivals."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.trace.facts import StepFacts, micros
from tokenyard.trace.schema import RequestArrived, RequestFinished

# ---------------------------------------------------------------------------------------------------------------------
# Numbers gathered one by one, and their mean and percentiles.

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_PERCENTS = (50, 90, 99, 95, 100)
"""Percentiles of latencies, in the order of :class:`LatencyFigures`."""


class LatencyFigures(msgspec.Struct, frozen=True):
    """Milliseconds; None if nothing was measured."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p95: float | None = None
    max: float | None = None


class StepFigures(msgspec.Struct, frozen=True):
    """A quantity per step; None if nothing was measured."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None


class Series:
    """Eight bytes per number. Percentiles interpolate linearly between neighbours."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values = array("d")

    @classmethod
    def of(cls, values: FloatArray) -> Series:
        """The numbers of an array, shape ``[n]``."""
        series = cls()
        series._values.frombytes(values.tobytes())
        return series

    def add(self, value: float, times: int = 1) -> None:
        """Add a number, or the same number several times."""
        if times == 1:
            self._values.append(value)
        else:
            self._values.extend([value] * times)

    def join(self, other: Series) -> None:
        """The numbers of another series, too."""
        self._values.extend(other._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def sum(self) -> float:
        return float(np.sum(np.asarray(self._values)))

    @property
    def max(self) -> float | None:
        return max(self._values, default=None)

    def latency(self) -> LatencyFigures:
        """The figures in milliseconds, of numbers in seconds."""
        return _milliseconds(self._summary(*_PERCENTS))

    def spread(self) -> StepFigures:
        """The figures in the numbers' own unit."""
        return StepFigures(*self._summary(50, 95))

    def _summary(self, *percents: float) -> list[float | None]:
        """Mean, then the percentiles."""
        if not self._values:
            return [None] * (1 + len(percents))
        values = np.asarray(self._values)
        mean = float(values.mean())
        values = np.sort(values)
        return [mean, *(percentile(values, percent) for percent in percents)]


def percentile(ascending: Sequence[float] | FloatArray, percent: float) -> float:
    """What ``numpy.percentile`` says, to the last bit, which would load NumPy's masked arrays for it.

    ``ascending`` has at least one number.
    """
    position = (len(ascending) - 1) * (percent / 100)
    below = int(position)
    part = position - below
    low = float(ascending[below])
    high = float(ascending[min(below + 1, len(ascending) - 1)])
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


class WeightedSeries:
    """Numbers that stand for several alike each; the same figures as of a :class:`Series` with every one of them."""

    __slots__ = ("_values", "_weights")

    def __init__(self) -> None:
        self._values: list[FloatArray] = []
        self._weights: list[IntArray] = []

    def add(self, values: FloatArray, weights: IntArray) -> None:
        """Numbers, each so many times; both of shape ``[n]``."""
        kept = weights > 0
        self._values.append(values[kept])
        self._weights.append(weights[kept])

    def join(self, other: WeightedSeries) -> None:
        """The numbers of another series, too."""
        self._values += other._values
        self._weights += other._weights

    def latency(self) -> LatencyFigures:
        """The figures in milliseconds, of numbers in seconds."""
        values = np.concatenate([*self._values, np.empty(0)])
        weights = np.concatenate([*self._weights, np.empty(0, np.int64)])
        if not len(values):
            return LatencyFigures()
        order = np.argsort(values, kind="stable")
        values, ends = values[order], np.cumsum(weights[order])
        count = int(ends[-1])
        # Not ``values @ weights``, whose last digit depends on how many processors there are.
        mean = float((values * weights[order]).sum()) / count
        return _milliseconds([mean, *(_between(values, ends, percent * (count - 1) / 100) for percent in _PERCENTS)])


def _between(values: FloatArray, ends: IntArray, position: float) -> float:
    """The number at a position of the whole list, between its neighbours where it is none."""
    low = int(position)
    first, second = np.searchsorted(ends, [low, min(low + 1, int(ends[-1]) - 1)], side="right")
    return float(values[first] + (position - low) * (values[second] - values[first]))


def _milliseconds(seconds: list[float | None]) -> LatencyFigures:
    return LatencyFigures(*(None if value is None else value * 1e3 for value in seconds))


# ---------------------------------------------------------------------------------------------------------------------
# Inter-token latency: the time between two tokens of one answer, from the moments at which steps ended.
#
#     moments of steps that sampled   t0   t1   t2   t3   t4   t5
#     an answer of four tokens             first             last    its gaps: t2 - t1, t3 - t2, t4 - t3
#
# An answer that got a token in every such step between its first and its last is known whole by those two moments and
# its number of tokens. One that paused (preempted, skipped, in a pipeline) or got several tokens at once (drafts)
# is not: when its tokens came is not recorded, so it is left out, and the caller counts it.


class TokenGaps:
    """Eight bytes per step, and 24 per request."""

    def __init__(self) -> None:
        self._moments = array("d")
        """When steps ended that sampled a token."""
        self._first = array("d")
        self._last = array("d")
        self._tokens = array("q")
        self._is_known = True
        self._others = WeightedSeries()
        """Gaps of other engines."""
        self._num_others = 0

    def step_completed(self, ts: float | None, sampled: int | None) -> None:
        """A step ended."""
        if ts is None or sampled is None:
            self._is_known = False
        elif sampled:
            self._moments.append(ts)

    def steps_completed(self, moments: Sequence[float], sampled: int) -> None:
        """Steps ended, with as many tokens each."""
        if sampled:
            self._moments.extend(moments)

    def request_finished(self, first_token: float, end: float, num_tokens: int) -> None:
        """A request got two tokens or more, the first and the last at these moments."""
        self._first.append(first_token)
        self._last.append(end)
        self._tokens.append(num_tokens)

    def join(self, other: TokenGaps) -> None:
        """The answers of another engine, too."""
        gaps, number = other._gaps()
        self._others.join(gaps)
        self._num_others += number

    def result(self) -> tuple[LatencyFigures, int]:
        """The figures, and of how many requests they are."""
        gaps, number = self._gaps()
        return gaps.latency(), number

    def _gaps(self) -> tuple[WeightedSeries, int]:
        series, number = WeightedSeries(), self._num_others
        series.join(self._others)
        if not self._is_known or len(self._moments) < 2 or not self._tokens:
            return series, number
        moments = np.array(self._moments)
        first, last = _nearest(moments, self._first), _nearest(moments, self._last)
        is_whole = last - first == np.array(self._tokens) - 1
        ends = np.zeros(len(moments), np.int64)  # how many answers have a gap that ends here, as differences
        np.add.at(ends, first[is_whole] + 1, 1)
        after = last[is_whole] + 1
        np.add.at(ends, after[after < len(moments)], -1)
        series.add(np.diff(moments), np.cumsum(ends)[1:])
        return series, number + int(np.count_nonzero(is_whole))


def _nearest(moments: FloatArray, wanted: array[float]) -> IntArray:
    """Index of the moment nearest to each: an engine notes a token's time a little apart from its step's end."""
    times = np.array(wanted)
    after = np.clip(np.searchsorted(moments, times), 1, len(moments) - 1)
    is_before = times - moments[after - 1] < moments[after] - times
    return np.where(is_before, after - 1, after)


# ---------------------------------------------------------------------------------------------------------------------
# Who was there when the first steps ran.
#
# A first step that schedules few requests and leaves budget over looks like a scheduler that holds requests back.
# Often the others had simply not arrived; this says so, with numbers.

STEPS_KEPT = 8
"""First steps that are kept, one row each."""


class ArrivalRow(msgspec.Struct, frozen=True):
    """One of the first steps."""

    step: int
    ts: float | None
    arrived: int
    """Requests that had arrived when it ran."""
    admitted: int
    left_waiting: int | None
    tokens: int | None
    token_budget: int | None


class Arrivals(msgspec.Struct, frozen=True):
    """Arrivals against the first steps."""

    total: int
    """Requests that arrived during the whole trace."""
    not_arrived_at_first_step: int
    last_arrival_step: int | None
    """First step at which all had arrived."""
    first_steps: list[ArrivalRow]
    """The first eight."""
    explanation: str | None
    """A sentence, when the first step left budget over because the others came later: within the first eight steps, or
    so few that one step could have taken them all."""


class ArrivalsCounter:
    """Counts arrivals, and how long they went unseen: until the next step began."""

    def __init__(self) -> None:
        self.arrived = 0
        self.unseen_micros = 0
        """Time between arrivals and the first snapshot that could show them, over all requests."""
        self._unseen: dict[str, int] = {}
        """Arrived since the last step -> when."""
        self._since = 0
        self._prompt_tokens: int | None = 0
        """Prompt tokens of all that arrived; None if one does not say."""
        self._most_running: int | None = None
        self._last_step: int | None = None
        self._rows: list[ArrivalRow] = []

    def arrive(self, record: RequestArrived) -> None:
        """Count a request that has arrived."""
        self.arrived += 1
        self._since += 1
        if self._prompt_tokens is not None:
            prompt = record.num_prompt_tokens
            self._prompt_tokens = None if prompt is None else self._prompt_tokens + prompt
        moment = record.arrival_time if record.arrival_time is not None else record.ts
        if record.req_id is not None and moment is not None:
            self._unseen[record.req_id] = micros(moment)

    def finish(self, record: RequestFinished) -> None:
        """A request ended, perhaps before any step could see it."""
        arrived = self._unseen.pop(record.req_id or "", None)
        moment = record.finished_time if record.finished_time is not None else record.ts
        if arrived is not None and moment is not None:
            self.unseen_micros += max(micros(moment) - arrived, 0)

    @property
    def rows_left(self) -> int:
        """First steps that are yet to come."""
        return STEPS_KEPT - len(self._rows)

    def step(self, facts: StepFacts, unadmitted: int | None) -> None:
        """A step ran."""
        if self._since:
            self._since = 0
            self._last_step = facts.step
            if facts.ts is not None:
                now = micros(facts.ts)
                self.unseen_micros += sum([max(now - arrived, 0) for arrived in self._unseen.values()])
                self._unseen.clear()
        if not self._rows:
            self._most_running = facts.max_running
        if len(self._rows) < STEPS_KEPT:
            admitted = (facts.num_new or 0) + (facts.num_resumed or 0)
            self._rows.append(
                ArrivalRow(
                    facts.step, facts.ts, self.arrived, admitted, unadmitted, facts.token_sum, facts.token_budget
                )
            )

    def join(self, other: ArrivalsCounter) -> None:
        """The arrivals at another engine, too; first steps are those of one engine, and are forgotten."""
        self.arrived += other.arrived
        self.unseen_micros += other.unseen_micros
        self._rows, self._last_step = [], None

    def result(self) -> Arrivals:
        """Arrivals so far."""
        first = self._rows[0] if self._rows else None
        missing = self.arrived - first.arrived if first is not None else 0
        return Arrivals(self.arrived, missing, self._last_step, list(self._rows), self._explanation(missing))

    def _fits_one_step(self, token_budget: int) -> bool:
        """Whether a single step could have taken every request there ever was."""
        tokens, most = self._prompt_tokens, self._most_running
        return tokens is not None and tokens <= token_budget and most is not None and self.arrived <= most

    def _explanation(self, missing: int) -> str | None:
        first = self._rows[0] if self._rows else None
        if first is None or missing <= 0 or first.left_waiting != 0:
            return None
        if first.tokens is None or first.token_budget is None or first.tokens >= first.token_budget:
            return None
        if self._last_step is None:
            return None
        if self._last_step > self._rows[-1].step and not self._fits_one_step(first.token_budget):
            return None  # requests went on arriving: the first step cannot have them all
        left = first.token_budget - first.tokens
        return (
            f"Step {first.step} scheduled every request there was ({first.arrived:,} of {self.arrived:,}) and left "
            f"{left:,} of {first.token_budget:,} tokens unused because the queue was empty: "
            f"the other {missing:,} had not arrived. All had arrived when step {self._last_step} ran."
        )
