"""Where drafts come from: the request's own text, or a small model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from tokenyard.core.arrays import Int32Array, IntArray
from tokenyard.core.config import GroupKind
from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import LayerGroup
from tokenyard.memory.layer_caches import CacheSettings, layer_caches
from tokenyard.models.spec import ModelSpec
from tokenyard.serve.torch.attention import HeldBlocks, KVTensors, StepRows, elements_of
from tokenyard.serve.torch.checkpoint import load_checkpoint, read_spec
from tokenyard.serve.torch.model import BlockGroup, PagedModel
from tokenyard.serve.torch.request_rows import NO_DRAFT, RequestRows

# ---------------------------------------------------------------------------------------------------------------------
# Where drafts come from; the request's own text is one place.


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


# ---------------------------------------------------------------------------------------------------------------------
# A small model that drafts: its KV lies behind the block ids of the target model.


class DraftModel:
    """Goes on by itself, greedily.

    It computes what the target has computed and the token that was sampled, so that its KV is where the target's is,
    also in blocks that others find in the prefix cache; then it runs ahead token by token. It follows the block table
    of a full-attention group of the target, if there is one; else it sees no further back than the target does.
    """

    def __init__(
        self, folder: Path, target: ModelSpec, groups: Sequence[LayerGroup], dtype: str, device: str, max_model_len: int
    ) -> None:
        """Load the weights. ConfigError if the model cannot be run, or does not share the target's vocabulary."""
        spec, _ = read_spec(folder, dtype)
        if spec.vocab_size != target.vocab_size:
            fix = f"a draft model shares the target's vocabulary ({target.vocab_size})"
            raise ConfigError("speculative_config.model", f"{spec.name}: vocab_size {spec.vocab_size}", fix)
        kinds = [group.first.kind for group in groups]
        self._group = kinds.index(GroupKind.FULL) if GroupKind.FULL in kinds else 0
        followed = groups[self._group].first
        settings = CacheSettings(block_size=followed.block_size, max_model_len=max_model_len, max_num_batched_tokens=1)
        caches = layer_caches(spec, settings)
        self._layers = LayerGroup(layers=tuple(caches), places=tuple(range(len(caches))))
        self._windows = [min(filter(None, (cache.window, followed.window)), default=0) for cache in caches]
        self._block_size, self._max_model_len = followed.block_size, max_model_len
        self.model = PagedModel(load_checkpoint(folder, dtype=dtype, device=device), device)

    @property
    def elements_per_block(self) -> int:
        """Elements of a block of its KV, over all layers."""
        return sum(sum(elements_of(cache)) for cache in self._layers.layers)

    def bind(self, num_blocks: int, dtype: Any, device: str) -> None:
        """Memory for its KV. Layers of equal windows are a group to its attention; the table is the same for all."""
        tensors = KVTensors([self._layers], num_blocks, dtype, device)
        windows = sorted(set(self._windows))
        layers = [
            msgspec.structs.replace(layer, group=windows.index(window))
            for layer, window in zip(tensors.layers, self._windows, strict=True)
        ]
        self._num_groups = len(windows)
        self.model.bind(layers, [BlockGroup(self._block_size, window) for window in windows])

    def propose(
        self, rows: RequestRows, slots: IntArray, step: StepRows, held: HeldBlocks, num_drafts: int
    ) -> IntArray:
        """See :class:`~tokenyard.serve.torch.drafting.Drafter`."""
        room = np.minimum(held.capacity, self._max_model_len)
        ends = step.starts + step.counts
        table = held.tables[self._group]
        drafts = np.full((len(slots), num_drafts), NO_DRAFT, np.int64)
        known = StepRows(step.starts, np.minimum(ends, room) - step.starts)
        ids = rows.tokens[np.repeat(slots, known.counts), known.positions].astype(np.int64)
        likeliest = self._likeliest(ids, known, table)
        for ahead in range(num_drafts):
            # The newest token may stand where no block is yet: then the next step's drafts begin with it.
            here = (ends + ahead <= room).nonzero()[0]
            if ahead and len(here):
                one = StepRows(ends[here] + ahead - 1, np.ones(len(here), np.int64))
                likeliest[here] = self._likeliest(drafts[here, ahead - 1], one, table[here])
            drafts[here, ahead] = likeliest[here]
        return drafts

    def _likeliest(self, ids: IntArray, rows: StepRows, table: Int32Array) -> IntArray:
        logits = self.model.logits(ids, rows, [table] * self._num_groups, rows.counts.cumsum() - 1)
        found: IntArray = logits.argmax(-1).cpu().numpy()
        return found
