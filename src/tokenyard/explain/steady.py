"""Whether a run is a steady state: what arrives beside what is served, and whether the queue only grows.

    arrivals   |a  a a   a  a a  a   a a  a|                 the last one
    answers       |========|  ...             |=======|
               <------- span ------------->  <- drain ->
               <- third -><- the rest ---->   in which the number of waiting requests must not grow

A queue that is busy but keeps up grows and shrinks by chance; so the growth that counts is more than chance makes of so
many arrivals and ends (three standard deviations of their own counts), and more than a share of what arrived. A log
that lasts hardly longer than its answers shows neither: what it fills is never seen to empty.
"""

from __future__ import annotations

from array import array
from enum import StrEnum
from math import isnan, nan, sqrt

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.explain.population import CANCELLED, SERVED, AttemptLinks, joined_to_users, outcomes_of
from tokenyard.trace.facts import attempt_before
from tokenyard.trace.schema import RequestArrived, RequestFinished
from tokenyard.units import duration

FloatArray = npt.NDArray[np.float64]

FEWEST_ARRIVALS = 20
"""Arrivals without which there is no rate to speak of: it would be a matter of luck by a quarter of itself."""
ANSWERS_LONG = 3.0
"""Times the mean answer that arrivals have to go on for: in the first third the run fills, afterwards it shows."""
_LEAST_GROWTH = 0.05
"""Share of what arrives that has to be left behind for a queue to be called growing."""
_SIGMAS = 3.0
_BINS = 16
"""Stretches in which arrivals and ends are counted, to know how much chance there is in them."""
_LEAST_DISPERSION = 0.1
"""Variance of a count over its mean that is taken for granted, however regular it looks."""


_FALLEN_BEHIND = 0.25
"""Part of the arrivals that waits at the last one, from which on a short run is said to fall behind."""


_GIVEN_UP = 0.25
"""Part of the arrivals that is cancelled, from which on a run is overloaded whether its queue grows or not."""


class LoadState(StrEnum):
    """What a run says of the load that it was put under."""

    STEADY = "steady"
    """The queue does not grow: what arrives is served."""
    OVERLOADED = "overloaded"
    """The queue grows as long as requests arrive, or only so does not that many clients give up."""
    SHORT = "short"
    """Requests arrive for too short a time to tell: beside how long answers take, or beside what chance makes of them.
    """


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What arrives, beside what is served at the same time: after the first third of the arrivals, until the last."""

    offered_requests_per_s: float | None = None
    """Requests that arrive per second; None where all arrive at once."""
    offered_output_tokens_per_s: float | None = None
    """Tokens of their answers; None where one of them has not ended, or clients give up."""
    served_requests_per_s: float | None = None
    """Requests that end per second."""
    served_output_tokens_per_s: float | None = None
    """Tokens of the answers that end."""
    arrivals: int = 0
    """Requests that arrived, in the whole run."""
    span_s: float | None = None
    """Seconds from the first arrival to the last one that follows no other request's end."""
    drain_s: float | None = None
    """Seconds from that last arrival to the last end; None where a request has not ended."""
    answer_s: float | None = None
    """Mean seconds of an answer, without its queueing."""
    session_s: float | None = None
    """Mean seconds from the beginning of a session to the end of its last turn, without queueing; None without turns
    that follow each other."""
    waiting: tuple[int, int] | None = None
    """Requests that had arrived and were not scheduled yet, a third into the arrivals and at the last one; None where
    some have not ended."""
    in_system: tuple[int, int] | None = None
    """Requests that had arrived and not ended, at the same moments."""
    cancelled: int = 0
    """How many of those that came in that time were cancelled: clients that give up keep a queue short."""
    state: LoadState | None = None
    """None where there are too few arrivals to have a rate, or all come at once."""

    @property
    def is_overloaded(self) -> bool:
        return self.state is LoadState.OVERLOADED

    @property
    def falls_behind(self) -> bool:
        """Whether a quarter of all arrivals wait at the last one, in a run too short to tell whether that goes on."""
        waits = 0 if self.waiting is None else self.waiting[1]
        return self.state is LoadState.SHORT and waits >= _FALLEN_BEHIND * self.arrivals and (self.excess or 0.0) > 1

    @property
    def excess(self) -> float | None:
        """How many times what is served arrives; None where either is not known."""
        offered, served = self.offered_requests_per_s, self.served_requests_per_s
        return offered / served if offered is not None and served else None

    @property
    def answers_long(self) -> float | None:
        """How many times the mean answer, or session, arrivals go on for."""
        longest = max(self.answer_s or 0.0, self.session_s or 0.0)
        return self.span_s / longest if longest and self.span_s is not None else None

    def __str__(self) -> str:
        """``12.4 requests/s arrive, 4.2 are served: the queue grows, 105 to 378 waiting``."""
        if self.offered_requests_per_s is None:
            return f"{self.arrivals:,} requests at once"
        said = f"{rate_in_words(self.offered_requests_per_s)} requests/s"
        if self.offered_output_tokens_per_s is not None:
            said += f" for {self.offered_output_tokens_per_s:,.0f} output tokens/s"
        said += f" arrive, {rate_in_words(self.served_requests_per_s or 0.0)} are served meanwhile"
        if self.state is LoadState.OVERLOADED:
            if self.cancelled:
                return f"{said}: {self.cancelled:,} of those are cancelled"
            numbers, what = (self.in_system, "unfinished") if self.waiting is None else (self.waiting, "waiting")
            return (
                said + ": the queue grows" + ("" if numbers is None else f", {numbers[0]:,} to {numbers[1]:,} {what}")
            )
        if self.state is LoadState.SHORT and self.span_s is not None and self.answer_s is not None:
            longest = max((self.answer_s, "answers"), (self.session_s or 0.0, "sessions"))
            return f"{said}; too short to tell: {duration(self.span_s)}, {longest[1]} take {duration(longest[0])}"
        return said


