"""Output that goes round in circles: a pattern that stands several times in a row at the end ends its request.

... x | a b | a b | a b        size 2, 3 times: the last 4 tokens equal those 2 places before them
"""

from __future__ import annotations

from tokenyard.core.params import RepetitionDetectionParams
from tokenyard.core.request import Request


def repeats(request: Request, num_tokens: int, params: RepetitionDetectionParams) -> bool:
    """Whether the output of a request of ``num_tokens`` tokens ends with a repeated pattern."""
    sizes = _sizes(params)
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


def _sizes(params: RepetitionDetectionParams) -> range:
    return range(max(params.min_pattern_size, 1), params.max_pattern_size + 1)
