"""What vLLM's front ends know of the engines: counts that a coordinator gathers and publishes now and then.

    engines ── counts, when they change ──► coordinator ── every 100 ms, if they changed; else every 5 s ──► front ends

Facts of ``v1/engine/coordinator.py``. It publishes when its poll times out, and every message from an engine begins
the poll anew: 50 ms have to pass in silence, unless a step of all ranks was seen to end; what is published then are
the counts before the step that follows. Since 0.33 that holds for ranks that step together alone.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenyard.sim.parallel.routers.router import EngineReport

__all__ = ["Coordinator", "Counts"]

_INTERVAL, _IDLE_INTERVAL, _SILENCE = 0.1, 5.0, 0.05


class Counts(NamedTuple):
    """Of one engine, as they were published."""

    num_waiting: int = 0
    num_running: int = 0
    kv_usage: float = 0.0


class Coordinator:
    """Published counts at any moment; messages take no time. It starts, and publishes, at 0."""

    def __init__(self, num_engines: int, *, needs_silence: bool, steps_together: bool) -> None:
        """``needs_silence``: the 50 ms; ``steps_together``: what is published are the counts between two steps."""
        self._counts = [Counts()] * num_engines
        self._silence = _SILENCE if needs_silence else 0.0
        self._steps_together = steps_together
        self._published = tuple(self._counts)
        self._number = 0
        """Of what is published: front ends forget what they added when it changes."""
        self._published_at = 0.0
        self._heard_at = 0.0
        self._changed = False
        self._before_step: tuple[Counts, ...] | None = None
        self._last_step = (-1, -1)

    def hear(self, now: float, report: EngineReport) -> None:
        """An engine's counts have changed."""
        self._publish_until(now)
        step = (report.wave, report.step)
        if self._steps_together and step > self._last_step:
            if self._changed:
                self._before_step = tuple(self._counts)
            self._last_step = step
        self._counts[report.rank] = Counts(report.num_waiting, report.num_running, report.kv_usage)
        self._changed = True
        self._heard_at = now

    def published(self, now: float) -> tuple[int, tuple[Counts, ...]]:
        """The last counts that were published before ``now``, and how many times that had happened."""
        self._publish_until(now)
        return self._number, self._published

    def _publish_until(self, now: float) -> None:
        while (moment := self._next_moment) < now:
            if self._before_step is not None:
                self._published, self._before_step = self._before_step, None
            else:
                self._published = tuple(self._counts)
                self._changed = False
            self._number += 1
            self._published_at = self._heard_at = moment

    @property
    def _next_moment(self) -> float:
        interval = _INTERVAL if self._changed else _IDLE_INTERVAL
        silence = self._silence if self._before_step is None else 0.0
        return max(self._heard_at + silence, self._published_at + interval)