def rate_in_words(per_s: float) -> str:
    """``12.1``, ``0.164``, ``1,204``: three digits, for a rate beside another."""
    return f"{per_s:,.0f}" if per_s >= 1000 else f"{per_s:.3g}"


# ---------------------------------------------------------------------------------------------------------------------
# The test itself, of moments alone.


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    """When requests came, were first scheduled and ended; ascending, in seconds."""

    arrivals: FloatArray
    scheduled: FloatArray | None
    """None where it is not known of all, since some have not ended."""
    ends: FloatArray
    """When requests ended, or went away."""


def load_state(
    moments: Moments, last: float, answer_s: float | None, session_s: float | None = None
) -> LoadState | None:
    """What the moments up to the last arrival, ``last``, say, with the means of answers and sessions.

    A queue can be seen to grow while sessions have not reached their full number, but not to stay as it is.
    """
    arrivals = moments.arrivals[moments.arrivals <= last]
    if len(arrivals) < FEWEST_ARRIVALS or last <= arrivals[0]:
        return None
    span = last - float(arrivals[0])
    if answer_s is None or span < ANSWERS_LONG * answer_s:
        return LoadState.SHORT
    third = last - span * 2 / 3
    explained = answer_s / span  # a load that rises has more answers under way, and no queue for all that
    in_system = _Growth(arrivals, moments.ends, third, last)
    waiting = None if moments.scheduled is None else _Growth(arrivals, moments.scheduled, third, last)
    if in_system.is_certain(_LEAST_GROWTH + explained) or (waiting is not None and waiting.is_certain(_LEAST_GROWTH)):
        return LoadState.OVERLOADED
    if session_s is not None and span < ANSWERS_LONG * session_s:
        return LoadState.SHORT
    may_grow = in_system.is_more(_LEAST_GROWTH + explained) if waiting is None else waiting.is_more(_LEAST_GROWTH)
    return LoadState.SHORT if may_grow else LoadState.STEADY


