"""The victim that loses least: of the running requests the one with the fewest computed tokens.

vLLM takes the youngest, however far its prefill has come. The request that has computed most is never the victim while
others run, so somebody always gets on (the waste was measured in vLLM's issue 54644).
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenyard.request import Request
from tokenyard.sched.policy import Policy

__all__ = ["LeastComputed"]


class LeastComputed(Policy):
    """First come, first served; the least computed running request is the victim, the youngest of equals."""

    reads_tokens = False

    def victim(self, running: Sequence[Request]) -> int:
        return min(range(len(running)), key=lambda i: (running[i].num_computed_tokens, -i))
