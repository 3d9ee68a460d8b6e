"""Attention over blocks: their memory, which of them a step reads and writes, the attention itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tokenyard.connectors.tier_worker import Tensors
from tokenyard.core.arrays import Int32Array, IntArray
from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import LayerGroup
from tokenyard.memory.layer_caches import LayerCache
from tokenyard.serve.torch.checkpoint import ATTENTION, require_torch

# ---------------------------------------------------------------------------------------------------------------------
# The KV cache's memory: every block id of the pool is a row in each of a few tensors.
#
# All groups share one pool, so a block belongs to one group at a time, and the first layers of all groups share their
# tensors, as do the second ones, and so on:
#
#     keys i     [ block 0 | block 1 | ... ]      layer i of group A, or layer i of group B
#     values i   [ block 0 | block 1 | ... ]


class LayerKV(msgspec.Struct, frozen=True):
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
# is masked. A bucket of many rows is cut so that their keys and values are not gathered all at once, and its tokens
# are cut into pieces, so that what a piece needs beside them is bounded too: neither grows with the length of a step.

MOST_PLACES = 1 << 15
"""Places that a bucket gathers at most, unless one row has more."""
MOST_SCORES = {"cuda": 1 << 27}
"""Scores of a piece at most, unless one token has more: many keep a GPU busy ..."""
FEW_SCORES = 1 << 22
"""... few are memory that a CPU's heap finds again."""
_PARTS = 8
"""A piece leaves out whole parts of the places: pieces that are all of another size would tear a heap to holes."""
KEPT_SCORES = 1 << 20
"""Masks of a step's single tokens are made once, not in every layer, if they are no larger."""


class StepRows(NamedTuple):
    """Rows of a step: row ``i`` computes ``counts[i]`` tokens from position ``starts[i]`` on."""

    starts: IntArray
    counts: IntArray

    @property
    def positions(self) -> IntArray:
        """Positions of all tokens, row after row."""
        offsets = self.counts.cumsum() - self.counts
        return np.arange(int(self.counts.sum())) - np.repeat(offsets - self.starts, self.counts)


class HeldBlocks(msgspec.Struct, frozen=True):
    """The blocks of a step's rows, as the request table has them when the step begins."""

    tables: list[Int32Array]
    """Per KV-cache group: row ``i`` begins with its blocks in position order; what follows them is arbitrary."""
    capacity: IntArray
    """Positions that each row's blocks can store."""


class Piece(msgspec.Struct, frozen=True):
    """Tokens of a bucket's rows, and the places that any of them attends to; both count from 0."""

    tokens: slice
    places: slice


