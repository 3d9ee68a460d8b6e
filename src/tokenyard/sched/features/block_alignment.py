"""Mamba states at block ends: in cache mode ``align`` a step keeps the state it ends with, so prefill has to end where
blocks do.

    known tokens   | block | block | block | rest |
    steps            ------> ------------->  ---->     whole blocks, up to the last full one; then what is left
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.columns import IntArray

if TYPE_CHECKING:
    from tokenyard.sched.passes.rows import Rows

__all__ = ["BlockAlignment"]


class BlockAlignment:
    """Cuts what a step may compute of a prompt."""

    def __init__(self, block_size: int, *, drops_last_hit: bool) -> None:
        self.block_size = block_size
        self._kept_back = block_size if drops_last_hit else 0
        """An EAGLE head drops the last matched block of full attention: the state before it has to be there."""

    def split(self, num_new_tokens: int, num_computed: int, num_tokens: int) -> int:
        """How many of ``num_new_tokens`` may follow ``num_computed`` of ``num_tokens`` known ones; perhaps none."""
        last = max(num_tokens // self.block_size * self.block_size - self._kept_back, 0)
        if num_computed + num_new_tokens < last:
            return num_new_tokens // self.block_size * self.block_size
        return num_new_tokens if num_computed >= last else last - num_computed

    def cut(self, rows: Rows, done: int, end: int, asked: int, num_tokens: IntArray) -> tuple[int, int]:
        """Cut the run ``done..end-1`` before the first row within its prompt, or split that row alone.

        ``num_tokens`` is the table's column. Returns the new end and tokens; ``(done, 0)`` if the row gets none.
        """
        known = num_tokens[rows.slots[done:end]]
        # The last known token is computed as it is, alone or with drafts.
        within = (rows.computed[done:end] < known - 1).nonzero()[0]
        if not within.size:
            return end, asked
        if within[0] > 0:
            end = done + int(within[0])
            return end, int(rows.granted[done:end].sum())
        granted = self.split(int(rows.granted[done]), int(rows.computed[done]), int(known[0]))
        if not granted:
            return done, 0
        rows.want[done] = rows.granted[done] = granted
        return done + 1, granted
