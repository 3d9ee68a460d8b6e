"""What a request waits for before the first step that sees it: its way to the scheduler, a step that runs, or none."""

from __future__ import annotations

from tokenyard.explain.held_back.held_back import BETWEEN_STEPS, FRONT_END, STEP_IN_PROGRESS, Cause
from tokenyard.trace.read.way_in import WayIn

__all__ = ["until_seen"]


def until_seen(way: WayIn) -> list[tuple[Cause, int, int]]:
    """The time from its arrival to the first step that sees it, in microseconds, in pieces; some may be empty.

    Each piece has one cause. While a step ran, it waited for that step, whether it was on its way or there.
    """
    return [
        (FRONT_END, way.sent, way.left),
        (STEP_IN_PROGRESS, way.left, way.over),
        (FRONT_END, way.over, way.there),
        (BETWEEN_STEPS, way.there, way.seen),
    ]
