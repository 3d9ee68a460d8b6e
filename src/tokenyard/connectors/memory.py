"""Memory that is cut into blocks, as the worker half of a connector sees it.

An engine implements :class:`BlockMemory` over its KV tensors; :class:`ArrayMemory` does it over NumPy arrays, which
tests and the CPU tier use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["ArrayMemory", "BlockMemory", "Tensors"]

Tensors = Mapping[str, npt.NDArray[Any]]
"""What one block holds: name (a layer, mostly) -> array, C-contiguous."""


class BlockMemory(Protocol):
    """Blocks that hold the same named tensors each."""

    def read(self, block: int) -> Tensors:
        """A copy of a block, or a view that stays true as long as nobody writes the block."""

    def write(self, block: int, tensors: Tensors) -> None:
        """Replace a block. ValueError, and nothing changes, if names, shapes or types are not this memory's."""


class ArrayMemory:
    """One array per name, its first dimension counts blocks."""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        assert arrays, "a memory without tensors"
        self._arrays = dict(arrays)

    @classmethod
    def like(cls, tensors: Tensors, num_blocks: int) -> ArrayMemory:
        """Memory for ``num_blocks`` blocks that hold what ``tensors`` does."""
        return cls({name: np.zeros((num_blocks, *array.shape), array.dtype) for name, array in tensors.items()})

    def read(self, block: int) -> Tensors:
        return {name: array[block] for name, array in self._arrays.items()}

    def write(self, block: int, tensors: Tensors) -> None:
        self.check(tensors)
        for name, array in self._arrays.items():
            array[block] = tensors[name]

    def check(self, tensors: Tensors) -> None:
        """ValueError unless these could be a block of this memory."""
        if set(tensors) != set(self._arrays):
            raise ValueError(f"a block has {sorted(tensors)} where {sorted(self._arrays)} were expected")
        for name, array in self._arrays.items():
            given = tensors[name]
            if given.shape != array.shape[1:] or given.dtype != array.dtype:
                wanted = f"{array.dtype}{list(array.shape[1:])}"
                raise ValueError(f"{name} is {given.dtype}{list(given.shape)} where {wanted} was expected")
