"""The requests of a replay, from arrival to end: the clock, turns that follow, clients that give up and retry."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from heapq import heappop, heappush
from math import inf
from typing import TypeAlias

import msgspec
import numpy as np

from tokenyard.arguments import is_number
from tokenyard.core.request import Request
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import ConfigError, RejectedError, RequestError, WorkloadError, shown
from tokenyard.explain.figures import latency_figures
from tokenyard.explain.report.report import ClientFigures
from tokenyard.quick_dataclass import dataclass
from tokenyard.workload.record import Clients, Workload, WorkloadRequest, attempt_id

# ---------------------------------------------------------------------------------------------------------------------
# How much of a workload a replay runs, which part of it counts, and how it ended.

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


# ---------------------------------------------------------------------------------------------------------------------

# ---------------------------------------------------------------------------------------------------------------------
# Which request arrives when: fixed moments, and turns that follow the end of others.
#
#     pending[i]     turns that request i still waits for
#     due            (moment, i) of requests whose moment is known; in a closed loop they wait there for a free place
#     sent           (moment, sent, i) of requests on their way, with the moment at which the scheduler gets them
#     every request is exactly one of: waiting for others, due, sent, arrived, left out


class ArrivalQueue:
    """The workload's requests, one after the other as they become due."""

    def __init__(self, workload: Workload) -> None:
        self._requests = list(workload.requests)
        self._followers: dict[str, list[int]] = defaultdict(list)
        self._pending = [len(request.after) for request in self._requests]
        self._left_out: set[int] = set()
        for i, request in enumerate(self._requests):
            for parent in request.after:
                self._followers[parent].append(i)
        self._is_closed = workload.max_concurrency is not None
        self._places = [0.0] * min(workload.max_concurrency or 0, len(self._requests))
        """Since when each free place of a closed loop is free: who waits for it is sent then."""
        self._least_delay = min((request.delay for request in self._requests), default=0.0)
        self._due: list[tuple[float, int]] = []
        self._sent: list[tuple[float, float, int]] = []
        for i, request in enumerate(self._requests):
            if not request.after:
                self._becomes_due(request.arrival_time, i)

    @property
    def next_moment(self) -> float | None:
        """When the scheduler gets the next request at the earliest, as far as is known now; None: it is not known."""
        moment = self._sent[0][0] if self._sent else None
        if self._due and self._places:
            placed = max(self._due[0][0], self._places[0]) + self._least_delay
            return placed if moment is None else min(moment, placed)
        return moment

    @property
    def num_left_out(self) -> int:
        """Turns that will never arrive because one before them did not run."""
        return len(self._left_out)

    def due(self, now: float) -> list[tuple[float, WorkloadRequest]]:
        """Requests that the scheduler has got by ``now``, each with the moment it was sent, in order."""
        # A turn that becomes due later than now is sent later than now: those before it can be sent.
        while self._due and self._places and (sent := max(self._due[0][0], self._places[0])) <= now:
            heappop(self._places)
            self._send(sent, heappop(self._due)[1])
        arrived = []
        while self._sent and self._sent[0][0] <= now:
            _, sent, i = heappop(self._sent)
            arrived.append((sent, self._requests[i]))
        return arrived

    def ended(self, request_id: str, *, arrived: float, now: float) -> None:
        """A request ended ``now``: its followers come after their gap."""
        self._leaves_place(now)
        for i in self._followers.pop(request_id, ()):
            self._pending[i] -= 1
            if not self._pending[i] and i not in self._left_out:
                request = self._requests[i]
                self._becomes_due(max(now + request.gap, arrived + request.spacing), i)

    def again(self, request: WorkloadRequest, *, now: float) -> None:
        """A request that was given up ``now`` is sent again at its ``arrival_time``; until then its place is free."""
        self._leaves_place(now)
        self._requests.append(request)
        self._becomes_due(request.arrival_time, len(self._requests) - 1)

    def _becomes_due(self, moment: float, i: int) -> None:
        if self._is_closed:
            heappush(self._due, (moment, i))
        else:
            self._send(moment, i)

    def _send(self, sent: float, i: int) -> None:
        heappush(self._sent, (sent + self._requests[i].delay, sent, i))

    def _leaves_place(self, now: float) -> None:
        if self._is_closed:
            heappush(self._places, now)

    def refused(self, request_id: str, *, now: float) -> None:
        """A request did not run: neither do the turns after it, nor theirs."""
        self._leaves_place(now)
        refused = [request_id]
        while refused:
            followers = self._followers.pop(refused.pop(), ())
            refused += [self._requests[i].request_id for i in followers if i not in self._left_out]
            self._left_out.update(followers)


# ---------------------------------------------------------------------------------------------------------------------
# Clients under way: when each first sent its request, which attempt is running, and what came of all of them.


