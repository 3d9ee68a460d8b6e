"""The replay, live: groups of engines on a virtual clock that keeps to the wall.

    client -> submit: stamped -> [pending] --.
                                             v
        timer -> tick: the next event of all that are due -> engines -> news -> clients
           ^                                            |
           '------- when the event after them is due ---'

The engines, their routers, their wires and the order of events are those of a replay (:mod:`tokenyard.sim.loop`). What
is added is that an event waits for its moment, and that requests come from outside. A request is stamped with the
moment at which its head was there, however long its body and its tokens took, but later than any that has been decided
and that it would have changed: so a replay of the stamps takes the same decisions, and what this process needs to read
a request delays no token as long as it is less than a step. The clock stands where the last event stood; an event that
is done late delays no other, as long as the machine keeps up at all.

An engine that is alone has its steps worked out a little before they end: what they bring hangs on nothing that may
come meanwhile, since requests and clients that leave are heard when the next step begins. It is sent at its moment:

    step begins ... [worked out] . . . its end: sent -> what came meanwhile -> next step begins
                     as long before as that takes
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import accumulate
from math import inf, nextafter

import msgspec

from tokenyard.core.request import Request
from tokenyard.core.sched.observer import StepObserver
from tokenyard.core.sched.outputs import EngineOutputs
from tokenyard.core.sched.scheduler_output import SchedulerOutput
from tokenyard.errors import RequestError, StuckError
from tokenyard.serve.async_llm import StepNews
from tokenyard.sim.loop import ARRIVAL, HANGING_UP, STEP_ENDS, EngineGroup, Event
from tokenyard.steptime.pace import VirtualClock

RECEIVED: ContextVar[float | None] = ContextVar("RECEIVED", default=None)
"""When the request that is being answered came, in emulated seconds."""
LATE: ContextVar[float | None] = ContextVar("LATE", default=None)
"""Seconds of the wall by which its latest token was late, once it has been answered."""
_LONGEST_TICK = 0.004
"""Seconds for which events are done before others in the event loop have their turn."""
_LATE = 0.05
"""A step is late if it is delivered later than this share of its own time."""
LEAST_AHEAD, MOST_AHEAD = 0.0005, 0.02
"""Seconds before its end at which a step is worked out, at least and at most."""


class WallClock:
    """Emulated seconds since the start, ``speed`` of them in a second of the wall."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self._start, self.zero = time.monotonic(), time.time()
        """``zero``: the Unix time at which no emulated second had passed."""

    def now(self) -> float:
        """Emulated seconds since the start."""
        return self.emulated(time.monotonic())

    def emulated(self, monotonic: float) -> float:
        """The emulated moment of one on the machine's own clock."""
        return (monotonic - self._start) * self.speed

    def seconds_until(self, moment: float) -> float:
        """Seconds of the wall until an emulated moment; negative if it is over."""
        return self.monotonic(moment) - time.monotonic()

    def monotonic(self, moment: float) -> float:
        """An emulated moment on the machine's own clock, in seconds of ``time.monotonic``."""
        return moment / self.speed + self._start

    def unix(self, moment: float | None = None) -> float:
        """The emulated time of day of a moment, or of now, in Unix seconds."""
        return self.zero + (self.now() if moment is None else moment)


class Lateness:
    """How well the wall was kept to."""

    def __init__(self) -> None:
        self.steps = self.late_steps = 0
        self.seconds = self.worst = 0.0
        """Seconds of the wall by which steps were delivered late: all together, and the most."""

    def add(self, seconds: float, lasted: float) -> None:
        """A step that lasted ``lasted`` seconds of the wall was delivered ``seconds`` late."""
        self.steps += 1
        self.seconds += seconds
        self.worst = max(self.worst, seconds)
        self.late_steps += seconds > _LATE * lasted

    @property
    def sentence(self) -> str:
        """For the end of a run."""
        if not self.steps:
            return "no step was taken"
        share, mean = self.late_steps / self.steps, self.seconds / self.steps
        return (
            f"{self.steps:,} steps, delivered {mean * 1e3:.2f} ms late on average"
            f" and {self.worst * 1e3:.1f} ms at worst; {share:.1%} of them later than {_LATE:.0%} of their own time"
        )


