"""Where drafts come from; the request's own text is one place."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tokenyard.columns import Int32Array, IntArray
from tokenyard.engine.torch.attention.block_batch import HeldBlocks, StepRows
from tokenyard.engine.torch.request_rows import NO_DRAFT, RequestRows

__all__ = ["Drafter", "NgramDrafter"]


class Drafter(Protocol):
    """Guesses at what follows the rows of a step, which has just been sampled from."""

    def propose(
        self, rows: RequestRows, slots: IntArray, step: StepRows, held: HeldBlocks, num_drafts: int
    ) -> IntArray:
        """Drafts for ``slots``, shape ``[n, num_drafts]``, NO_DRAFT after the last one of a row.

        ``step`` says what is known of the rows that was not before it: their tokens from its starts on. ``held`` are
        their blocks: nothing can be written beyond them.
        """


class NgramDrafter:
    """What followed the last tokens when they stood in the text before (prompt lookup)."""

    def __init__(self, shortest: int, longest: int) -> None:
        """Looks for the ``longest`` last tokens first, then for fewer, down to ``shortest``."""
        self._shortest, self._longest = shortest, longest

    def propose(
        self, rows: RequestRows, slots: IntArray, step: StepRows, held: HeldBlocks, num_drafts: int
    ) -> IntArray:
        drafts = np.full((len(slots), num_drafts), NO_DRAFT, np.int64)
        for row, slot in enumerate(slots.tolist()):
            found = self._lookup(rows.tokens[slot, : rows.lengths[slot]])[:num_drafts]
            drafts[row, : len(found)] = found
        return drafts

    def _lookup(self, tokens: Int32Array) -> Int32Array:
        """What followed the first place where the most of the last tokens stand."""
        for length in range(min(self._longest, len(tokens) - 1), self._shortest - 1, -1):
            windows = np.lib.stride_tricks.sliding_window_view(tokens[:-1], length)
            found = (windows == tokens[-length:]).all(axis=1).nonzero()[0]
            if len(found):
                after = int(found[0]) + length
                return tokens[after:]
        return tokens[:0]