class _Sending(msgspec.Struct, frozen=True):
    """A request that a client waits for."""

    request: WorkloadRequest
    """The request as it was sent this time."""
    name: str
    """What the workload calls it."""
    attempt: int
    first: float
    """When it was sent for the first time, in seconds."""
    sent: float
    """When it was sent this time."""


class Retries:
    """All who waits for an answer."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._waiting: dict[str, _Sending] = {}
        """Name of the attempt -> the client that waits."""
        self._names: dict[str, str] = {}
        """Further attempts -> what the workload calls their requests."""
        self._given_up = self._retried = self._late = 0
        self._answer_seconds: list[float] = []

    def name(self, request_id: str) -> str:
        """What the workload calls the request of an attempt."""
        return self._names.get(request_id, request_id)

    def sent(self, moment: float, request: WorkloadRequest) -> None:
        """A request was sent, for the first time or again."""
        name = self.name(request.request_id)
        earlier = self._waiting.pop(name, None) if name != request.request_id else None
        attempt, first = (1, moment) if earlier is None else (earlier.attempt + 1, earlier.first)
        self._waiting[request.request_id] = _Sending(request, name, attempt, first, moment)

    def hung_up(self, request_id: str) -> WorkloadRequest | None:
        """A client went away before the end: what it sends again; None if it does not."""
        sending = self._waiting.pop(request_id)
        patience = sending.request.patience
        if patience is None or patience < self._clients.timeout:
            return None
        self._given_up += 1
        if sending.attempt > self._clients.retries:
            return None
        self._retried += 1
        again = replace(
            sending.request,
            request_id=attempt_id(sending.name, sending.attempt + 1),
            arrival_time=sending.sent + patience + self._clients.wait,
            after=(),
        )
        self._names[again.request_id] = sending.name
        self._waiting[sending.name] = sending  # until it is sent
        return again

    def answered(self, request_id: str, now: float) -> None:
        """An answer has come whole."""
        sending = self._waiting.pop(request_id)
        self._late += sending.attempt > 1
        self._answer_seconds.append(now - sending.first)

    def figures(self, unanswered: int) -> ClientFigures:
        """What came of it; so many requests were never answered."""
        clients = self._clients
        return ClientFigures(
            timeout_s=clients.timeout,
            retries=clients.retries,
            retry_wait_s=clients.wait,
            given_up=self._given_up,
            retried=self._retried,
            answered_late=self._late,
            unanswered=unanswered,
            answer_ms=latency_figures(np.array(self._answer_seconds, np.float64)),
        )


# ---------------------------------------------------------------------------------------------------------------------
# The requests of a replay, from their arrival to their end: who is to come, who was refused, how many are done.

STEPS_PER_REPORT = 256
"""Steps between two reports of progress."""
STOP = "stop"
"""What ``on_progress`` returns to end the replay."""


class Progress(msgspec.Struct, frozen=True):
    """How far a replay has come."""

    steps: int
    now: float
    """Virtual seconds."""
    num_done: int
    """Requests that have finished, were refused or were left out."""
    num_running: int
    num_waiting: int


OnProgress: TypeAlias = Callable[[Progress], object]
"""Called now and then with how far a replay has come; a call that returns ``"stop"`` ends the replay."""


class RefusedRequest(msgspec.Struct, frozen=True):
    """A request that the scheduler would not take."""

    request_id: str
    problem: str
    marked: str = ""
    """The same with the settings that it names marked, as errors have it."""


class ClientSessions:
    """A workload under way.

    ``num_finished + num_aborted + len(refused) + num_left_out`` is in the end the number of its requests; of a replay
    that ended earlier ``len(unfinished) + num_not_arrived`` make up the rest.
    """

    def __init__(self, workload: Workload, *, skip_refused: bool, on_progress: OnProgress | None = None) -> None:
        self._num_requests = len(workload)
        self._skip_refused = skip_refused
        self._on_progress = on_progress
        self._arrivals = ArrivalQueue(workload)
        self.is_stopped = False
        """The caller that watches the progress has had enough."""
        self._under_way: dict[str, None] = {}
        """Requests that have arrived and not ended, as the workload calls them, in order."""
        self.refused: list[RefusedRequest] = []
        self._leaving: list[tuple[float, str]] = []
        """When clients of requests under way go away, those of ended ones included."""
        self.num_finished = 0
        self.num_aborted = 0
        """Requests of clients who went away before the end."""
        self.output_tokens = 0
        """Tokens of the requests that have finished."""
        self._retries = None if workload.clients is None else Retries(workload.clients)
        """What clients send again; None: they never do."""

    @property
    def next_moment(self) -> float | None:
        """When the next request arrives, as far as is known now."""
        return self._arrivals.next_moment

    @property
    def next_abort(self) -> float | None:
        """When the next client goes away, if its request has not ended before."""
        return self._leaving[0][0] if self._leaving else None

    @property
    def next_event(self) -> float:
        """The first moment at which a request arrives or a client may go away; infinite if none does."""
        arrival = self._arrivals.next_moment
        moment = inf if arrival is None else arrival
        return min(moment, self._leaving[0][0]) if self._leaving else moment

    @property
    def clients(self) -> ClientFigures | None:
        """What clients saw that hang up and retry; None where none does."""
        return None if self._retries is None else self._retries.figures(self.num_aborted)

    @property
    def num_left_out(self) -> int:
        """Turns after a refused one."""
        return self._arrivals.num_left_out

    def due(self, now: float) -> list[tuple[float, WorkloadRequest]]:
        """Requests that have arrived by ``now``, each with its moment, in order."""
        arrived = self._arrivals.due(now)
        for moment, request in arrived:
            self._under_way[self._name(request.request_id)] = None
            if request.patience is not None:
                heappush(self._leaving, (moment + request.patience, request.request_id))
            if self._retries is not None:
                self._retries.sent(moment, request)
        return arrived

    def leaving(self, now: float) -> list[str]:
        """Requests whose clients have gone away by ``now``, ended ones among them."""
        gone = []
        while self._leaving and self._leaving[0][0] <= now:
            gone.append(heappop(self._leaving)[1])
        return gone

    def aborted(self, requests: Sequence[Request], now: float) -> None:
        """These requests were aborted: they are sent again, or make way for those that follow."""
        for request in requests:
            again = None if self._retries is None else self._retries.hung_up(request.request_id)
            if again is not None:
                self._arrivals.again(again, now=now)
                continue
            self.num_aborted += 1
            self._under_way.pop(self._name(request.request_id), None)
            self._arrivals.ended(self._name(request.request_id), arrived=request.arrival_time, now=now)

    def refuse(self, now: float, error: RequestError, request_id: str) -> None:
        """A request cannot be served: it is counted, or the error raised."""
        if not self._skip_refused and not isinstance(error, RejectedError):
            raise error
        self.refused.append(RefusedRequest(request_id, str(error), error.marked))
        self._under_way.pop(self._name(request_id), None)
        self._arrivals.refused(self._name(request_id), now=now)

    def ended(self, outputs: EngineOutputs, now: float) -> None:
        """A step's outputs were taken in: requests that they finish make way for those that follow."""
        for row in outputs.finish_reasons:
            request = outputs.requests[row]
            self.num_finished += 1
            self.output_tokens += request.num_output_tokens
            if self._retries is not None:
                self._retries.answered(request.request_id, now)
            self._under_way.pop(self._name(request.request_id), None)
            self._arrivals.ended(self._name(request.request_id), arrived=request.arrival_time, now=now)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Requests that have arrived and not ended, in order of their arrival."""
        return tuple(self._under_way)

    @property
    def num_not_arrived(self) -> int:
        """Requests that are still to come."""
        return self._num_requests - self._num_done - len(self._under_way)

    def _name(self, request_id: str) -> str:
        """What the workload calls it."""
        return request_id if self._retries is None else self._retries.name(request_id)

    def report(self, now: float, *schedulers: Scheduler) -> None:
        """Say how far the replay has come, over all ``schedulers``."""
        if self._on_progress is not None:
            running, waiting = (sum(each) for each in zip(*(s.get_request_counts() for s in schedulers), strict=True))
            done = self._num_done
            said = self._on_progress(Progress(sum(s.step for s in schedulers), now, done, running, waiting))
            self.is_stopped = self.is_stopped or said == STOP

    def require_whole(self) -> None:
        """Nothing was lost, once nothing is left that could happen."""
        assert self._num_done == self._num_requests, "a request was lost"

    @property
    def _num_done(self) -> int:
        return self.num_finished + self.num_aborted + len(self.refused) + self.num_left_out


def require_patience(workload: Workload) -> None:
    """Raise WorkloadError if clients go away: a split's replay does not abort requests."""
    leaving = workload.first_impatient
    if leaving is not None:
        problem = f"request {shown(leaving.request_id)} is aborted by its client, which the replay of a split cannot do"
        raise WorkloadError(workload.name, 0, problem)


def require_settled(scheduler: Scheduler) -> None:
    """A scheduler has nothing left to do, and no request holds a block.

    StuckError if requests wait for what never comes.
    """
    stuck = scheduler.standstill(after=1)
    if stuck is not None:
        raise stuck
    assert scheduler.get_request_counts() == (0, 0), "the scheduler stalled with requests in its queues"
    scheduler.pins.clear()  # of jobs whose last turn was left out, or not marked as such
    assert scheduler.num_free_blocks == scheduler.num_total_blocks - 1, "a block is held by no request"
