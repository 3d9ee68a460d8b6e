"""Output that goes round in circles: a pattern that stands several times in a row at the end ends its request.

    ... x | a b | a b | a b        size 2, 3 times: the last 4 tokens equal those 2 places before them

How many tokens at the end of an output do so is counted on with each token, for every size and over all rows at once.
Only where there are as many as it takes is an output looked at itself.
"""

from __future__ import annotations

import numpy as np

from tokenyard.core.columns import NO_ROWS, IntArray, any_true
from tokenyard.core.params import RepetitionDetectionParams
from tokenyard.core.request import Request
from tokenyard.core.table import MOST_STOP_IDS, NEVER, NO_TOKEN, RequestTable

MOST_COUNTED = 256
"""Longest pattern in tokens that is counted on; the output of a request that asks for longer ones is looked at in full
with every token.
"""


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


class Repetitions:
    """Counts on, for tenants of the table that any token may stop; memory is taken when the first of them comes.

    What is known of a slot holds while the table says that it has been followed up to its last token but one; else it
    is made anew from the tenant's output.
    """

    def __init__(self, table: RequestTable) -> None:
        self._table = table
        self._recent = self._runs = self._needed = np.zeros((0, 0), np.int64)
        """Shape ``[slots, sizes]``, from size 1 on: the token so many places before the next one, how many tokens at
        the end equal those so many places before them, and how many it takes.
        """

    def may_stop(self, rows: IntArray, slots: IntArray, tokens: IntArray, num_tokens: IntArray) -> IntArray:
        """Rows among ``rows`` that their token may stop, which has just made them ``num_tokens`` long; a superset."""
        if not len(rows):
            return NO_ROWS
        at, token, length = slots[rows], tokens[rows], num_tokens[rows]
        unknown = self._table.followed[at] != length - 1
        if any_true(unknown):
            self._begin(at[unknown], length[unknown] - 1)
        recent = self._recent[at]
        runs = (self._runs[at] + 1) * (recent == token[:, None])
        self._runs[at] = runs
        self._recent[at, 1:] = recent[:, :-1]
        self._recent[at, 0] = token
        self._table.set_followed(at, length)
        reached = runs >= self._needed[at]
        return rows[reached.any(axis=1)] if any_true(reached) else NO_ROWS

    def _begin(self, slots: IntArray, lengths: IntArray) -> None:
        """Look at the outputs of the tenants of ``slots``, up to ``lengths`` tokens."""
        tenants = self._table.tenants(slots)
        looked_for = [each.sampling_params.repetition_detection or RepetitionDetectionParams() for each in tenants]
        self._make_room(max(min(params.max_pattern_size, MOST_COUNTED) for params in looked_for))
        for request, params, slot, length in zip(tenants, looked_for, slots.tolist(), lengths.tolist(), strict=True):
            self._recent[slot], self._runs[slot], self._needed[slot] = NO_TOKEN, 0, NEVER
            too_many = len(request.sampling_params.stop_token_ids) > MOST_STOP_IDS
            if too_many or params.max_pattern_size > MOST_COUNTED:
                self._needed[slot] = 0
                continue
            for size in _sizes(params):
                self._needed[slot, size - 1] = size * (params.min_count - 1)
            if length > request.num_prompt_tokens:
                self._count(request, slot, length, params)

    def _count(self, request: Request, slot: int, length: int, params: RepetitionDetectionParams) -> None:
        """Count in the output that a tenant has, as if it had just come token by token."""
        longest = params.max_pattern_size
        # What lies further back can only make a run longer that is long enough as it is.
        output = request.token_slice(max(request.num_prompt_tokens, length - longest * params.min_count), length)
        latest = output[::-1][:longest]
        self._recent[slot, : len(latest)] = latest
        for size in range(1, min(longest + 1, len(output))):
            differing = (output[size:] != output[:-size]).nonzero()[0]
            self._runs[slot, size - 1] = len(output) - size - 1 - (differing[-1] if len(differing) else -1)

    def _make_room(self, sizes: int) -> None:
        """Have columns for all slots of the table and for these sizes, one at least."""
        slots, most = len(self._table.followed), max(sizes, 1, self._runs.shape[1])
        have, had = self._runs.shape
        if (slots, most) == (have, had):
            return
        for name, empty in (("_recent", NO_TOKEN), ("_runs", 0), ("_needed", NEVER)):
            larger = np.full((slots, most), empty, np.int64)
            larger[:have, :had] = getattr(self, name)
            setattr(self, name, larger)
