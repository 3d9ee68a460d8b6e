"""The running requests that want tokens in a step, row by row."""

from __future__ import annotations

import numpy as np

from tokenyard.columns import IntArray, counting, total
from tokenyard.request import Request

__all__ = ["Rows"]


class Rows:
    """Running requests that want tokens in this step, as parallel columns of shape ``[n]``.

    Other steps share ``requests`` and ``slots``: they are replaced, never changed.
    """

    __slots__ = ("computed", "granted", "requests", "slots", "want")

    def __init__(self, requests: tuple[Request, ...], slots: IntArray, computed: IntArray, want: IntArray) -> None:
        self.requests = requests
        self.slots = slots
        self.computed = computed
        """Computed tokens before the step."""
        self.want = want
        """Tokens wanted, before the budget is looked at."""
        self.granted = want
        """Tokens granted: what was wanted, but for the row at which the budget ends."""

    def fit(self, done: int, tokens: int, slots_each: int = 0) -> tuple[int, int]:
        """Rows ``done..end-1`` can be paid for with ``tokens``, the last of them perhaps only in part.

        A row takes ``slots_each`` beside its tokens; those of the last one need not fit. Returns ``end`` and the tokens
        they take.
        """
        self.granted = self.want
        open_want = self.want[done:]
        asked = total(open_want)
        if asked + slots_each * (len(open_want) - 1) <= tokens:
            return len(self.want), asked
        spent = open_want.cumsum()
        if slots_each:
            spent += slots_each * counting(len(spent))
        last = int(spent.searchsorted(tokens))
        if slots_each:
            over = int(spent[last]) - tokens
            if over >= open_want[last]:
                return done + last, total(open_want[:last])
            tokens -= slots_each * last
            spent[last] = tokens + over
        self.granted = self.want.copy()
        self.granted[done + last] -= int(spent[last]) - tokens
        return done + last + 1, tokens

    def run(self, start: int, end: int) -> tuple[IntArray, IntArray, IntArray]:
        """Slots, computed tokens and granted tokens of the rows ``start..end-1``."""
        if start == 0 and end == len(self.requests):
            return self.slots, self.computed, self.granted
        return self.slots[start:end], self.computed[start:end], self.granted[start:end]

    def drop(self, row: int) -> None:
        """Forget a row whose request was preempted."""
        self.requests = self.requests[:row] + self.requests[row + 1 :]
        self.slots, self.computed, self.want, self.granted = (
            np.delete(column, row) for column in (self.slots, self.computed, self.want, self.granted)
        )

    def cut(self, n: int) -> None:
        """Keep the first ``n`` rows."""
        self.requests = self.requests[:n]
        self.slots, self.computed, self.granted = self.slots[:n], self.computed[:n], self.granted[:n]
