"""The population of every figure: all users who arrived, whether served, refused, cancelled or unfinished.

A user is one arrival with all its attempts: a request that its client gave up and sent again is not two. It came when
its first attempt did, and whatever became of its last one became of it. So tokens of attempts that were sent again went
to no one: they are in no throughput. How many attempts there were stands beside.

A latency that a request has is a number. One that it does not have, since it has not come so far, is known to be *at
least* something: the time it has waited by now, or had when its client went away. One that was refused will never have
any. So a percentile is known exactly where its rank falls among the numbers, and is a lower bound elsewhere.

    90 requests took 1 to 9 s, 10 still wait, 3 s each by now
    p50   exact: whatever becomes of the ten, at least half of all are below
    p95   falls among the ten: it is at least the number that stands there with their 3 s; shown as ``>=``
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf, nan

import msgspec
import numpy as np
import numpy.typing as npt

from tokenyard.explain.figures import LatencyFigures, TokenGaps, latency_figures
from tokenyard.trace.facts import AGAIN, Streams, attempt_before
from tokenyard.trace.schema import MOVED, REFUSED, PrefixCacheLookup, RequestArrived, RequestFinished

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LATENCIES = ("queue", "ttft", "tpot", "e2e")
"""The latencies of which every request has one value."""
SERVED, NOT_SERVED, CANCELLED, UNFINISHED = range(4)
"""What became of a request; the second: refused, or ended by an error."""
_OUTCOME = {REFUSED: NOT_SERVED, "error": NOT_SERVED, "abort": CANCELLED, None: UNFINISHED}
"""Finish reason -> outcome; all other reasons are those of served requests."""


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What became of everybody who arrived: the last four add up to the first."""

    arrived: int
    served: int
    """They got their whole answer."""
    refused: int
    """The engine turned them away, or ended them by an error."""
    cancelled: int
    """Their clients went away before."""
    unfinished: int
    """They waited or ran when the run, or its record, ended."""

    @classmethod
    def of(cls, outcomes: Ints) -> Outcomes:
        """Count outcomes, shape ``[n]``."""
        served, refused, cancelled, unfinished = np.bincount(outcomes, minlength=4).tolist()
        return cls(arrived=len(outcomes), served=served, refused=refused, cancelled=cancelled, unfinished=unfinished)

    @property
    def all_served(self) -> bool:
        """Whether figures are of requests that all got what they asked for."""
        return self.served == self.arrived

    def __str__(self) -> str:
        parts = [
            f"{number:,} {name}"
            for name, number in (
                ("refused", self.refused),
                ("cancelled", self.cancelled),
                ("unfinished", self.unfinished),
            )
            if number
        ]
        return ", ".join([f"{self.arrived:,} arrived", f"{self.served:,} served", *parts])


def outcomes_of(reasons: Sequence[str | None]) -> Ints:
    """The outcome of each finish reason; None: it has not ended."""
    return np.array([_OUTCOME.get(reason, SERVED) for reason in reasons], np.int64)


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """What clients sent again."""

    sent: int
    """Attempts of everybody: each arrival that the engine saw."""
    again: int
    """Attempts that were given up and sent again, which are no users of their own."""
    lost_tokens: int
    """Tokens of output that those had got."""


class AttemptLinks:
    """Which requests are further attempts of one user, by their ids; they may be told in any order."""

    __slots__ = ("_again", "_left")

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        """Request that its client gave up -> its row."""
        self._again: dict[str, int] = {}
        """Request that is called as one that is sent again -> its row."""

    @classmethod
    def of(cls, ids: Sequence[str], outcomes: Ints) -> AttemptLinks:
        """Return those of a table of requests."""
        links = cls()
        for row, (request_id, outcome) in enumerate(zip(ids, outcomes.tolist(), strict=True)):
            links.ended(request_id, row, outcome)
        return links

    def ended(self, request_id: str, row: int, outcome: int) -> None:
        """Note a request that stands in a row."""
        if outcome == CANCELLED:
            self._left[request_id] = row
        if attempt_before(request_id) is not None:
            self._again[request_id] = row

    def join(self, other: AttemptLinks, rows: int) -> None:
        """Note those of another engine, whose rows stand behind ``rows`` others."""
        self._left |= {name: rows + row for name, row in other._left.items()}
        self._again |= {name: rows + row for name, row in other._again.items()}

    def goes_on(self, request_id: str) -> bool:
        """Whether it is a further attempt of a request that was given up."""
        return attempt_before(request_id) in self._left

    def pairs(self, unfinished: Iterable[tuple[str, int]] = ()) -> list[tuple[int, int]]:
        """Return rows of an attempt and of the next one, those of a user in order; ``unfinished``: of further ones."""
        again = self._again | {name: row for name, row in unfinished if attempt_before(name) is not None}
        names = sorted(filter(self.goes_on, again), key=_number_of)
        return [(self._left[attempt_before(name) or ""], again[name]) for name in names]