class LateRequests:
    """By how much the tokens of each request were late, the latest of them: numbers for a histogram."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_OF_LATE) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """A request was answered, and a token of it came so many seconds of the wall late."""
        self.counts[bisect_left(BOUNDS_OF_LATE, seconds)] += 1
        self.seconds += seconds

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Bounds, and how many are within each."""
        return [*zip((*map(str, BOUNDS_OF_LATE), "+Inf"), accumulate(self.counts), strict=True)]


BOUNDS_OF_LATE = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class NewsOfSteps(StepObserver):
    """Keeps the outputs of steps until they are sent."""

    def __init__(self) -> None:
        self.unsent: list[EngineOutputs] = []
        self.decided: dict[int, float] = {}
        """Step -> when it was decided, while it is in flight."""
        self.completed_at: tuple[float, float] | None = None
        """Beginning and end of the step that ended last."""

    def step_decided(self, ts: float, output: SchedulerOutput, outcomes: object, state: object) -> None:
        self.decided[output.step] = ts

    def step_completed(self, ts: float, output: SchedulerOutput, outputs: EngineOutputs) -> None:
        self.unsent.append(outputs)
        if output.total_num_scheduled_tokens:
            self.completed_at = self.decided.pop(output.step, ts), ts
        else:
            self.decided.pop(output.step, None)


class _Ahead:
    """How long before its end a step is worked out: twice as long as that takes, as far as it has shown lately."""

    def __init__(self) -> None:
        self.seconds = LEAST_AHEAD

    def took(self, seconds: float) -> None:
        """Working one out did."""
        self.seconds = min(max(2 * seconds, 0.9 * self.seconds, LEAST_AHEAD), MOST_AHEAD)


class _Pending(msgspec.Struct, frozen=True):
    """Something that a client wants."""

    moment: float
    kind: int
    group: int
    request: Request | None
    gone: Sequence[str]


def _moment_of(pending: _Pending) -> float:
    return pending.moment


