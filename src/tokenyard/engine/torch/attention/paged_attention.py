"""Attention over blocks, in place of a transformers model's own: one function for all models and devices.

    write   keys and values of the step's tokens go to their blocks
    read    bucket by bucket: gather the rows' blocks, attend (torch's scaled_dot_product_attention)

Every attention module knows its layer; what a step reads and writes is told to the model's :class:`PagedAttention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tokenyard.engine.torch.attention.block_batch import BlockBatch, Bucket
from tokenyard.engine.torch.attention.kv_tensors import LayerKV
from tokenyard.engine.torch.checkpoint import ATTENTION, require_torch
from tokenyard.errors import ConfigError

__all__ = ["PagedAttention", "register_attention"]

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


def _gather(memory: Any, bucket: Bucket) -> Any:
    """Keys or values of a bucket's rows, shape ``[rows, KV heads, places, size]``."""
    rows, width = bucket.blocks.shape
    places = memory.index_select(0, bucket.blocks.view(-1)).view(rows, width * memory.shape[1], *memory.shape[2:])
    places = places.transpose(1, 2)
    return places[:, :, : bucket.tokens.shape[1]] if bucket.mask is None else places


def _attend(query: Any, keys: Any, values: Any, bucket: Bucket, scale: float, softcap: float | None) -> Any:
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
    import_module("transformers").AttentionInterface.register(ATTENTION, _forward)
