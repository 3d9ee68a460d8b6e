"""The KV cache's memory: every block id of the pool is a page in each of a few tensors.

All groups share one pool, so a block belongs to one group at a time, and the first layers of all groups may share a
tensor, as do the second ones, and so on. Within a page lie the keys of the block's tokens, then their values:

    tensor i   [block 0: K K K K V V V V | block 1: ... ]      layer i of group A, or layer i of group B
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tokenyard.connectors.memory import Tensors
from tokenyard.engine.torch.checkpoint import require_torch
from tokenyard.kv.sizing.grouping import LayerGroup
from tokenyard.kv.sizing.layer_cache import LayerCache

__all__ = ["KVTensors", "LayerKV", "page_elements"]


class LayerKV(NamedTuple):
    """Where one layer keeps keys and values."""

    group: int
    """KV-cache group, whose block table it follows."""
    keys: Any
    """Shape ``[blocks, tokens per block, KV heads, key size]``."""
    values: Any
    """Shape ``[blocks, tokens per block, KV heads, value size]``."""


def page_elements(cache: LayerCache, element_bytes: float) -> int:
    """Elements of a page, padding included; ``element_bytes`` is the size with which the plan was made."""
    return int(cache.page_bytes // element_bytes)


class KVTensors:
    """Zeroed memory for ``num_blocks`` blocks of these groups; zeroed so that what is masked is finite."""

    def __init__(
        self, groups: Sequence[LayerGroup], num_blocks: int, dtype: Any, device: str, element_bytes: float
    ) -> None:
        torch = require_torch()
        self.num_blocks = num_blocks
        sizes: dict[int, int] = {}
        for group in groups:
            for i, cache in enumerate(group.layers):
                sizes[i] = max(sizes.get(i, 0), page_elements(cache, element_bytes))
        self._pages = [torch.zeros((num_blocks, size), dtype=dtype, device=device) for size in sizes.values()]
        self.layers: list[LayerKV] = [LayerKV(-1, None, None)] * sum(len(group.layers) for group in groups)
        """By place among the model's layers."""
        for number, group in enumerate(groups):
            for i, (place, cache) in enumerate(zip(group.places, group.layers, strict=True)):
                self.layers[place] = _layer(number, self._pages[i], cache)

    # ---- blocks, as the worker half of a connector moves them

    def read(self, block: int) -> Tensors:
        """A copy of the block's pages as bytes; NumPy has no bfloat16."""
        return {f"pages.{i}": _bytes(page[block]).numpy() for i, page in enumerate(self._pages)}

    def write(self, block: int, tensors: Tensors) -> None:
        """Replace a block. ValueError, and nothing changes, if the pages are not of this memory's shape."""
        torch = require_torch()
        mine = {f"pages.{i}": page[block] for i, page in enumerate(self._pages)}
        shapes = {name: (array.shape, array.dtype) for name, array in tensors.items()}
        if shapes != {name: ((_num_bytes(page),), np.dtype(np.uint8)) for name, page in mine.items()}:
            raise ValueError(f"a block of other pages than {', '.join(mine)}")
        for name, page in mine.items():
            page.copy_(torch.from_numpy(np.array(tensors[name])).view(page.dtype))


def _bytes(page: Any) -> Any:
    return page.detach().to("cpu", copy=True).view(require_torch().uint8)


def _num_bytes(page: Any) -> int:
    return int(page.numel() * page.element_size())


def _layer(group: int, pages: Any, cache: LayerCache) -> LayerKV:
    """The keys and values of a layer as views of its pages."""
    heads, key_size, value_size = (int(size) for size in cache.shape)  # type: ignore[call-overload]
    num_blocks, size = pages.shape[0], cache.block_size
    split, end = size * heads * key_size, size * heads * (key_size + value_size)
    keys = pages[:, :split].view(num_blocks, size, heads, key_size)
    values = pages[:, split:end].view(num_blocks, size, heads, value_size)
    return LayerKV(group, keys, values)