class LiveEngines:
    """Steps groups of engines in the running event loop. All methods belong to it."""

    def __init__(
        self,
        groups: Sequence[EngineGroup],
        news: Sequence[Sequence[NewsOfSteps]],
        clock: VirtualClock,
        wall: WallClock,
        front_end: Callable[[int], float] = lambda _: 0.0,
    ) -> None:
        """``news`` watch the engines of each group, one each. ``front_end``: emulated seconds from which on an engine
        has a request with so many prompt tokens, after it was received; vLLM's front end stamps its arrival then.
        """
        self._front_end = front_end
        self.groups, self.clock, self.wall = groups, clock, wall
        self.lateness = Lateness()
        self.on_event: list[Callable[[], None]] = []
        """Called after events, when their outputs have been sent."""
        self.hold_until = -inf
        """The wall's monotonic second before which nothing happens: a hang."""
        self._news = news
        self._pending: list[_Pending] = []
        """What is pending, in order of time."""
        self._squeezed = -inf
        """The last moment of a request that came before what has been decided since."""
        self._takers: list[Callable[[StepNews], None]] = [lambda _: None for _ in groups]
        self._refused: list[tuple[int, RequestError | StuckError]] = []
        self._timer: _Timer | None = None
        self._is_dead = False
        self._decided = clock.now()
        """The last moment at which something was decided that a request would have changed."""
        self._is_alone = len(groups) == len(groups[0].ranks) == 1 and groups[0].replicas is None
        self._ahead = _Ahead()
        self._worked_out: Event | None = None
        """The end of a step whose outputs are known and not sent."""
        for number, group in enumerate(groups):
            group.bind(self, number)

    # ---- as the owner of its groups

    def refused(self, error: RequestError, request: Request, group: int, rank: int) -> None:
        """Kept until clients are notified."""
        self._refused.append((group, error))
        self.groups[group].ranks[rank].went_on_without(request)

    def aborted(self, requests: Sequence[Request], group: int) -> None:
        """Clients that have gone away are not notified."""

    # ---- for those that submit

    def taker(self, group: int, take: Callable[[StepNews], None]) -> None:
        """``take`` is called with the outputs of a group's engines."""
        self._takers[group] = take

    def start(self) -> None:
        """Begin to step, once."""
        if self._timer is None:
            self._timer = _Timer(asyncio.get_running_loop(), self._tick)

    def stop(self) -> None:
        """End; requests are left as they are."""
        self._is_dead = True
        if self._timer is not None:
            self._timer.close()

    def stamp(self) -> float:
        """The moment of something that comes from outside now: after all that has been decided."""
        return max(self.wall.now(), nextafter(self._decided, inf))

    def submit(self, group: int, requests: Sequence[Request]) -> None:
        """Requests arrive: when they were received, if that can still be, else now."""
        received, moment = RECEIVED.get(), self.stamp()
        if received is not None and received < moment:
            first = nextafter(max(self._decided, self._squeezed), inf)
            if received < first:
                self._squeezed = first  # no two of them are at one moment, which gives their order
            moment = min(moment, max(received, first))
        for request in requests:
            stamped = moment + self._front_end(request.num_prompt_tokens)
            request.arrival_time, request.arrives_when_added = stamped, False
            insort(self._pending, _Pending(stamped, ARRIVAL, group, request, ()), key=_moment_of)
        self.wake()

    def abort(self, group: int, request_ids: Sequence[str]) -> None:
        """Clients have gone away."""
        on_their_way = [
            each.moment for each in self._pending if each.request is not None and each.request.request_id in request_ids
        ]
        moment = max([self.stamp(), *on_their_way])
        insort(self._pending, _Pending(moment, HANGING_UP, group, None, request_ids), key=_moment_of)
        self.wake()

    def die(self, error: BaseException) -> None:
        """Nothing is generated any more."""
        self._is_dead = True
        for take in self._takers:
            take(StepNews(error=error))

    def wake(self) -> None:
        if self._timer is not None:
            self._timer.soon()

    @property
    def late_seconds(self) -> float:
        """Seconds of the wall by which what comes next is late; 0 where nothing is under way, or a hang was wanted."""
        event = self._worked_out or self._next_event()
        if event is None or self.hold_until > time.monotonic():
            return 0.0
        return max(0.0, self.wall.now() - event.moment) / self.wall.speed

    @property
    def delivered_late(self) -> float:
        """The same of what has been brought just now."""
        return max(0.0, self.wall.now() - self.clock.now()) / self.wall.speed

    # ---- in the event loop

    def _tick(self) -> None:
        if self._is_dead:
            return
        try:
            is_more = self._go_on(time.monotonic() + _LONGEST_TICK)
        except Exception as error:  # noqa: BLE001 - whatever it is, those that wait have to know
            self._worked_out = None
            self._tell()
            self.die(error)
            return
        if self._worked_out is None:
            self._tell()
        if is_more:
            self.wake()

    def _go_on(self, until: float) -> bool:
        """Let happen what is due, until a moment of the machine's; True: others have their turn, then it goes on."""
        assert self._timer is not None
        while (event := self._worked_out or self._next_event()) is not None:
            wait = max(self.wall.seconds_until(event.moment), self.hold_until - time.monotonic())
            if wait > 0 and self._worked_out is None and event.kind == STEP_ENDS and self._is_alone:
                wait -= self._ahead.seconds
                if wait <= 0:
                    self._work_out(event)
                    continue
            if wait > 0:
                self._timer.after(wait)
                return False
            if self._happen(event) or time.monotonic() > until:
                return True
        return False

    def _work_out(self, event: Event) -> None:
        """Take in a step before it ends."""
        begun = time.monotonic()
        self._worked_out = event
        self._take_in(event)
        self._ahead.took(time.monotonic() - begun)

    def _next_event(self) -> Event | None:
        events = [event for group in self.groups for event in group.events()]
        if self._pending:
            first = self._pending[0]
            events.append(Event(max(first.moment, self.clock.now()), first.kind, 0, first.group))
        return min(events, default=None)

    def _happen(self, event: Event) -> bool:
        """True if it has brought something just now: clients are notified before the next step is decided."""
        if event.kind in (ARRIVAL, HANGING_UP):
            self.clock.advance_to(event.moment)
            wanted = self._pending.pop(0)
            self._decided = max(self._decided, wanted.moment)
            if wanted.request is not None:
                self.groups[event.group].send(self.clock.now(), wanted.request)
            else:
                self.groups[event.group].abort(wanted.gone)
            return False
        if event.kind != STEP_ENDS or not self._is_alone:
            self._decided = event.moment
        if self._worked_out is None:
            self._take_in(event)
        self._worked_out = None
        return self._account(self._news[event.group][event.rank])

    def _take_in(self, event: Event) -> None:
        """What an engine does by itself."""
        self.clock.advance_to(event.moment)
        try:
            self.groups[event.group].happen(event, -inf)
        except StuckError as error:
            self.groups[event.group].abort([error.request_id])
            self._refused.append((event.group, error))

    def _account(self, news: NewsOfSteps) -> bool:
        """True if a step has ended, and not long ago."""
        if news.completed_at is None:
            return False
        began, ended = news.completed_at
        news.completed_at = None
        late = max(0.0, -self.wall.seconds_until(ended))
        self.lateness.add(late, (ended - began) / self.wall.speed)
        return late < _LONGEST_TICK

    def _tell(self) -> None:
        """Report what has happened to the clients that wait for it."""
        refused, self._refused = self._refused, []
        for group, error in refused:
            self._takers[group](StepNews(refused=[error]))
        for group, watching in enumerate(self._news):
            for news in watching:
                unsent, news.unsent = news.unsent, []
                for outputs in unsent:
                    if len(outputs):
                        self._takers[group](StepNews(outputs))
        for call in self.on_event:
            call()


