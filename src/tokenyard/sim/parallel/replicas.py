"""Which of the engines there are: off, starting, ready, or ending what they have.

off --start--> starting --after startup--> ready --stop--> draining --its last request ends--> off
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import inf
from typing import Protocol

from tokenyard.explain.report.replicas import ReplicaChange, ReplicaFigures
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sim.parallel.autoscaler import Autoscaler, Autoscaling

__all__ = ["Replicas"]


class _State(Enum):
    OFF = "off"
    ON = "on"
    DRAINING = "draining"


class _Engine(Protocol):
    """What is asked of an engine."""

    scheduler: Scheduler

    @property
    def num_waiting(self) -> int: ...

    @property
    def has_work(self) -> bool: ...


class Replicas:
    """As many of ``engines`` as the rule says. One that is stopped gets no request and ends those that it has, on GPUs
    that are free for another replica only then.
    """

    def __init__(self, settings: Autoscaling, engines: Sequence[_Engine]) -> None:
        """So many as there are at least are ready at once. ``engines`` are as many as there may be."""
        assert len(engines) == settings.most
        self._settings = settings
        self._engines = engines
        self._rule = Autoscaler(settings)
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
        """Those that take requests."""
        return [i for i, state in enumerate(self._states) if state is _State.ON and self._ready_at[i] <= now]

    @property
    def next_moment(self) -> float:
        """When something happens by itself: a decision, or a replica that is ready; infinite: nothing will."""
        return min((self._next_decision, *(moment for moment in self._ready_at if moment > self._noted)))

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
