"""How many replicas there should be, and which there are."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from math import ceil, inf
from typing import Protocol

from tokenyard.arguments import is_number
from tokenyard.core.config import require_int
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import ConfigError
from tokenyard.explain.report.report import ReplicaChange, ReplicaFigures
from tokenyard.quick_dataclass import dataclass

# ---------------------------------------------------------------------------------------------------------------------
# How many replicas there should be: Kubernetes' HorizontalPodAutoscaler, on the requests that wait.
#
#     Every ``sync`` seconds        desired = ceil(waiting requests of all replicas / target)
#     within ``tolerance`` of it    nothing changes
#     up                            at once, at most doubled or 4 more in 15 s
#     down                          to the most that was desired within the last ``window`` seconds
#
# Facts of Kubernetes' documentation (Horizontal Pod Autoscaling: algorithm details, configurable scaling behavior,
# with their defaults) for a metric with an average value as its target, which is how KEDA's Prometheus scaler hands
# it ``vllm:num_requests_waiting``.

_MOST_REPLICAS = 1024
_MORE_PER_PERIOD = 4
_PERIOD = 15.0
"""Seconds in which replicas may double, or be so many more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """What a deployment is scaled by. Raises ConfigError."""

    least: int
    most: int
    startup: float = 120.0
    """Seconds from the decision until a new replica takes requests."""
    target: float = 5.0
    """Requests that wait, per replica."""
    sync: float = 15.0
    """Seconds between two decisions."""
    window: float = 300.0
    """Seconds that fewer replicas have to be enough, before there are fewer."""
    tolerance: float = 0.1
    """Share by which the requests that wait may be off the target without a change."""

    def __init_subclass__(cls) -> None:
        fix = "is never asked: these are settings; a rule of your own is FleetPolicy.scale, given as fleet="
        raise ConfigError("autoscaling", cls.__qualname__, fix)

    def __post_init__(self) -> None:
        require_int("replicas", self.least, 1, _MOST_REPLICAS)
        require_int("replicas", self.most, 1, _MOST_REPLICAS)
        if self.most < self.least:
            raise ConfigError("autoscale", f"{self.least}..{self.most}", "give the fewest first, for example 1..8")
        if not is_number(self.startup):
            raise ConfigError("startup", self.startup, "give a time, not negative")
        if not is_number(self.target, above=True):
            raise ConfigError("scale_target", self.target, "give a number of requests above 0")
        if not is_number(self.sync, above=True):
            raise ConfigError("sync", self.sync, "give a number of seconds above 0")
        if not is_number(self.window):
            raise ConfigError("window", self.window, "give a number of seconds, not negative")
        if not is_number(self.tolerance, below=1.0):
            raise ConfigError("tolerance", self.tolerance, "give a share from 0 on, below 1")

    @property
    def is_fixed(self) -> bool:
        """There are always as many."""
        return self.least == self.most


class Rule(Protocol):
    """Says how many replicas there should be."""

    def desired(self, now: float, waiting: int, current: int) -> int:
        """Replicas that there should be, where ``current`` are (those included that start) and ``waiting`` wait."""


class Autoscaler:
    """The rule, with what it remembers."""

    def __init__(self, settings: Autoscaling) -> None:
        self._settings = settings
        self._desired: deque[tuple[float, int]] = deque()
        """When so many were desired, within the window."""
        self._begun: deque[tuple[float, int]] = deque()
        """When so many were added, within the period."""

    def desired(self, now: float, waiting: int, current: int) -> int:
        """Replicas that there should be, where ``current`` are (those included that start) and ``waiting`` wait."""
        settings = self._settings
        wanted = ceil(waiting / settings.target)
        if abs(waiting / (current * settings.target) - 1) <= settings.tolerance:
            wanted = current
        wanted = min(max(wanted, settings.least), settings.most)
        self._desired.append((now, wanted))
        while self._desired[0][0] < now - settings.window:
            self._desired.popleft()
        if wanted > current:
            return self._limited(now, wanted, current)
        return min(current, max(each for _, each in self._desired))

    def _limited(self, now: float, wanted: int, current: int) -> int:
        """Not more than may be added in a period."""
        while self._begun and self._begun[0][0] <= now - _PERIOD:
            self._begun.popleft()
        before = current - sum(number for _, number in self._begun)
        most = max(2 * before, before + _MORE_PER_PERIOD)
        reached = max(min(wanted, most), current)
        if reached > current:
            self._begun.append((now, reached - current))
        return reached


