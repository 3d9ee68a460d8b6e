"""Which positions stay reachable by a hit: where a group needs only what lies right before it, the rest is not kept.

prompt         | a a a a | a a a a | a a a a | a a |
repeated        ------------------------------^     resumes at the last whole block before its last token
shared prefix   ----------^                         prompts that part here resume here
"""

from __future__ import annotations

from typing import NamedTuple

from tokenyard.request import Request

__all__ = ["Reachable", "Retention"]


class Reachable(NamedTuple):
    """Positions of one request that a later hit can end at."""

    interval: int
    """Every so many tokens; 0: nowhere but at ``boundaries``."""
    boundaries: tuple[int, ...]
    """Tokens; a hit ends at the last aligned position up to there."""


class Retention:
    """The rule for all requests; ``interval`` is None where every position is kept."""

    __slots__ = ("interval",)

    def __init__(self, interval: int | None = None) -> None:
        self.interval = interval

    def of(self, request: Request) -> Reachable | None:
        """What of the request stays reachable; None: everything."""
        if self.interval is None:
            return None
        # A repeated prompt computes its last token again.
        end, junction = request.num_prompt_tokens - 1, request.shared_prefix_boundary
        return Reachable(self.interval, (end, junction) if junction else (end,))