class GroupStepper:
    """What :class:`~tokenyard.serve.async_llm.AsyncLLM` submits to: one group of live engines."""

    def __init__(self, engines: LiveEngines, group: int, take: Callable[[StepNews], None]) -> None:
        self._engines, self._group = engines, group
        engines.taker(group, take)

    def start(self) -> None:
        self._engines.start()

    def submit(self, requests: Sequence[Request]) -> None:
        self._engines.submit(self._group, requests)

    def abort(self, request_ids: Sequence[str]) -> None:
        self._engines.abort(self._group, request_ids)

    def taken(self) -> None:
        """Outputs are taken in where they are sent."""

    def stop(self) -> None:
        """The engines are stopped by who has made them."""


# ---------------------------------------------------------------------------------------------------------------------
# A timer that is not rounded to milliseconds, as that of an event loop is: steps are as short as that. Linux has one
# that can be waited for like a socket.

_CLOCK_MONOTONIC = 1
_LONGEST_WAIT = 100_000.0
_NONBLOCK = 0o4000


class _ItimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class _Timer:
    """Calls ``call`` once, after the time that was requested last."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop, self._call = loop, call
        self._is_soon = False
        self._handle: asyncio.TimerHandle | None = None
        self._fd: int | None = None
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK)
            loop.add_reader(self._fd, self._fired)

    def soon(self) -> None:
        """Call it as soon as other tasks have had their turn."""
        if not self._is_soon:
            self._is_soon = True
            self._loop.call_soon(self._now)

    def after(self, seconds: float) -> None:
        """Call it after so many seconds, above 0; after very many at any time."""
        if self._fd is None:
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_later(min(seconds, _LONGEST_WAIT), self._now)
            return
        whole = int(min(seconds, _LONGEST_WAIT))
        spec = _ItimerSpec(0, 0, whole, max(1, int(min(seconds - whole, 0.999) * 1e9)))
        self._libc.timerfd_settime(self._fd, 0, ctypes.byref(spec), None)

    def _fired(self) -> None:
        assert self._fd is not None
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # it was set anew meanwhile
        self._now()

    def _now(self) -> None:
        self._is_soon = False
        self._call()

    def close(self) -> None:
        """Call no more."""
        self._call = lambda: None
        if self._handle is not None:
            self._handle.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
