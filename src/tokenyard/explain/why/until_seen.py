"""What a request waits for before the first step that sees it: its way to the scheduler, a step that runs, or none."""

from __future__ import annotations

from tokenyard.explain.held_back.held_back import BETWEEN_STEPS, FRONT_END, STEP_IN_PROGRESS, Cause

__all__ = ["until_seen"]


def until_seen(
    start: int, seen: int, *, before: int | None, over: int, taken_in: int | None
) -> list[tuple[Cause, int, int]]:
    """The time from ``start`` to ``seen``, in microseconds, in pieces of one cause each; some may be empty.

    ``start`` is its arrival at the front end and ``seen`` the begin of the first step that sees it. It was on its way

    * until the step ``before`` began: otherwise that one would have seen it;
    * from ``over``, the end of that step, until the scheduler had it (``taken_in``): one without work takes a request
      in at once. None where somebody ran: the next step then begins as soon as it can.

    In between, on its way or there, it waited for the step that ran.
    """
    sent = start if before is None else min(max(before, start), seen)
    over = max(over, sent)
    there = over if taken_in is None else min(max(taken_in, over), seen)
    return [
        (FRONT_END, start, sent),
        (STEP_IN_PROGRESS, sent, over),
        (FRONT_END, over, there),
        (BETWEEN_STEPS, there, seen),
    ]
