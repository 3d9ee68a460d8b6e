"""A model over blocks: token ids, positions and block tables in, logits out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from tokenyard.core.arrays import Int32Array, IntArray
from tokenyard.serve.torch.adapters import NO_ADAPTER, Adapter, RowAdapters
from tokenyard.serve.torch.attention import BlockBatch, LayerKV, PagedAttention, StepRows
from tokenyard.serve.torch.checkpoint import require_torch
from tokenyard.serve.torch.sampling import rows_at_once


class BlockGroup(msgspec.Struct, frozen=True):
    """A KV-cache group as attention sees it."""

    block_size: int
    window: int
    """Tokens; 0: no window."""


class PagedModel:
    """A transformers model whose attention reads and writes blocks."""

    def __init__(self, model: Any, device: str) -> None:
        self._model, self._device = model, device
        self.attention = PagedAttention(model)
        self._groups: Sequence[BlockGroup] = ()
        self._adapters: RowAdapters | None = None
        self._states: Any = None
        """What the layers returned in the newest step."""
        self._computes = True
        self._take_over(model.base_model)

    def bind(self, layers: Sequence[LayerKV], groups: Sequence[BlockGroup]) -> None:
        """Give it memory for its layers."""
        self._groups = groups
        self.attention.bind(layers)

    def adapt(self, adapters: Sequence[Adapter]) -> None:
        """Give it LoRA adapters, numbered in this order. ConfigError for one that it cannot take."""
        self._adapters = RowAdapters(self._model, adapters, self._device) if adapters else None

    def _take_over(self, layers: Any) -> None:
        """Keep what the layers return, so that more logits of a step can be had from it."""
        compute = layers.forward

        def forward(*args: Any, **options: Any) -> Any:
            if self._computes:
                self._states = compute(*args, **options)
            return self._states

        layers.forward = forward

    @property
    def hidden(self) -> Any:
        """States of the last layer after its norm, of all tokens of the newest step; shape ``[tokens, size]``."""
        return self._states.last_hidden_state[0]

    def logits(
        self,
        ids: IntArray,
        rows: StepRows,
        tables: Sequence[Int32Array],
        wanted: IntArray,
        adapters: IntArray | None = None,
    ) -> Any:
        """Compute the tokens ``ids`` of ``rows``; logits at the places ``wanted``, shape ``[wanted, vocabulary]``.

        ``tables`` are the rows' block tables per KV-cache group, ``adapters`` what each row asks for (None: nothing).
        """
        torch = require_torch()
        batches = [
            BlockBatch(table, rows, group.block_size, group.window, self._device)
            for table, group in zip(tables, self._groups, strict=True)
        ]
        self.attention.begin(batches)
        if self._adapters is not None:
            asked = np.full(len(rows.counts), NO_ADAPTER) if adapters is None else adapters
            self._adapters.begin(asked, rows.counts)
        self._states = None
        output = self._model(
            input_ids=_on(torch, ids, self._device).unsqueeze(0),
            position_ids=_on(torch, rows.positions, self._device).unsqueeze(0),
            use_cache=False,
            logits_to_keep=_on(torch, wanted, self._device),
        )
        self.attention.begin(())
        return output.logits[0]

    def more_logits(self, places: IntArray) -> Iterator[Any]:
        """Logits at further places of the newest step, few of them at a time: those of a whole prompt are large."""
        torch = require_torch()
        step = rows_at_once(self._model.config.get_text_config().vocab_size)
        self._computes = False
        try:
            for begin in range(0, max(len(places), 1), step):
                wanted = _on(torch, places[begin : begin + step], self._device)
                yield self._model(input_ids=wanted.unsqueeze(0), use_cache=False, logits_to_keep=wanted).logits[0]
        finally:
            self._computes = True


def _on(torch: Any, column: IntArray, device: str) -> Any:
    return torch.from_numpy(np.ascontiguousarray(column, np.int64)).to(device)
