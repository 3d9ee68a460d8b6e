"""The KV cache's memory: every block id of the pool is a row in each of a few tensors.

All groups share one pool, so a block belongs to one group at a time, and the first layers of all groups share their
tensors, as do the second ones, and so on:

    keys i     [ block 0 | block 1 | ... ]      layer i of group A, or layer i of group B
    values i   [ block 0 | block 1 | ... ]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tokenyard.connectors.memory import Tensors
from tokenyard.engine.torch.checkpoint import require_torch
from tokenyard.kv.sizing.grouping import LayerGroup
from tokenyard.kv.sizing.layer_cache import LayerCache

__all__ = ["KVTensors", "LayerKV", "elements_of"]


class LayerKV(NamedTuple):
    """Where one layer keeps keys and values."""

    group: int
    """KV-cache group, whose block table it follows."""
    keys: Any
    """Shape ``[blocks, tokens per block, KV heads, key size]``."""
    values: Any
    """Shape ``[blocks, tokens per block, KV heads, value size]``."""


def elements_of(cache: LayerCache) -> tuple[int, int]:
    """Elements of a block's keys and of its values in one layer."""
    heads, key_size, value_size = _shape(cache)
    return cache.block_size * heads * key_size, cache.block_size * heads * value_size


def _shape(cache: LayerCache) -> tuple[int, int, int]:
    """KV heads, key size, value size."""
    heads, key_size, value_size = cache.shape
    assert isinstance(heads, int), "softmax attention has heads"
    assert isinstance(key_size, int)
    assert isinstance(value_size, int)
    return heads, key_size, value_size


class KVTensors:
    """Zeroed memory for ``num_blocks`` blocks of these groups; zeroed so that what is masked is finite."""

    def __init__(self, groups: Sequence[LayerGroup], num_blocks: int, dtype: Any, device: str) -> None:
        torch = require_torch()
        self.num_blocks = num_blocks
        most: dict[int, tuple[int, int]] = {}
        for group in groups:
            for i, cache in enumerate(group.layers):
                (keys, values), (held_keys, held_values) = elements_of(cache), most.get(i, (0, 0))
                most[i] = (max(keys, held_keys), max(values, held_values))
        self._rows: dict[str, Any] = {}
        for i, sizes in most.items():
            for name, size in zip(("keys", "values"), sizes, strict=True):
                self._rows[f"{name}.{i}"] = torch.zeros((num_blocks, size), dtype=dtype, device=device)
        self.layers: list[LayerKV] = [LayerKV(-1, None, None)] * sum(len(group.layers) for group in groups)
        """By place among the model's layers."""
        for number, group in enumerate(groups):
            for i, (place, cache) in enumerate(zip(group.places, group.layers, strict=True)):
                self.layers[place] = self._layer(number, i, cache)

    def _layer(self, group: int, i: int, cache: LayerCache) -> LayerKV:
        heads, *sizes = _shape(cache)
        keys, values = (
            self._rows[f"{name}.{i}"][:, :elements].view(self.num_blocks, cache.block_size, heads, size)
            for name, elements, size in zip(("keys", "values"), elements_of(cache), sizes, strict=True)
        )
        return LayerKV(group, keys, values)

    # ---- blocks, as the worker half of a connector moves them

    def read(self, block: int) -> Tensors:
        """A copy of the block as bytes; NumPy has no bfloat16."""
        return {name: _bytes(rows[block]).numpy() for name, rows in self._rows.items()}

    def write(self, block: int, tensors: Tensors) -> None:
        """Replace a block. ValueError, and nothing changes, if it is not of this memory's shape."""
        torch = require_torch()
        mine = {name: rows[block] for name, rows in self._rows.items()}
        shapes = {name: (array.shape, array.dtype) for name, array in tensors.items()}
        if shapes != {name: ((_num_bytes(row),), np.dtype(np.uint8)) for name, row in mine.items()}:
            raise ValueError(f"a block with other sizes than {', '.join(mine)}")
        for name, row in mine.items():
            row.copy_(torch.from_numpy(np.array(tensors[name])).view(row.dtype))


def _bytes(row: Any) -> Any:
    return row.detach().to("cpu", copy=True).view(require_torch().uint8)


def _num_bytes(row: Any) -> int:
    return int(row.numel() * row.element_size())