class _Growth:
    """How many more came than left between two moments, and how much of that may be chance."""

    def __init__(self, arrivals: FloatArray, leaves: FloatArray, start: float, stop: float) -> None:
        edges = np.linspace(start, stop, _BINS + 1)
        came, left = (_counts(each, edges) for each in (arrivals, leaves))
        self._came = int(came.sum())
        self._grown = self._came - int(left.sum())
        chance = _dispersion(came) + _dispersion(left)
        self._sigma = sqrt(max(self._came, 1) * chance)

    def is_certain(self, share: float) -> bool:
        """Whether it is more than chance, and more than this share of what came."""
        return self._grown > _SIGMAS * self._sigma and self.is_more(share)

    def is_more(self, share: float) -> bool:
        """Whether it is more than this share of what came, by chance or not."""
        return self._grown > share * self._came


def _counts(moments: FloatArray, edges: FloatArray) -> FloatArray:
    return np.diff(np.searchsorted(moments, edges, side="right")).astype(np.float64)


def _dispersion(counts: FloatArray) -> float:
    """Variance over mean: 1 of a Poisson process, 0 of a clock, more of bursts."""
    mean = float(counts.mean())
    return max(float(counts.var(ddof=1)) / mean if mean else 0.0, _LEAST_DISPERSION)


def _numbers_at(arrivals: FloatArray, leaves: FloatArray | None, *at: float) -> tuple[int, int] | None:
    """How many had come and not left at two moments."""
    if leaves is None:
        return None
    left, right = (
        int(np.searchsorted(arrivals, each, "right") - np.searchsorted(leaves, each, "right")) for each in at
    )
    return left, right


# ---------------------------------------------------------------------------------------------------------------------
# Gathered from what a recorder tells, of one engine or several.


