"""DeepSeek V4's attention over compressed vectors, and V4.1's, whose layers share what others compress and pick."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from tokenyard.models.mixers import CompressedAttention, Indexer
from tokenyard.models.reading.expressions import Fill
from tokenyard.models.reading.pieces import Piece, Reader


class Compressed(Piece, frozen=True, kw_only=True, tag="compressed"):
    """DeepSeek V4's window with compressed vectors beside it, and with an indexer where four tokens are joined."""

    reads: ClassVar[str] = "q_lora_rank o_lora_rank o_groups index_n_heads index_head_dim index_topk qk_rope_head_dim"

    ratio: Fill
    module: str = "attn"

    def build(self, reader: Reader, module: str, i: int) -> CompressedAttention:
        """The attention of layer ``i``."""
        fields, name = reader.reading.fields, reader.values.name
        fields.harmless("num_key_value_heads")
        heads, size, rank = name("heads"), fields.count("head_dim"), fields.count("q_lora_rank")
        ratio = reader.values.count(self.ratio, i=i)
        indexer = self.indexer(reader, ratio)
        return CompressedAttention(
            hidden_size=name("hidden"),
            num_heads=heads,
            head_size=size,
            q_lora_rank=rank,
            output_groups=fields.count("o_groups"),
            output_rank=fields.count("o_lora_rank"),
            window=name("window"),
            ratio=ratio,
            indexer=indexer,
            # norms; sinks in float32
            extra_parameters=rank + size + 2 * heads + self.extra(reader, ratio, indexer, i),
            weights=reader.reading.quant.of(module),
        )

    def indexer(self, reader: Reader, ratio: int) -> Indexer | None:
        """What picks among the compressed vectors; None where all of them count."""
        return picking(reader) if ratio == _INDEXED else None

    def extra(self, reader: Reader, ratio: int, indexer: Indexer | None, i: int) -> int:
        """Parameters of compressors and of what weighs the indexer's heads."""
        hidden, overlap = reader.values.name("hidden"), 2 if ratio == _INDEXED else 1
        total = _compressor(hidden, reader.reading.fields.count("head_dim"), ratio, overlap) if ratio else 0
        if indexer is not None:
            total += hidden * indexer.num_heads + _compressor(hidden, indexer.head_size, ratio, overlap)
        return total


def picking(reader: Reader) -> Indexer:
    """The indexer that a file's fields give."""
    count = reader.reading.fields.count
    return Indexer(num_heads=count("index_n_heads"), head_size=count("index_head_dim"), topk=count("index_topk"))


_INDEXED = 4
"""How many tokens are joined where an indexer picks among the results."""


def _compressor(hidden: int, size: int, ratio: int, overlap: int) -> int:
    """Keys and scores, positions in float32, a norm."""
    return 2 * hidden * overlap * size + 2 * ratio * overlap * size + size


class Shared(Compressed, frozen=True, kw_only=True, tag="shared"):
    """DeepSeek V4.1's attention: some layers compress for those after them, some pick for them, some have an Engram."""

    keeps: Fill
    """Whether the layer compresses: an expression over ``i``, as the next two."""
    picks: Fill
    remembers: Fill
    memory: Fill
    """Columns that an Engram's rows are taken to, times their width."""
    streams: Fill = "hc"

    def build(self, reader: Reader, module: str, i: int) -> CompressedAttention:
        """The attention of layer ``i``."""
        count = reader.values.count
        return replace(
            super().build(reader, module, i),
            keeps=bool(count(self.keeps, i=i)),
            picks=bool(count(self.picks, i=i)),
            gathers_in_ring=True,
            parted_parameters=count(self.memory) * bool(count(self.remembers, i=i)),
        )

    def indexer(self, reader: Reader, ratio: int) -> Indexer | None:
        """One wherever there is something to pick from, its own or another layer's."""
        return picking(reader) if ratio else None

    def extra(self, reader: Reader, ratio: int, indexer: Indexer | None, i: int) -> int:
        """Parameters of its own compressor, its own indexer and its Engram."""
        count, size = reader.values.count, reader.reading.fields.count("head_dim")
        hidden: int = reader.values.name("hidden")
        keeps, picks = bool(count(self.keeps, i=i)), bool(count(self.picks, i=i))
        total = 2 * count(self.streams) * hidden * bool(count(self.remembers, i=i))
        if indexer is None:
            return total
        keys = indexer.head_size
        total += hidden * indexer.num_heads * picks + (keys * size + keys) * keeps
        return total + ((2 if ratio > 1 else 1) * hidden * size + size) * keeps
