"""Attention over blocks: their memory, which of them a step reads and writes, the attention itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenyard.connectors.tier_worker import Tensors
from tokenyard.core.arrays import Int32Array, IntArray
from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import LayerGroup
from tokenyard.memory.layer_caches import LayerCache
from tokenyard.quick_named_tuple import NamedTuple
from tokenyard.serve.torch.checkpoint import ATTENTION, require_torch

# ---------------------------------------------------------------------------------------------------------------------
# The KV cache's memory: every block id of the pool is a row in each of a few tensors.
#
# All groups share one pool, so a block belongs to one group at a time, and the first layers of all groups share their
# tensors, as do the second ones, and so on:
#
#     keys i     [ block 0 | block 1 | ... ]      layer i of group A, or layer i of group B
#     values i   [ block 0 | block 1 | ... ]


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
    heads, key_size, value_size, vectors_per_token = cache.shape
    assert isinstance(heads, int), "softmax attention has heads"
    assert vectors_per_token == 1, "models with more have a family that load_engine refuses"
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
        """The layers, by place in the model."""
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


# ---------------------------------------------------------------------------------------------------------------------
# Which blocks a step's rows write and read, per KV-cache group: made once, used by all layers of the group.
#
#     rows of a step     [ a: 1 token | b: 1 token | c: 1 token | d: 512 tokens ]       flattened, in scheduling order
#     what they write    block and place of every token
#     what they read     buckets of rows with as many tokens and nearly as many blocks, padded with the null block
#
# A row reads its blocks from the first one that its window reaches. Padding, and what lies after a row's own tokens,
# is masked.


class StepRows(NamedTuple):
    """Rows of a step: row ``i`` computes ``counts[i]`` tokens from position ``starts[i]`` on."""

    starts: IntArray
    counts: IntArray

    @property
    def positions(self) -> IntArray:
        """Positions of all tokens, row after row."""
        offsets = self.counts.cumsum() - self.counts
        return np.arange(int(self.counts.sum())) - np.repeat(offsets - self.starts, self.counts)


class HeldBlocks(NamedTuple):
    """The blocks of a step's rows, as the request table has them when the step begins."""

    tables: list[Int32Array]
    """Per KV-cache group: row ``i`` begins with its blocks in position order; what follows them is arbitrary."""
    capacity: IntArray
    """Positions that each row's blocks can store."""


class AttentionBatch(NamedTuple):
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

    def _bucket(self, table: Int32Array, rows: StepRows, members: IntArray) -> AttentionBatch:
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
        return AttentionBatch(tokens, torch.from_numpy(blocks).to(self._device), mask)

    def _mask(self, asked: IntArray, places: IntArray) -> Any:
        """Positions that ask, shape ``[rows, tokens]``, and that are there, shape ``[rows, places]``."""
        torch = require_torch()
        ask = torch.from_numpy(asked).to(self._device)[:, None, :, None]
        there = torch.from_numpy(places).to(self._device)[:, None, None, :]
        beyond = there > ask
        if self._window:
            beyond |= there <= ask - self._window
        return torch.zeros(beyond.shape, dtype=self._dtype, device=self._device).masked_fill_(beyond, float("-inf"))


# ---------------------------------------------------------------------------------------------------------------------
# Attention over blocks, in place of a transformers model's own: one function for all models and devices.
#
#     write   keys and values of the step's tokens go to their blocks
#     read    bucket by bucket: gather the rows' blocks, attend (torch's scaled_dot_product_attention)
#
# Every attention module knows its layer; what a step reads and writes is set on the model's :class:`PagedAttention`.

_OWNER = "tokenyard_attention"
"""Attribute of an attention module that holds its model's PagedAttention."""


class PagedAttention:
    """The attention of one model: its layers' memory, and the batch of the step that is running."""

    def __init__(self, model: Any) -> None:
        """Take over all attention modules of ``model``, a transformers model loaded with our implementation."""
        self._layers: Sequence[LayerKV] = ()
        self._batches: Sequence[BlockBatch] = ()
        for module in model.modules():
            if hasattr(module, "layer_idx"):
                setattr(module, _OWNER, self)

    def bind(self, layers: Sequence[LayerKV]) -> None:
        """The layers' memory, by layer."""
        self._layers = layers

    def begin(self, batches: Sequence[BlockBatch]) -> None:
        """What the next forward pass writes and reads, by KV-cache group."""
        self._batches = batches

    def attend(self, layer: int, query: Any, key: Any, value: Any, scale: float, softcap: float | None) -> Any:
        """Attention of all tokens of the step: shapes ``[1, heads, tokens, size]``; ``[1, tokens, heads, size]``."""
        memory = self._layers[layer]
        batch = self._batches[memory.group]
        memory.keys[batch.write_blocks, batch.write_places] = key[0].transpose(0, 1)
        memory.values[batch.write_blocks, batch.write_places] = value[0].transpose(0, 1)
        output = query.new_empty((query.shape[2], query.shape[1], memory.values.shape[3]))
        for bucket in batch.buckets:
            heads = query[0][:, bucket.tokens].transpose(0, 1)  # [rows, heads, tokens, size]
            found = _attend(heads, _gather(memory.keys, bucket), _gather(memory.values, bucket), bucket, scale, softcap)
            output[bucket.tokens] = found.transpose(1, 2)
        return output.unsqueeze(0)


def _gather(memory: Any, bucket: AttentionBatch) -> Any:
    """Keys or values of a bucket's rows, shape ``[rows, KV heads, places, size]``."""
    rows, width = bucket.blocks.shape
    places = memory.index_select(0, bucket.blocks.view(-1)).view(rows, width * memory.shape[1], *memory.shape[2:])
    places = places.transpose(1, 2)
    return places[:, :, : bucket.tokens.shape[1]] if bucket.mask is None else places


def _attend(query: Any, keys: Any, values: Any, bucket: AttentionBatch, scale: float, softcap: float | None) -> Any:
    functional = require_torch().nn.functional
    shared = query.shape[1] // keys.shape[1]
    if softcap is None and query.shape[2] == 1:
        # Heads that share keys are like tokens that ask at the same place: nothing has to be repeated for them.
        asking = query.view(query.shape[0], keys.shape[1], shared, query.shape[3])
        found = functional.scaled_dot_product_attention(asking, keys, values, attn_mask=bucket.mask, scale=scale)
        return found.reshape(*query.shape[:3], found.shape[3])
    if softcap is None:
        return functional.scaled_dot_product_attention(
            query,
            keys,
            values,
            attn_mask=bucket.mask,
            is_causal=bucket.mask is None,
            scale=scale,
            enable_gqa=shared > 1,
        )
    scores = query @ keys.repeat_interleave(shared, 1).transpose(2, 3) * scale
    scores = (scores / softcap).tanh() * softcap
    mask = scores.new_full(scores.shape[-2:], float("-inf")).triu(1) if bucket.mask is None else bucket.mask
    return (scores + mask).softmax(-1) @ values.repeat_interleave(shared, 1)


def _forward(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Any = None,
    **_: Any,
) -> tuple[Any, None]:
    """What transformers calls in every attention layer; ``attention_mask`` is None, and windows are the group's."""
    if s_aux is not None:
        raise ConfigError("model", type(module).__name__, "has attention sinks: the engine does not run them")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    owner: PagedAttention = getattr(module, _OWNER)
    return owner.attend(module.layer_idx, query, key, value, scale, softcap), None


def register_attention() -> None:
    """Make our attention known to transformers."""
    from transformers import AttentionInterface  # noqa: PLC0415 - an extra

    AttentionInterface.register(ATTENTION, _forward)
