"""Which blocks a step's rows write and read, per KV-cache group: made once, used by all layers of the group.

    rows of a step     [ a: 1 token | b: 1 token | c: 1 token | d: 512 tokens ]       flattened, in scheduling order
    what they write    block and place of every token
    what they read     buckets of rows with as many tokens and nearly as many blocks, padded with the null block

A row reads its blocks from the first one that its window reaches. Padding, and what lies after a row's own tokens, is
masked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tokenyard.columns import Int32Array, IntArray
from tokenyard.engine.torch.checkpoint import require_torch

__all__ = ["BlockBatch", "Bucket", "HeldBlocks", "StepRows"]


class StepRows(NamedTuple):
    """Rows of a step: row ``i`` computes ``counts[i]`` tokens from position ``starts[i]`` on."""

    starts: IntArray
    counts: IntArray

    @property
    def positions(self) -> IntArray:
        """Of all tokens, row after row."""
        offsets = self.counts.cumsum() - self.counts
        return np.arange(int(self.counts.sum())) - np.repeat(offsets - self.starts, self.counts)


class HeldBlocks(NamedTuple):
    """The blocks of a step's rows, as the request table has them when the step begins."""

    tables: list[Int32Array]
    """Per KV-cache group: row ``i`` begins with its blocks in position order; what follows them is arbitrary."""
    capacity: IntArray
    """Positions that each row's blocks can store."""


class Bucket(NamedTuple):
    """Rows that are attended to in one call."""

    tokens: Any
    """Places of their tokens in the flattened batch, shape ``[rows, tokens]``."""
    blocks: Any
    """Shape ``[rows, blocks]``."""
    mask: Any
    """Added to scores: 0 where a token attends to a place of these blocks, else minus infinity; shape
    ``[rows, 1, tokens, places]``. None: a token attends to all before it and itself, and rows begin at position 0."""


class BlockBatch:
    """One group's part of a step."""

    def __init__(
        self, table: Int32Array, rows: StepRows, block_size: int, window: int, dtype: Any, device: str
    ) -> None:
        """``table[i]`` begins with the blocks of row ``i`` in position order; ``window`` is 0 where there is none."""
        torch = require_torch()
        self._dtype, self._device, self._size, self._window = dtype, device, block_size, window
        positions = rows.positions
        of_token = np.repeat(np.arange(len(rows.counts)), rows.counts)
        self.write_blocks = torch.from_numpy(table[of_token, positions // block_size].astype(np.int64)).to(device)
        self.write_places = torch.from_numpy(positions % block_size).to(device)
        self.buckets = [self._bucket(table, rows, members) for members in self._alike(rows)]

    def _alike(self, rows: StepRows) -> list[IntArray]:
        """Rows that go into one call: as many tokens each, and at most a quarter of the blocks is padding."""
        blocks = -(-(rows.starts + rows.counts) // self._size) - self._first_blocks(rows.starts)
        steps = np.left_shift(1, np.maximum(np.log2(blocks).astype(np.int64) - 2, 0))
        from_zero = (rows.starts == 0) & (rows.counts > 1)
        keys = np.stack((rows.counts, np.where(from_zero, 0, -(-blocks // steps) * steps)), axis=1)
        _, which = np.unique(keys, axis=0, return_inverse=True)
        return [(which.reshape(-1) == i).nonzero()[0] for i in range(int(which.max()) + 1)]

    def _first_blocks(self, starts: IntArray) -> IntArray:
        """The first block that the window of a row reaches."""
        reached = np.maximum(starts - self._window + 1, 0) if self._window else np.zeros_like(starts)
        return reached // self._size

    def _bucket(self, table: Int32Array, rows: StepRows, members: IntArray) -> Bucket:
        torch, size = require_torch(), self._size
        starts, count = rows.starts[members], int(rows.counts[members[0]])
        first = self._first_blocks(starts)
        width = int((-(-(starts + count) // size) - first).max())
        columns = first[:, None] + np.arange(width)
        held = columns * size < (starts + count)[:, None]
        blocks = np.where(held, table[members[:, None], np.where(held, columns, 0)], 0).astype(np.int64)
        offsets = (rows.counts.cumsum() - rows.counts)[members]
        tokens = torch.from_numpy(offsets[:, None] + np.arange(count)).to(self._device)
        asked = starts[:, None] + np.arange(count)
        places = first[:, None] * size + np.arange(width * size)
        whole = not starts.any() and (not self._window or count <= self._window) and count > 1
        mask = None if whole else self._mask(asked, places)
        return Bucket(tokens, torch.from_numpy(blocks).to(self._device), mask)

    def _mask(self, asked: IntArray, places: IntArray) -> Any:
        """Positions that ask, shape ``[rows, tokens]``, and that are there, shape ``[rows, places]``."""
        torch = require_torch()
        ask = torch.from_numpy(asked).to(self._device)[:, None, :, None]
        there = torch.from_numpy(places).to(self._device)[:, None, None, :]
        beyond = there > ask
        if self._window:
            beyond |= there <= ask - self._window
        return torch.zeros(beyond.shape, dtype=self._dtype, device=self._device).masked_fill_(beyond, float("-inf"))
