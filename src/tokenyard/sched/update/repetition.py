"""Output that goes round in circles: a pattern that stands several times in a row at the end ends its request."""

from __future__ import annotations

from tokenyard.params import RepetitionDetectionParams
from tokenyard.request import Request

__all__ = ["repeats"]


def repeats(request: Request, num_tokens: int, params: RepetitionDetectionParams) -> bool:
    """Whether the output of a request of ``num_tokens`` tokens ends with a repeated pattern.

    A tail of period ``size`` is one whose tokens equal those ``size`` places before them.
    """
    sizes = range(max(params.min_pattern_size, 1), params.max_pattern_size + 1)
    if not sizes:
        return False
    start = max(request.num_prompt_tokens, num_tokens - sizes[-1] * params.min_count)
    output = request.token_slice(start, num_tokens)
    for size in sizes:
        tail = output[-size * params.min_count :]
        if len(tail) < size * params.min_count:
            return False
        if (tail[size:] == tail[:-size]).all():
            return True
    return False