class FirstSent:
    """Finds the user of a request that ends, and when that user came; told in the order in which they end."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: dict[str, tuple[str, float]] = {}
        """Request that its client gave up -> its user's first one, and its arrival."""

    def user(self, request_id: str, arrival: float, *, is_cancelled: bool) -> tuple[str, float]:
        """Return the id of the user's first request, and when that arrived."""
        found = self._left.pop(attempt_before(request_id) or "", (request_id, arrival))
        if is_cancelled:
            self._left[request_id] = found
        return found


def _number_of(attempt: str) -> int:
    return int(attempt.rpartition(AGAIN)[2])


def joined_to_users(pairs: Sequence[tuple[int, int]], arrival: Floats) -> npt.NDArray[np.bool_]:
    """Return which rows are the last attempts of users, and give these the arrivals of their first ones, in place."""
    is_last = np.ones(len(arrival), bool)
    for before, after in pairs:
        arrival[after], is_last[before] = arrival[before], False
    return is_last


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of everybody who arrived, in seconds, NaN where it did not come so far; shape ``[n]`` each."""

    arrival: Floats
    scheduled: Floats
    token: Floats
    """The first token."""
    until: Floats
    """The end, or the last moment that is known where there is none."""
    output: Ints
    """Tokens of output."""
    max_tokens: Ints
    """Tokens of output that it may get at most; 0 where that is not known."""
    outcome: Ints

    def of_users(self, pairs: Sequence[tuple[int, int]]) -> Moments:
        """Return the moments of users, of those of attempts; ``pairs`` as of :meth:`AttemptLinks.pairs`."""
        if not pairs:
            return self
        is_last = joined_to_users(pairs, arrival := self.arrival.copy())
        known = msgspec.structs.asdict(self) | {"arrival": arrival}
        return Moments(**{name: column[is_last] for name, column in known.items()})


class Population:
    """Latencies of everybody who arrived, in seconds."""

    def __init__(self, moments: Moments, pairs: Sequence[tuple[int, int]] = ()) -> None:
        """``moments`` are of attempts; ``pairs`` of these are of one user (:class:`AttemptLinks`)."""
        lost = int(moments.output[[before for before, _ in pairs]].sum()) if pairs else 0
        self.attempts = Attempts(sent=len(moments.outcome), again=len(pairs), lost_tokens=lost)
        moments = moments.of_users(pairs)
        self.outcome = moments.outcome
        self.values: dict[str, Floats] = {}
        """Latency -> the request's, NaN where it has none; shape ``[n]``."""
        self.floors: dict[str, Floats] = {}
        """Latency -> what it is at least where it is not known; infinite: it will never have one; else NaN."""
        came, end, outcome = moments.arrival, moments.until, moments.outcome
        served = outcome == SERVED
        waited = np.where(outcome == NOT_SERVED, inf, end - came)
        self._add("queue", moments.scheduled - came, np.where(served, nan, waited))
        self._add("ttft", moments.token - came, np.where(served, nan, waited))
        self._add("e2e", np.where(served, end - came, nan), np.where(served, nan, waited))
        paces = np.where(served & (moments.output > 1), (end - moments.token) / np.maximum(moments.output - 1, 1), nan)
        # Whatever is yet to come, the last of all its tokens cannot come before now.
        least = np.fmax((end - moments.token) / np.maximum(moments.max_tokens - 1, 1), 0.0)
        least = np.where(outcome == NOT_SERVED, inf, np.where(moments.max_tokens > 1, least, 0.0))
        least = np.where(np.isnan(came) | served | (moments.max_tokens == 1), nan, least)
        self._add("tpot", paces, least)

    def _add(self, name: str, values: Floats, floors: Floats) -> None:
        self.values[name] = values
        self.floors[name] = np.where(np.isnan(values), floors, nan)

    def __len__(self) -> int:
        return len(self.outcome)

    @property
    def outcomes(self) -> Outcomes:
        """Counts of what became of them."""
        return Outcomes.of(self.outcome)

    def figures(self, name: str) -> LatencyFigures:
        """The figures of a latency (:data:`LATENCIES`) of everybody who has one, or is to have one."""
        values, floors = self.values[name], self.floors[name]
        return latency_figures(values[~np.isnan(values)], floors=floors[~np.isnan(floors)])

    @property
    def refused_share(self) -> float:
        """Share of them that were refused."""
        return float((self.outcome == NOT_SERVED).mean()) if len(self) else 0.0

    @property
    def tokenless_share(self) -> float:
        """Share of them that were not served and got no token at all: of them no gap shows."""
        return float(((self.outcome != SERVED) & np.isnan(self.values["ttft"])).mean()) if len(self) else 0.0

    def num_with(self, name: str) -> int:
        """How many have the latency."""
        return int(np.count_nonzero(~np.isnan(self.values[name])))

    def within(self, name: str, seconds: float) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return masks of requests served whole within a bound, and of those that may still be.

        An answer of one token has no TPOT to miss.
        """
        values = self.values[name]
        good = ~(values > seconds) if name == "tpot" else values <= seconds
        so_far = np.where(np.isnan(values), self.floors[name], values)
        served = (self.outcome == SERVED) & ~np.isnan(self.values["ttft"])
        return served & good, (self.outcome == UNFINISHED) & ~(so_far > seconds)

    def share_within(self, name: str, seconds: float) -> float | None:
        """Return the share of all arrivals that were served whole within a bound; None if none arrived."""
        return float(self.within(name, seconds)[0].mean()) if len(self) else None


# ---------------------------------------------------------------------------------------------------------------------
# The same, gathered while things happen.

_COLUMNS = {"arrival": "d", "scheduled": "d", "token": "d", "until": "d", "output": "q", "max_tokens": "q"}


class _Open:
    """A request that has arrived and not ended."""

    __slots__ = ("arrival", "is_known", "max_tokens", "scheduled", "token")

    def __init__(self, arrival: float, max_tokens: int) -> None:
        self.arrival, self.max_tokens = arrival, max_tokens
        self.scheduled = self.token = nan
        self.is_known = False
        """Its moments are all that there are."""


class LatencyCounter:
    """Latencies of everybody who arrives, and the time between two tokens; 60 bytes a request."""

    def __init__(self) -> None:
        self.finished = 0
        self.finish_reasons: Counter[str] = Counter()
        self.output_tokens = 0
        self._has_completed = self._has_sampled = self._has_told = False
        """Ends of steps were told; tokens were sampled; a first one was told as it came, not as its request ended."""
        self._columns: dict[str, array[float]] = {name: array(code) for name, code in _COLUMNS.items()}
        self._outcomes = array("q")
        self._links = AttemptLinks()
        self._early: dict[str, float] = {}
        """Request of which a trace tells when it was scheduled before it tells that it came -> that moment."""
        self._open: dict[tuple[int, str], _Open] = {}
        """Engine, as a number, and id -> a request that has not ended."""
        self._ended_before: dict[str, int] = {}
        """Request that a trace shows to have ended before it shows that it came -> its place in the columns."""
        self._gaps = TokenGaps()
        self._engines = 1

    def arrived(self, record: RequestArrived) -> None:
        """A request came."""
        moment = record.arrival_time if record.arrival_time is not None else record.ts
        if record.req_id is not None and record.req_id in self._ended_before:
            self._columns["max_tokens"][self._ended_before.pop(record.req_id)] = record.max_tokens or 0
        elif record.req_id is not None:
            found = _Open(nan if moment is None else moment, record.max_tokens or 0)
            found.scheduled = self._early.pop(record.req_id, nan)
            self._open[0, record.req_id] = found

    def looked_up(self, record: PrefixCacheLookup) -> None:
        """A request was scheduled for the first time."""
        found = self._open.get((0, record.req_id or ""))
        if record.ts is None or record.req_id is None:
            return
        if found is None and record.req_id not in self._ended_before:
            self._early[record.req_id] = record.ts
        elif found is not None and found.scheduled != found.scheduled:
            found.scheduled = record.ts

    def still_here(self, record: RequestFinished) -> None:
        """A request whose end the trace does not show; its moments are all that there are."""
        found = self._open.get((0, record.req_id or ""))
        if found is not None:
            found.arrival = _or_nan(record.arrival_time)
            found.scheduled = _or_nan(record.first_scheduled_time)
            found.token = _or_nan(record.first_token_time)
            found.is_known = True

    def step_completed(self, ts: float | None, sampled: int | None, streams: Streams | None) -> None:
        """A step ended, with so many tokens; ``streams``: who began, paused or went on."""
        self._gaps.step_completed(ts, sampled, streams)
        self._has_completed = True
        self._has_sampled |= bool(sampled)
        if streams is not None and ts is not None:
            self._has_told |= bool(streams.began)
            for request_id in streams.began:
                found = self._open.get((0, request_id))
                if found is not None:
                    found.token = ts

    def steps_completed(self, moments: Sequence[float], sampled: int) -> None:
        """Steps ended, with a token each for the same answers."""
        self._gaps.steps_completed(moments, sampled)

    def ended(self, record: RequestFinished) -> None:
        """A request ended."""
        if record.finish_reason == MOVED:  # it is the other engine's
            self._open.pop((0, record.req_id or ""), None)
            self._gaps.request_ended(record, is_served=False)
            return
        self.finished += 1
        self.finish_reasons[record.finish_reason or "unknown"] += 1
        output = record.num_output_tokens or 0
        self.output_tokens += output
        asked = self._open.pop((0, record.req_id or ""), None)
        if asked is None and record.req_id is not None:
            self._ended_before[record.req_id] = len(self._outcomes)
        outcome = _OUTCOME.get(record.finish_reason or "unknown", SERVED)
        if record.req_id is not None:
            self._links.ended(record.req_id, len(self._outcomes), outcome)
        self._note(
            outcome,
            arrival=_or_nan(record.arrival_time),
            scheduled=_or_nan(record.first_scheduled_time),
            token=_or_nan(record.first_token_time),
            until=_or_nan(record.finished_time if record.finished_time is not None or outcome == SERVED else record.ts),
            output=output,
            max_tokens=0 if asked is None else asked.max_tokens,
        )
        self._gaps.request_ended(record, is_served=outcome == SERVED)

    def _note(self, outcome: int, **values: float) -> None:
        self._outcomes.append(outcome)
        for name, column in self._columns.items():
            column.append(values[name])

    def join(self, other: LatencyCounter) -> None:
        """The requests of another engine, too."""
        tells = self._tells and other._tells
        self.finished += other.finished
        self.finish_reasons += other.finish_reasons
        self.output_tokens += other.output_tokens
        self._has_completed |= other._has_completed
        self._has_sampled |= other._has_sampled
        self._has_told = tells
        self._links.join(other._links, len(self._outcomes))
        self._outcomes.extend(other._outcomes)
        for name, column in self._columns.items():
            column.extend(other._columns[name])
        self._open |= {(self._engines + engine, name): each for (engine, name), each in other._open.items()}
        self._engines += other._engines
        self._gaps.join(other._gaps)

    def population(self, now: float | None) -> Population:
        """Everybody who has arrived by ``now``, the last moment that is known."""
        open_ones = list(self._open.values())
        columns = {name: np.array(column) for name, column in self._columns.items()}
        last = _or_nan(now)
        more = {
            "arrival": [each.arrival for each in open_ones],
            "scheduled": [each.scheduled for each in open_ones],
            "token": [each.token for each in open_ones],
            "until": [self._until(each, last) for each in open_ones],
            "output": [0] * len(open_ones),
            "max_tokens": [each.max_tokens for each in open_ones],
        }
        outcomes = [*self._outcomes, *[UNFINISHED] * len(open_ones)]
        whole = {name: np.concatenate([column, np.array(more[name], column.dtype)]) for name, column in columns.items()}
        pairs = self._links.pairs((name, row) for row, (_, name) in enumerate(self._open, len(self._outcomes)))
        return Population(Moments(**whole, outcome=np.array(outcomes, np.int64)), pairs)

    def _until(self, request: _Open, now: float) -> float:
        """How far it is known that an open request has no first token."""
        if self._tells or request.is_known or request.scheduled != request.scheduled:
            return now
        return request.scheduled

    @property
    def _tells(self) -> bool:
        """Whether an open request without a first token is known to have none."""
        return self._has_told or not (self._has_sampled or (self.finished and not self._has_completed))

    def itl_ms(self, now: float | None) -> tuple[LatencyFigures, int]:
        """Time between two tokens of an answer, and the number of requests of which it is known."""
        return self._gaps.result(now)


def _or_nan(value: float | None) -> float:
    return nan if value is None else value


def population_of(
    moments: Mapping[str, Floats],
    *,
    output: Ints,
    max_tokens: Ints,
    reasons: Sequence[str | None],
    ids: Sequence[str] | None = None,
) -> Population:
    """The population of a table of requests: columns ``arrival_s``, ``first_scheduled_s``, ``first_token_s`` and
    ``until_s``, with tokens and finish reasons; all of shape ``[n]``. Without ``ids`` each row is a user of its own.
    """
    told = Moments(
        arrival=moments["arrival_s"],
        scheduled=moments["first_scheduled_s"],
        token=moments["first_token_s"],
        until=moments["until_s"],
        output=output,
        max_tokens=max_tokens,
        outcome=outcomes_of(reasons),
    )
    return Population(told, () if ids is None else AttemptLinks.of(ids, told.outcome).pairs())
