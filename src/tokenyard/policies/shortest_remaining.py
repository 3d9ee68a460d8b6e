"""Shortest remaining work first, with ageing.

Remaining work is what a request still has to compute: known tokens, plus its output up to ``max_tokens`` (twice, since
each takes a step). ``max_tokens`` is all a scheduler knows; where all clients set it too high, prompts decide. A
request with ``predicted_output_tokens`` is believed, up to ``max_tokens``; one that outlives its prediction has one
token to go.
Waiting is worth ``ageing`` tokens a second, so nobody starves: a request that arrives ``w / ageing`` seconds after one
with ``w`` tokens more work does not go before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tokenyard.errors import ConfigError
from tokenyard.policies.keyed import Key, KeyedPolicy
from tokenyard.policies.service import OUTPUT_WEIGHT
from tokenyard.request import Request

__all__ = ["ShortestRemaining", "remaining_work"]


def remaining_work(request: Request) -> int:
    """In input tokens; cache hits that it may find when it is admitted are not counted."""
    output = request.max_tokens - request.num_output_tokens
    predicted = request.predicted_output_tokens
    if predicted is not None:
        output = min(output, max(predicted - request.num_output_tokens, 1))
    return request.num_tokens - request.num_computed_tokens + OUTPUT_WEIGHT * output


class ShortestRemaining(KeyedPolicy):
    """Whoever has least to do goes first; the victim is the running request that has most to do."""

    reads_tokens = False
    reads_max_tokens = True

    def __init__(self, ageing: float = 1000.0) -> None:
        if not 0 < ageing < inf:
            raise ConfigError("ageing", ageing, "give a number of tokens per second above 0")
        self._ageing = ageing

    def key(self, request: Request) -> Key:
        """Sorts requests. Whoever arrives later is that much behind, so nobody need be sorted anew."""
        return remaining_work(request) + self._ageing * request.arrival_time, request.arrival_time

    def victim(self, running: Sequence[Request]) -> int:
        return max(range(len(running)), key=lambda i: (remaining_work(running[i]), i))