class LoadCounter:
    """Keeps 48 bytes of every request, and a list of every job."""

    def __init__(self) -> None:
        self._firsts = array("d")
        """Arrivals of requests that follow no other one's end."""
        self._again: dict[str, float] = {}
        """The same of requests that are called as one that is sent again."""
        self._links = AttemptLinks()
        self._open: dict[str, float] = {}
        """Arrived and not ended -> when."""
        self._early: set[str] = set()
        """Told to have ended, and not yet to have arrived: a trace names both at the step that follows."""
        self._ended = {name: array("d") for name in ("arrival", "scheduled", "end", "tokens", "outcome")}
        self._jobs: dict[str, _Session] = {}
        self._with_turns: set[str] = set()
        """Jobs of which one request follows another's end."""

    def arrive(self, record: RequestArrived) -> None:
        """Count a request that has arrived."""
        moment = record.arrival_time if record.arrival_time is not None else record.ts
        if moment is None or record.req_id is None:
            return
        if record.req_id in self._early:
            self._early.discard(record.req_id)
            return
        self._open[record.req_id] = moment
        if not record.after:
            self._note_first(record.req_id, moment)
        if record.job_id is None:
            return
        if record.after:
            self._with_turns.add(record.job_id)
        if record.job_id not in self._jobs:
            self._jobs[record.job_id] = _Session(moment)

    def finish(self, record: RequestFinished) -> None:
        """Count a request that has ended."""
        arrival = self._open.pop(record.req_id or "", None)
        end = record.finished_time if record.finished_time is not None else record.ts
        if arrival is None and record.arrival_time is not None:
            arrival = record.arrival_time
            self._note_first(record.req_id or "", arrival)
            self._early.add(record.req_id or "")
        if arrival is None or end is None:
            return
        scheduled = end if record.first_scheduled_time is None else record.first_scheduled_time
        outcome = int(outcomes_of([record.finish_reason or "unknown"])[0])
        self._links.ended(record.req_id or "", len(self._ended["arrival"]), outcome)
        told = (arrival, scheduled, end, record.num_output_tokens or 0, outcome)
        for column, value in zip(self._ended.values(), told, strict=True):
            column.append(value)
        job = None if record.job_id is None else self._jobs.get(record.job_id)
        if job is not None:
            job.add(end, scheduled - arrival)

    def _note_first(self, request_id: str, moment: float) -> None:
        if attempt_before(request_id) is None:
            self._firsts.append(moment)
        else:
            self._again[request_id] = moment

    def join(self, other: LoadCounter) -> None:
        """Count the requests of another engine, too."""
        self._firsts.extend(other._firsts)
        self._again |= other._again
        self._links.join(other._links, len(self._ended["arrival"]))
        self._open |= other._open
        for name, column in self._ended.items():
            column.extend(other._ended[name])
        self._with_turns |= other._with_turns
        for name, job in other._jobs.items():
            mine = self._jobs.setdefault(name, _Session(job.begun))
            mine.begun = min(mine.begun, job.begun)
            mine.add(job.ended, job.queued)

    def result(self) -> Load:
        """Return what has arrived beside what was served."""
        ended = len(self._ended["arrival"])
        came = np.concatenate([np.array(self._ended["arrival"]), np.array(list(self._open.values()))])
        is_last = joined_to_users(self._links.pairs((name, row) for row, name in enumerate(self._open, ended)), came)
        arrival, unfinished = came[:ended][is_last[:ended]], came[ended:]
        scheduled, end, tokens, outcome = (
            np.array(self._ended[name])[is_last[:ended]] for name in ("scheduled", "end", "tokens", "outcome")
        )
        served = (outcome == SERVED).astype(np.float64)
        moments = Moments(
            arrivals=np.sort(np.concatenate([arrival, unfinished])),
            scheduled=None if len(unfinished) else np.sort(scheduled),
            ends=np.sort(end),
        )
        answer = _mean((end - scheduled)[served > 0])
        session = _mean(np.array([job.lasted for name, job in self._jobs.items() if name in self._with_turns]))
        known = Load(arrivals=len(moments.arrivals), answer_s=answer, session_s=session)
        firsts = [*self._firsts, *(each for name, each in self._again.items() if not self._links.goes_on(name))]
        if not firsts:
            return known
        first, last = float(moments.arrivals[0]), max(firsts)
        third, seconds = first + (last - first) / 3, (last - first) * 2 / 3

        def rate(when: FloatArray, what: FloatArray | float = 1.0) -> float | None:
            return float((what * ((when > third) & (when <= last))).sum()) / seconds if seconds > 0 else None

        number = int(((moments.arrivals > third) & (moments.arrivals <= last)).sum())
        # By when they came: clients wait, and the last of them may go when no more arrive.
        cancelled = int(((outcome == CANCELLED) & (arrival > third) & (arrival <= last)).sum())
        state = load_state(moments, last, answer, session)
        gives_up = state is not None and cancelled >= max(_GIVEN_UP * number, FEWEST_ARRIVALS)
        return msgspec.structs.replace(
            known,
            offered_requests_per_s=rate(moments.arrivals),
            offered_output_tokens_per_s=None if gives_up or (unfinished <= last).any() else rate(arrival, tokens),
            served_requests_per_s=rate(end, served),
            served_output_tokens_per_s=rate(end, tokens * served),
            span_s=last - first,
            drain_s=None if len(unfinished) or not len(end) else max(float(moments.ends[-1]) - last, 0.0),
            waiting=_numbers_at(moments.arrivals, moments.scheduled, third, last),
            in_system=_numbers_at(moments.arrivals, moments.ends, third, last),
            cancelled=cancelled if gives_up else 0,
            state=LoadState.OVERLOADED if gives_up else state,
        )


def _mean(seconds: FloatArray) -> float | None:
    known = seconds[~np.isnan(seconds)]
    return float(known.mean()) if len(known) else None


class _Session:
    """The turns of a job."""

    __slots__ = ("begun", "ended", "queued")

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.ended = nan
        self.queued = 0.0

    def add(self, ended: float, queued: float) -> None:
        """Count turns that have ended."""
        self.ended = ended if isnan(self.ended) or ended > self.ended else self.ended
        self.queued += queued

    @property
    def lasted(self) -> float:
        """Seconds without queueing; NaN where none has ended."""
        return self.ended - self.begun - self.queued
