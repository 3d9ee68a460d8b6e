# cython: auto_pickle=True
"""Figures of a run, gathered one by one: percentiles, token gaps, arrivals."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from math import inf

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.trace.facts import StepFacts, Streams, micros
from tokenyard.trace.schema import RequestArrived, RequestFinished
from tokenyard.units import milliseconds

# ---------------------------------------------------------------------------------------------------------------------
# Numbers gathered one by one, and their mean and percentiles.

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_PERCENTS = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}
_STATISTICS = ("mean", *_PERCENTS)
"""Statistics of a latency."""


class LatencyFigures(msgspec.Struct, frozen=True):
    """Milliseconds of everybody who arrived (:mod:`tokenyard.explain.population`); None if nothing was measured."""

    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p95: float | None = None
    max: float | None = None
    censored: tuple[str, ...] = ()
    """Statistics that are lower bounds: they rest on requests, or pauses, that had not ended; shown as ``>=``."""
    never: tuple[str, ...] = ()
    """Names in ``censored`` whose rank falls among refused requests: no number will ever stand there."""
    left_out: int = 0
    """Requests that it leaves out since the trace does not tell of their pauses: it is then of a part, and decides
    nothing."""
    unbounded: int = 0
    """Requests of which is known only that it is at least 0, which says nothing."""

    def is_exact(self, statistic: str) -> bool:
        """Whether it is of everybody, and nothing that is yet to come can change it."""
        return not self.left_out and statistic not in self.censored

    @property
    def says_nothing(self) -> bool:
        """Whether a statistic is a lower bound of 0, and shown as a dash."""
        return any(getattr(self, each) == 0 for each in self.censored)

    def in_words(self, statistic: str) -> str:
        """17.3 ms; with a sign before it where it is a lower bound."""
        return milliseconds(getattr(self, statistic), at_least=statistic in self.censored)


class StepFigures(msgspec.Struct, frozen=True):
    """A quantity per step; None if nothing was measured."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None


class Series:
    """Eight bytes per number. Percentiles interpolate linearly between neighbours."""

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


def latency_figures(
    seconds: FloatArray, *, weights: IntArray | None = None, floors: FloatArray | None = None, left_out: int = 0
) -> LatencyFigures:
    """The figures in milliseconds of numbers in seconds, each of which stands for ``weights`` alike; shape ``[n]``.

    ``floors`` are numbers of which is known only what they are at least; infinite: there will never be one. A statistic
    that they can still raise is the one with what is known, and is named in ``censored``.
    """
    floors = np.empty(0) if floors is None else floors
    least = floors[np.isfinite(floors)]
    num_never = len(floors) - len(least)
    ones = np.ones(len(seconds), np.int64) if weights is None else weights
    known = np.concatenate([seconds, least])
    if not len(known):
        nothing = _STATISTICS if num_never else ()
        return LatencyFigures(censored=nothing, never=nothing, left_out=left_out)
    counts = np.concatenate([ones, np.ones(len(least), np.int64)])
    # Not ``known @ counts``, whose last digit depends on how many processors there are.
    found: dict[str, float] = {"mean": float((known * counts).sum()) / int(counts.sum())}
    never = ["mean"] if num_never else []
    censored = ["mean"] if len(floors) else []
    now = _Ranked(known, counts, num_never)
    later = _Ranked(seconds, ones, len(floors))
    for name, percent in _PERCENTS.items():
        value = now.percentile(percent)
        if value == inf or value != later.percentile(percent):
            censored.append(name)
        if value == inf:
            never.append(name)
            value = float(known.max())
        found[name] = value
    return LatencyFigures(
        **{name: value * 1e3 for name, value in found.items()},
        censored=tuple(name for name in _STATISTICS if name in censored),
        never=tuple(name for name in _STATISTICS if name in never),
        unbounded=int(np.count_nonzero(floors == 0)),
        left_out=left_out,
    )


class _Ranked:
    """Numbers in order, each so many times, and behind them some that are above all bounds."""

    def __init__(self, values: FloatArray, counts: IntArray, num_above: int) -> None:
        order = np.argsort(values, kind="stable")
        self._values = np.append(values[order], inf)
        self._ends = np.append(np.cumsum(counts[order]), 0)
        self._ends[-1] = int(counts.sum()) + num_above

    def percentile(self, percent: float) -> float:
        """The number at a percent of the whole list, between its neighbours where it is none, as :func:`percentile`."""
        position = (int(self._ends[-1]) - 1) * (percent / 100)
        below = int(position)
        part = position - below
        low, high = self._values[np.searchsorted(self._ends, [below, below + 1 if part else below], side="right")]
        if high == inf:
            return inf
        return float(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))


