"""A request's way to the scheduler, as far as a trace tells: the one rule for `why` and for what-if.

A server notes when a request arrived; the scheduler gets it later. The trace shows the first step that sees it, and
the step before that one, which did not:

    sent ── on its way ── left ── a step runs ── over ── on its way ── there ── nothing runs ── seen

It was surely on its way until ``left``: the step before began without it. From ``left`` to ``over``, the end of that
step, nobody can tell whether it was on its way or there. An engine without work takes a request in at once, so from
``over`` to ``there`` it was on its way again. An engine whose last request ended after this one was sent was not
without work for the whole way: the time until ``over`` stays untold.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenyard.trace.format.request_timeline import micros
from tokenyard.trace.format.schema import RequestArrived, StepSnapshot

__all__ = ["WayIn", "taken_in_at_once", "way_in"]


class WayIn(NamedTuple):
    """Moments of one request in microseconds, none earlier than the one before it."""

    sent: int
    left: int
    over: int
    there: int
    seen: int

    @property
    def on_its_way(self) -> int:
        """Microseconds that it was surely on its way; all of them where the engine was without work since ``sent``."""
        return self.left - self.sent + self.there - self.over


def way_in(sent: int, seen: int, *, before: int | None, over: int | None, taken_in: int | None) -> WayIn:
    """What is known of a request that was ``sent`` and that the step which began at ``seen`` is the first to see.

    ``before`` and ``over`` are begin and end of the step before: ``before`` is None if there is none, and ``over`` is
    None if the trace does not record its end. ``taken_in`` is when an engine without work got the request, and None
    where somebody ran (`taken_in_at_once`). All are microseconds on one clock.
    """
    sent = min(sent, seen)
    left = sent if before is None else min(max(before, sent), seen)
    end = seen if over is None else min(max(over, left), seen)
    there = end if taken_in is None else min(max(taken_in, end), seen)
    return WayIn(sent, left, end, there, seen)


def taken_in_at_once(arrived: RequestArrived, snapshot: StepSnapshot | None) -> int | None:
    """When the scheduler got a request, in microseconds, if the step that sees it first found nobody running."""
    if arrived.ts is None or snapshot is None or snapshot.num_running != 0:
        return None
    return micros(arrived.ts)