# ---------------------------------------------------------------------------------------------------------------------
# Which of the engines there are: off, starting, ready, or ending what they have.
#
# off --start--> starting --after startup--> ready --stop--> draining --its last request ends--> off


class _State(Enum):
    OFF = "off"
    ON = "on"
    DRAINING = "draining"


class _Engine(Protocol):
    """What is read of an engine."""

    scheduler: Scheduler

    @property
    def num_waiting(self) -> int: ...

    @property
    def has_work(self) -> bool: ...


class Replicas:
    """Keeps as many of ``engines`` ready as the rule says. One that is stopped gets no request and ends those that it
    has, on GPUs that are free for another replica only then.
    """

    def __init__(self, settings: Autoscaling, engines: Sequence[_Engine], rule: Rule | None = None) -> None:
        """The least number of replicas is ready at once. ``engines`` are as many as there may be. ``rule``: another
        than the settings' own.
        """
        assert len(engines) == settings.most
        self._settings = settings
        self._engines = engines
        self._rule: Rule = Autoscaler(settings) if rule is None else rule
        self._states = [_State.ON if i < settings.least else _State.OFF for i in range(len(engines))]
        self._ready_at = [0.0 if i < settings.least else inf for i in range(len(engines))]
        self._began = [0.0] * len(engines)
        self._held_seconds = 0.0
        self._started = 0
        self._changes = [ReplicaChange(0.0, settings.least, settings.least)]
        self._noted = 0.0
        """When it was last seen who is ready."""
        self._next_decision = inf if settings.is_fixed else settings.sync

    def ready(self, now: float) -> list[int]:
        """Replicas that take requests."""
        return [i for i, state in enumerate(self._states) if state is _State.ON and self._ready_at[i] <= now]

    @property
    def next_moment(self) -> float:
        """When something happens by itself: a decision, or a replica that is ready; infinite: nothing will."""
        return min((self._next_decision, *(moment for moment in self._ready_at if moment > self._noted)))

    @property
    def one_starts(self) -> bool:
        """Whether a replica is on its way."""
        return any(self._noted < moment < inf for moment in self._ready_at)

    def act(self, now: float) -> None:
        """Decide, if it is time; note who is ready."""
        if now >= self._next_decision:
            self._next_decision = now + self._settings.sync
            on = [i for i, state in enumerate(self._states) if state is _State.ON]
            waiting = sum(self._engines[i].num_waiting for i in on)
            self._scale(now, on, self._rule.desired(now, waiting, len(on)))
        self._note(now)

    def worked(self, now: float, rank: int) -> None:
        """An engine did something: if it was to end what it had, that may have been all."""
        if self._states[rank] is _State.DRAINING and not self._engines[rank].has_work:
            self._end(now, rank)
            self._note(now)

    def _scale(self, now: float, on: list[int], desired: int) -> None:
        """Start engines that are off, or stop those that were started last."""
        off = [i for i, state in enumerate(self._states) if state is _State.OFF]
        for rank in off[: max(desired - len(on), 0)]:
            self._engines[rank].scheduler.reset_prefix_cache()
            self._states[rank], self._ready_at[rank], self._began[rank] = _State.ON, now + self._settings.startup, now
            self._started += 1
        for rank in sorted(on, key=lambda i: (self._ready_at[i], i))[desired:]:
            self._states[rank], self._ready_at[rank] = _State.DRAINING, inf
            self.worked(now, rank)

    def _end(self, now: float, rank: int) -> None:
        self._held_seconds += now - self._began[rank]
        self._states[rank], self._ready_at[rank] = _State.OFF, inf

    def _note(self, now: float) -> None:
        self._noted = now
        held = sum(state is not _State.OFF for state in self._states)
        change = ReplicaChange(now, held, len(self.ready(now)))
        if (change.held, change.ready) != (self._changes[-1].held, self._changes[-1].ready):
            if self._changes[-1].at_s == now and len(self._changes) > 1:
                self._changes.pop()
            self._changes.append(change)

    def figures(self, seconds: float) -> ReplicaFigures:
        """What came of it in a run of so many seconds."""
        began = zip(self._began, self._states, strict=True)
        held = self._held_seconds + sum(seconds - moment for moment, state in began if state is not _State.OFF)
        return ReplicaFigures(
            least=self._settings.least,
            most=self._settings.most,
            startup_s=self._settings.startup,
            target=self._settings.target,
            changes=self._changes,
            started=self._started,
            mean_held=held / seconds if seconds else float(self._settings.least),
            max_held=max(change.held for change in self._changes),
            held_s=held,
        )
