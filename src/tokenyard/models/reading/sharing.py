"""Attention of layers that share what others of them compress and pick."""

from __future__ import annotations

from typing import ClassVar

from tokenyard.models.mixers import CompressedAttention, Indexer
from tokenyard.models.reading.expressions import Fill
from tokenyard.models.reading.pieces import Compressed, Reader
from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class Shared:
    """DeepSeek V4.1's attention: some layers compress for those after them, some pick for them, some have an Engram."""

    reads: ClassVar = Compressed.reads

    ratio: Fill
    keeps: Fill
    """Whether the layer compresses: an expression over ``i``, as the next two."""
    picks: Fill
    remembers: Fill
    memory: Fill
    """Columns that an Engram's rows are taken to, times their width."""
    streams: Fill = "hc"
    module: str = "attn"

    def build(self, reader: Reader, module: str, i: int) -> CompressedAttention:
        """The attention of layer ``i``."""
        fields, values = reader.reading.fields, reader.values
        fields.passed_over("num_key_value_heads")
        hidden, heads, size = values.name("hidden"), values.name("heads"), fields.count("head_dim")
        rank, ratio = fields.count("q_lora_rank"), values.count(self.ratio, i=i)
        keeps, picks = bool(values.count(self.keeps, i=i)), bool(values.count(self.picks, i=i))
        remembers = bool(values.count(self.remembers, i=i))
        indexer, extra = None, rank + size + 2 * heads  # norms; sinks in float32
        if ratio:
            count, keys = fields.count("index_n_heads"), fields.count("index_head_dim")
            indexer = Indexer(num_heads=count, head_size=keys, topk=fields.count("index_topk"))
            extra += hidden * count * picks + (keys * size + keys) * keeps
            extra += ((2 if ratio > 1 else 1) * hidden * size + size) * keeps
        return CompressedAttention(
            hidden_size=hidden,
            num_heads=heads,
            head_size=size,
            q_lora_rank=rank,
            output_groups=fields.count("o_groups"),
            output_rank=fields.count("o_lora_rank"),
            window=values.name("window"),
            ratio=ratio,
            indexer=indexer,
            keeps=keeps,
            picks=picks,
            gathers_in_ring=True,
            parted_parameters=values.count(self.memory) * remembers,
            extra_parameters=extra + 2 * values.count(self.streams) * hidden * remembers,
            weights=reader.reading.quant.of(module),
        )