class AttentionBatch:
    """A bucket: rows whose blocks are gathered in one call. Places count from the first block that is gathered."""

    def __init__(self, tokens: Any, blocks: Any, asked: IntArray, block_size: int, window: int) -> None:
        torch = require_torch()
        self.tokens = tokens
        """Places of their tokens in the flattened batch, shape ``[rows, tokens]``."""
        self.blocks = blocks
        """Shape ``[rows, blocks]``."""
        self._size, self._window = block_size, window
        self._asked = torch.from_numpy(asked).to(tokens.device)
        self._first, self._last = int(asked[:, 0].min()), int(asked[:, 0].max())
        self.keeps_mask = False
        """Whether the mask, of one piece, serves all layers."""
        self._kept: Any = None

    @property
    def num_places(self) -> int:
        """Places of a row's gathered blocks."""
        return int(self.blocks.shape[1] * self._size)

    @property
    def is_whole(self) -> bool:
        """Whether a token attends to all before it and itself, and all rows begin at position 0."""
        count = self.tokens.shape[1]
        return self._last == 0 and count > 1 and (not self._window or count <= self._window)

    def pieces(self, num_heads: int) -> list[Piece]:
        """Pieces of few enough scores, from the last tokens on: none is larger than the first."""
        count, size, window = self.tokens.shape[1], self._size, self._window
        most = MOST_SCORES.get(self.tokens.device.type, FEW_SCORES) // (len(self.blocks) * num_heads)
        step = max(1, most // self.num_places)
        part = -(-self.num_places // size // _PARTS) * size
        if window:  # a piece attends to step + reach places at most
            reach, part = window + 2 * size, size
            step = max(step, (math.isqrt(reach * reach + 4 * most) - reach) // 2)
        found = []
        for end in range(count, 0, -step):
            begin = max(end - step, 0)
            low = max(self._first + begin - window + 1, 0) // part * part if window else 0
            high = min(-(-(self._last + end) // part) * part, self.num_places)
            found.append(Piece(slice(begin, end), slice(low, high)))
        return found

    def mask(self, piece: Piece, repeats: int, dtype: Any) -> Any:
        """What is added to scores: 0 where a token attends to a place, else minus infinity.

        It has shape ``[rows, 1, repeats * tokens, places]``; one token is not repeated, since one row does for all.
        """
        if self._kept is not None:
            return self._kept
        made = self._mask(piece, repeats, dtype)
        if self.keeps_mask:
            self._kept = made
        return made

    def _mask(self, piece: Piece, repeats: int, dtype: Any) -> Any:
        torch, asked = require_torch(), self._asked[:, piece.tokens]
        ask = asked.repeat(1, repeats if asked.shape[1] > 1 else 1)[:, None, :, None]
        there = torch.arange(piece.places.start, piece.places.stop, device=ask.device)
        beyond = there > ask
        if self._window:
            beyond |= there <= ask - self._window
        return torch.zeros(beyond.shape, dtype=dtype, device=ask.device).masked_fill_(beyond, float("-inf"))


class BlockBatch:
    """One group's part of a step."""

    def __init__(self, table: Int32Array, rows: StepRows, block_size: int, window: int, device: str) -> None:
        """``table[i]`` begins with the blocks of row ``i`` in position order; ``window`` is 0 where there is none."""
        torch = require_torch()
        self._device, self._size, self._window = device, block_size, window
        positions = rows.positions
        of_token = np.repeat(np.arange(len(rows.counts)), rows.counts)
        self.write_blocks = torch.from_numpy(table[of_token, positions // block_size].astype(np.int64)).to(device)
        self.write_places = torch.from_numpy(positions % block_size).to(device)
        self.buckets = [self._bucket(table, rows, members) for members in self._alike(rows)]
        single = [bucket for bucket in self.buckets if bucket.tokens.shape[1] == 1]
        keeps_mask = sum(len(bucket.blocks) * bucket.num_places for bucket in single) <= KEPT_SCORES
        for bucket in single:
            bucket.keeps_mask = keeps_mask

    def _alike(self, rows: StepRows) -> list[IntArray]:
        """Rows that go into one call: as many tokens each, at most a quarter of the blocks is padding, and not too
        many blocks in all.
        """
        blocks = -(-(rows.starts + rows.counts) // self._size) - self._first_blocks(rows.starts)
        steps = np.left_shift(1, np.maximum(np.log2(blocks).astype(np.int64) - 2, 0))
        from_zero = (rows.starts == 0) & (rows.counts > 1)
        keys = np.stack((rows.counts, np.where(from_zero, 0, -(-blocks // steps) * steps)), axis=1)
        _, which = np.unique(keys, axis=0, return_inverse=True)
        alike = []
        for i in range(int(which.max()) + 1):
            members = (which.reshape(-1) == i).nonzero()[0]
            most = max(1, MOST_PLACES // int(blocks[members].max() * self._size))
            alike += [members[begin : begin + most] for begin in range(0, len(members), most)]
        return alike

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
        asked = (starts - first * size)[:, None] + np.arange(count)
        return AttentionBatch(tokens, torch.from_numpy(blocks).to(self._device), asked, size, self._window)


# ---------------------------------------------------------------------------------------------------------------------
# Attention over blocks, in place of a transformers model's own: one function for all models and devices.
#
#     write   keys and values of the step's tokens go to their blocks
#     read    bucket by bucket: gather the rows' blocks; piece by piece: attend (torch's scaled_dot_product_attention)
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
        self.measures = False
        """Whether a step is run for its memory alone: no piece of a bucket needs more than the first, so only that is
        computed, and attention of the other tokens is 0."""
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
        make = query.new_zeros if self.measures else query.new_empty
        output = make((query.shape[2], query.shape[1], memory.values.shape[3]))
        for bucket in batch.buckets:
            self._attend_bucket(bucket, memory, query[0], output, scale, softcap)
        return output.unsqueeze(0)

    def _attend_bucket(
        self, bucket: AttentionBatch, memory: LayerKV, query: Any, output: Any, scale: float, softcap: float | None
    ) -> None:
        """Fill in the bucket's tokens of ``output``."""
        keys, values = _gather(memory.keys, bucket), _gather(memory.values, bucket)
        if bucket.is_whole and softcap is None:
            output[bucket.tokens] = _attend_whole(query[:, bucket.tokens], keys, values, scale)
            return
        pieces = bucket.pieces(query.shape[0])
        for piece in pieces[:1] if self.measures else pieces:
            tokens = bucket.tokens[:, piece.tokens]
            output[tokens] = _attend_piece(
                query[:, tokens],
                keys[:, :, piece.places],
                values[:, :, piece.places],
                bucket.mask(piece, len(query) // keys.shape[1], query.dtype),
                scale,
                softcap,
            )


def _gather(memory: Any, bucket: AttentionBatch) -> Any:
    """Keys or values of a bucket's rows, shape ``[rows, KV heads, places, size]``."""
    places = memory.index_select(0, bucket.blocks.view(-1))
    return places.view(len(bucket.blocks), bucket.num_places, *memory.shape[2:]).transpose(1, 2)


def _attend_whole(query: Any, keys: Any, values: Any, scale: float) -> Any:
    """Attention of rows from position 0 on: shapes ``[heads, rows, tokens, size]``; ``[rows, tokens, heads, size]``.

    Keys are repeated for the heads that share them: that is no more than the query has, and of the kernels of a GPU
    that would do it by themselves one keeps all scores.
    """
    count, shared = query.shape[2], query.shape[0] // keys.shape[1]
    keys, values = (each[:, :, :count].repeat_interleave(shared, 1) for each in (keys, values))
    attend = require_torch().nn.functional.scaled_dot_product_attention
    return attend(query.transpose(0, 1), keys, values, is_causal=True, scale=scale).transpose(1, 2)


def _attend_piece(query: Any, keys: Any, values: Any, mask: Any, scale: float, softcap: float | None) -> Any:
    """The same where ``mask`` is added to the scores.

    Heads that share keys are like tokens that ask at the same place: nothing has to be repeated for them, and any
    kernel that takes a mask will do.
    """
    count, num_keys = query.shape[2], keys.shape[1]
    asking = query.unflatten(0, (num_keys, -1)).permute(2, 0, 1, 3, 4).flatten(2, 3)
    if softcap is None:
        attend = require_torch().nn.functional.scaled_dot_product_attention
        found = attend(asking, keys, values, attn_mask=mask, scale=scale)
    else:
        scores = (asking @ keys.transpose(2, 3)).mul_(scale).div_(softcap).tanh_().mul_(softcap).add_(mask)
        found = scores.softmax(-1) @ values
    return found.unflatten(2, (-1, count)).permute(0, 3, 1, 2, 4).flatten(2, 3)


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