# ---------------------------------------------------------------------------------------------------------------------
# Inter-token latency: the time between two deliveries of tokens to an answer, from the moments at which steps ended.
#
#     moments of steps that sampled   t0   t1   t2   t3   t4   t5
#     an answer of four tokens             began     paused    on     gaps: t2 - t1, t4 - t2, t5 - t4
#
# An answer gets a delivery in every such step from its first token to its end, but for its pauses (preempted, held
# back by a policy, in another stage of a pipeline), which are told as they begin and end. So it is a few runs of steps:
# every gap counts, also those of answers that were cancelled, and of those that have not ended. What has passed since
# the last token of these is a gap that is at least so long. Several tokens at once (accepted drafts) are one delivery,
# as in vLLM's own metric.
#
# Older traces do not tell of pauses. There an answer is known whole if it has as many tokens as there were steps
# between its first and its last; the others are left out, and counted.


class TokenGaps:
    """Eight bytes per step, and 16 per answer and pause."""

    def __init__(self) -> None:
        self._moments = array("d")
        """When steps ended that sampled a token."""
        self._is_known = True
        self._begins, self._lasts = array("q"), array("q")
        """Runs of steps in each of which an answer got tokens: the first and the last."""
        self._flowing: dict[str, int] = {}
        """Answer that gets tokens -> the step with which its run began."""
        self._paused: dict[str, float] = {}
        """Answer that has paused -> the moment of its last token."""
        self._ending: list[tuple[str, float, bool]] = []
        """Answers that have ended and may have a token of the step that is being taken in; when, and whether whole."""
        self._pauses, self._cut_pauses = array("d"), array("d")
        """Seconds of pauses that are over, and of those that were not over when their request ended."""
        self._untold: list[tuple[float, float, int]] = []
        """First token, end and number of tokens of answers whose pauses are not told."""
        self._num_told = 0
        self._engines = [self]
        """This engine's, and those of the engines that were joined to it."""

    def step_completed(self, ts: float | None, sampled: int | None, streams: Streams | None) -> None:
        """A step ended; ``streams``: whose tokens began, paused or went on with it."""
        if ts is None or sampled is None:
            self._is_known = False
            return
        if not sampled:
            return
        at = len(self._moments)
        self._moments.append(ts)
        if streams is not None:
            for request_id in streams.paused:
                self._end_run(request_id, at - 1)
                self._paused[request_id] = self._moments[max(at - 1, 0)]
            for request_id in streams.resumed:
                since = self._paused.pop(request_id, None)
                if since is not None:
                    self._pauses.append(ts - since)
                self._flowing[request_id] = at
            self._flowing.update(dict.fromkeys(streams.began, at))
        self._end_ended()

    def steps_completed(self, moments: Sequence[float], sampled: int) -> None:
        """Steps ended, with a token each for the same answers."""
        if sampled:
            self._moments.extend(moments)

    def request_ended(self, record: RequestFinished, *, is_served: bool) -> None:
        """A request ended; with its last token if it ``is_served``."""
        request_id, tokens = record.req_id or "", record.num_output_tokens or 0
        end, first = record.finished_time, record.first_token_time
        end = record.ts if end is None else end
        if end is not None and (request_id in self._flowing or request_id in self._paused or not self._is_old(record)):
            self._ending.append((request_id, end, is_served))
        elif is_served and tokens > 1 and first is not None and end is not None:
            self._untold.append((first, end, tokens))

    def join(self, other: TokenGaps) -> None:
        """The answers of another engine, too."""
        self._engines += other._engines

    def result(self, now: float | None) -> tuple[LatencyFigures, int]:
        """The figures up to ``now``, and of how many answers they are."""
        parts = [each.parts(now) for each in self._engines]
        gaps, weights, open_pauses = (np.concatenate([part[i] for part in parts]) for i in range(3))
        left_out = sum(part[3] for part in parts)
        number = sum(part[4] for part in parts)
        kept = weights > 0
        figures = latency_figures(gaps[kept], weights=weights[kept], floors=open_pauses, left_out=left_out)
        return figures, number

    def _is_old(self, record: RequestFinished) -> bool:
        """Whether the trace should have told of this answer and has not: it got a token before the last step ended."""
        first, moments = record.first_token_time, self._moments
        return first is not None and bool(moments) and first <= moments[-1]

    def _end_run(self, request_id: str, last: int) -> None:
        begin = self._flowing.pop(request_id, None)
        if begin is not None and last >= begin:
            self._begins.append(begin)
            self._lasts.append(last)

    def _end_ended(self) -> None:
        """A step is over with which, or before which, they ended."""
        for request_id, end, is_served in self._ending:
            since = self._paused.pop(request_id, None)
            self._num_told += since is not None or request_id in self._flowing
            after = bisect_right(self._moments, end)
            if since is None and request_id in self._flowing and not is_served and after:
                since = self._moments[after - 1]
            if since is not None and end > since:
                self._cut_pauses.append(end - since)
            is_next = (
                is_served
                and after < len(self._moments)
                and (not after or self._moments[after] - end < end - self._moments[after - 1])
            )  # an engine notes a token's time a little apart from its step's end
            self._end_run(request_id, after if is_next else after - 1)
        self._ending.clear()

    def parts(self, now: float | None) -> tuple[FloatArray, IntArray, FloatArray, int, int]:
        """Return this engine's gaps, how often each was, pauses that go on, answers left out, answers counted."""
        moments = np.array(self._moments)
        if not self._is_known or len(moments) < 2:
            return np.empty(0), np.empty(0, np.int64), np.empty(0), 0, 0
        self._end_ended()
        begins, lasts = self._runs()
        begins_old, lasts_old, left_out = self._untold_runs(moments)
        begins, lasts = np.concatenate([begins, begins_old]), np.concatenate([lasts, lasts_old])
        ends = np.zeros(len(moments) + 1, np.int64)  # how many answers have a gap that ends here, as differences
        np.add.at(ends, begins + 1, 1)
        np.add.at(ends, lasts + 1, -1)
        pauses = np.array(self._pauses)
        until = float(moments[-1]) if now is None else now
        since = [*self._paused.values(), *([float(moments[-1])] * len(self._flowing))]
        going_on = [until - each for each in since if until > each]
        return (
            np.concatenate([np.diff(moments), pauses]),
            np.concatenate([np.cumsum(ends)[1:-1], np.ones(len(pauses), np.int64)]),
            np.array([*going_on, *self._cut_pauses]),
            left_out,
            self._num_told + len(self._flowing) + len(self._paused) + len(begins_old),
        )

    def _runs(self) -> tuple[IntArray, IntArray]:
        """First and last step of each run; those that go on, up to the last step."""
        begins = np.array([*self._begins, *self._flowing.values()], np.int64)
        lasts = np.full(len(begins), len(self._moments) - 1, np.int64)
        lasts[: len(self._lasts)] = self._lasts
        return begins, lasts

    def _untold_runs(self, moments: FloatArray) -> tuple[IntArray, IntArray, int]:
        """The runs of answers that are known whole though no pause is told, and how many are not."""
        if not self._untold:
            return np.empty(0, np.int64), np.empty(0, np.int64), 0
        tokens_first, ends, counts = (np.array(column) for column in zip(*self._untold, strict=True))
        first, last = _nearest(moments, tokens_first), _nearest(moments, ends)
        is_whole = last - first == counts - 1
        return first[is_whole], last[is_whole], int(np.count_nonzero(~is_whole))


def _nearest(moments: FloatArray, times: FloatArray) -> IntArray:
    """Index of the moment nearest to each: an engine notes a token's time a little apart from its step's end."""
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
        self._gone: dict[str, int] = {}
        """Ended unscheduled in the step during which it arrived, which a trace tells first -> when."""
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
            gone = self._gone.pop(record.req_id, None)
            if gone is None:
                self._unseen[record.req_id] = micros(moment)
            else:
                self.unseen_micros += max(gone - micros(moment), 0)

    def finish(self, record: RequestFinished) -> None:
        """Count a request that ended, perhaps before any step could see it."""
        moment = record.finished_time if record.finished_time is not None else record.ts
        if record.req_id is None or moment is None:
            return
        arrived = self._unseen.pop(record.req_id, None)
        if arrived is not None:
            self.unseen_micros += max(micros(moment) - arrived, 0)
        elif record.first_scheduled_time is None:
            self._gone[record.req_id] = micros(moment)

    @property
    def rows_left(self) -> int:
        """First steps that are yet to come."""
        return STEPS_KEPT - len(self._rows)

    def step(self, facts: StepFacts, unadmitted: int | None) -> None:
        """A step ran."""
        self._gone.clear()
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
