"""Whether a trace holds a whole run: a process that is killed, or still runs, leaves one that ends too early."""

from __future__ import annotations

import msgspec

from tokenyard.trace.format.schema import TraceStart

__all__ = ["Partial", "is_at_step_limit", "partial_of"]


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """How a trace shows that its run went on after it."""

    cut_off: bool
    """The last line of a file is cut off, or packed data end early."""
    at_step_limit: bool
    """The trace ends because its step limit was reached."""
    unfinished: int
    """Requests that had arrived and not ended when the trace did."""
    requests: int
    """Requests that had arrived."""

    def __str__(self) -> str:
        signs = []
        if self.cut_off:
            signs.append("its last line is cut off")
        if self.at_step_limit:
            signs.append("it ends at its step limit")
        if self.unfinished:
            signs.append(f"{self.unfinished:,} of {self.requests:,} requests had not ended when it did")
        why = "" if self.at_step_limit else " What wrote it was interrupted, or still writes."
        return f"This trace is partial: {', and '.join(signs)}.{why}"


def partial_of(*, cut_off: bool, at_step_limit: bool, requests: int, finished: int) -> Partial | None:
    """None for a trace that shows no sign of ending too early.

    ``finished`` may be more than ``requests``, where a trace began while some ran. A trace that does not record
    arrivals and ends has no ``requests``.
    """
    unfinished = max(requests - finished, 0)
    if not (cut_off or at_step_limit or unfinished):
        return None
    return Partial(cut_off=cut_off, at_step_limit=at_step_limit, unfinished=unfinished, requests=requests)


def is_at_step_limit(start: TraceStart | None, first_step: int | None, last_step: int | None) -> bool:
    """The trace holds as many steps as its first record allows."""
    if start is None or not start.max_steps or first_step is None or last_step is None:
        return False
    return last_step - first_step + (start.every_n or 1) >= start.max_steps
