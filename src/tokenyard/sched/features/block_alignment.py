"""Mamba states at block ends: in cache mode ``align`` a step keeps the state it ends with, so prefill has to end where
blocks do.

    known tokens   | block | block | block | rest |
    steps            ------> ------------->  ---->     whole blocks, up to the last full one; then what is left
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenyard.columns import IntArray
from tokenyard.config import SchedulerConfig
from tokenyard.request import Request

if TYPE_CHECKING:
    from tokenyard.sched.passes.rows import Rows

__all__ = ["BlockAlignment", "StateAlignment"]


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

    def split_request(self, request: Request, num_new_tokens: int, num_computed: int) -> int:
        """:meth:`split` for a request."""
        return self.split(num_new_tokens, num_computed, request.num_tokens)

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
        granted = self.split_request(rows.requests[done], int(rows.granted[done]), int(rows.computed[done]))
        if not granted:
            return done, 0
        rows.ask_only(done, granted)
        return done + 1, granted


class StateAlignment(BlockAlignment):
    """As vLLM 0.33: every chunk but the last ends where a block does, and at the state that others will resume from.

    A block that no step can compute whole is come to the end of in parts.
    """

    def __init__(self, block_size: int, config: SchedulerConfig, *, drops_last_hit: bool) -> None:
        super().__init__(block_size, drops_last_hit=drops_last_hit)
        self._max_chunk = min(
            config.max_num_batched_tokens, config.long_prefill_token_threshold or config.max_num_batched_tokens
        )

    def split_request(self, request: Request, num_new_tokens: int, num_computed: int) -> int:
        size, start, end = self.block_size, num_computed, num_computed + num_new_tokens
        # What a preempted request has put out is computed again like a prompt.
        prefill_end = max(request.num_prompt_tokens, request.num_tokens - 1)
        if start >= prefill_end:
            return num_new_tokens
        if end < prefill_end:
            whole = end // size * size
            if whole > start or size <= self._max_chunk:
                end = whole
        junction = request.shared_prefix_boundary
        stops = [self._last_state(request.num_tokens)]
        if start % size:
            stops.append((start // size + 1) * size)
        if start < junction < end:
            stops.append(start + (junction - start) // size * size)
        return max(min((stop for stop in stops if start < stop < end), default=end) - start, 0)

    def _last_state(self, num_tokens: int) -> int:
        """The last position that a request with the same tokens can resume at: one of them is computed again."""
        known = num_tokens if self._kept_back else num_tokens - 1
        return known // self.block_size * self.block_size - self._kept_back
