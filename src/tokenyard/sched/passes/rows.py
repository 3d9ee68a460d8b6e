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

    __slots__ = ("_ends", "computed", "granted", "requests", "slots", "want")

    def __init__(
        self,
        requests: tuple[Request, ...],
        slots: IntArray,
        computed: IntArray,
        want: IntArray,
        ends: IntArray | None = None,
    ) -> None:
        """``ends``: ``computed + want``, where the caller has it."""
        self.requests = requests
        self.slots = slots
        self.computed = computed
        """Computed tokens before the step."""
        self.want = want
        """Tokens wanted, before the budget is looked at."""
        self.granted = want
        """Tokens granted: what was wanted, but for the row at which the budget ends."""
        self._ends = ends

    @property
    def ends(self) -> IntArray:
        """Computed tokens after the step: ``computed + granted``."""
        if self._ends is None:
            self._ends = self.computed + self.granted
        return self._ends

    def fit(self, done: int, tokens: int, slots_each: int = 0) -> tuple[int, int]:
        """Rows ``done..end-1`` can be paid for with ``tokens``, the last of them perhaps only in part.

        A row takes ``slots_each`` beside its tokens; those of the last one need not fit. Returns ``end`` and the tokens
        they take.
        """
        if self.granted is not self.want:
            self.granted, self._ends = self.want, None
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
        self.granted, self._ends = self.want.copy(), None
        self.granted[done + last] -= int(spent[last]) - tokens
        return done + last + 1, tokens

    def run(self, start: int, end: int) -> tuple[IntArray, IntArray, IntArray]:
        """Slots, computed tokens after the step and granted tokens of the rows ``start..end-1``."""
        if start == 0 and end == len(self.requests):
            return self.slots, self.ends, self.granted
        return self.slots[start:end], self.ends[start:end], self.granted[start:end]

    def ask_only(self, row: int, tokens: int) -> None:
        """The row wants, and is granted, so many tokens."""
        self.want[row] = self.granted[row] = tokens
        self._ends = None

    def drop(self, row: int) -> None:
        """Forget a row whose request was preempted."""
        self.requests = self.requests[:row] + self.requests[row + 1 :]
        self.slots, self.computed, self.want, self.granted = (
            np.delete(column, row) for column in (self.slots, self.computed, self.want, self.granted)
        )
        self._ends = None

    def cut(self, n: int) -> None:
        """Keep the first ``n`` rows."""
        self.requests = self.requests[:n]
        self.slots, self.computed, self.granted = self.slots[:n], self.computed[:n], self.granted[:n]
        self._ends = None if self._ends is None else self._ends[:n]
