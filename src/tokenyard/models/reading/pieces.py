"""The pieces that a model is made of: what a row of the table (:mod:`~tokenyard.models.reading.row`) names becomes one.

``pieces.json`` has the kinds: what a row may give of each, and how the fields of a
:class:`~tokenyard.models.mixers.SoftmaxAttention` or the like follow from that. Every number is an expression over the
file's fields (:mod:`~tokenyard.models.expressions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from tokenyard.files import packaged
from tokenyard.models import layers, mixers
from tokenyard.models.expressions import Expressions
from tokenyard.models.fields import Fields
from tokenyard.models.formats import WeightFormat
from tokenyard.models.kinds import Given, Kind, Kinds, Maker
from tokenyard.models.reading.quantization import MXFP4, Quantization
from tokenyard.models.recorded import recorded
from tokenyard.quick_dataclass import dataclass

# ---------------------------------------------------------------------------------------------------------------------
# A file being read.


def listed(fact: str, architecture: str) -> bool:
    """Whether this holds for a pipeline of vLLM, as ``lab/record_stages.py`` has seen when it built two stages.

    ``fact`` is "no pipeline", "embedding on every stage" or "head on every stage".
    """
    return architecture in recorded("stages")[fact]


@dataclass(kw_only=True)
class ConfigReader:
    """A file being read."""

    fields: Fields
    """Fields of the language model: ``text_config`` where there is one."""
    outer: Fields
    """Fields of the file."""
    quant: Quantization
    architecture: str
    dtype: str
    ignore: bool = False
    """Note what is not modelled instead of raising an error."""
    ignored: list[str] = field(default_factory=list)

    def not_modelled(self, field_name: str, what: str) -> None:
        """Raise the error that names this field, or note it if asked to ignore it."""
        if not self.ignore:
            fix = f"{what} is not modelled: --ignore-unmodelled goes on without it"
            raise self.fields.error(field_name, fix)
        self.ignored.append(f"{field_name}: {what}")


# ---------------------------------------------------------------------------------------------------------------------

NAMES = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads=heads",
    "head_dim": "head_dim=max(1, hidden // heads)",
    "width": "intermediate_size",
    "vocab": "vocab_size",
    "experts": "num_experts|num_local_experts|n_routed_experts=0",
    "per_token": "num_experts_per_tok",
    "expert_width": "moe_intermediate_size",
    "window": "sliding_window=0",
    "picks_again": "index_topk_freq=1",
    "picks_once": "index_skip_topk_offset=2",
}
"""What every row may use, by the fields that most files have them in."""
Piece = Given
"""A piece as a row writes it: its kind as ``is``, and what it gives of the kind's own."""


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a row, as its family's file writes it."""

    about: str | tuple[str, ...] = ""
    """A note for readers."""


@cache
def _kinds() -> dict[str, Kind]:
    return msgspec.json.decode(packaged(__package__, "pieces.json"), type=Kinds).kinds


_TEXTS = ("is", "module", "shared", "about")
"""What a row may say of any piece that is no expression."""


def check_piece(piece: Piece) -> None:
    """Raise ValueError for a kind of piece, or a field of it, that does not exist."""
    kind = _kinds().get(piece.get("is", ""))
    if kind is None:
        raise ValueError(f"is = {piece.get('is')!r}: use one of {', '.join(_kinds())}")
    unknown = set(piece) - {*kind.own, *_TEXTS}
    if unknown:
        raise ValueError(f"{piece['is']} has no {min(unknown)!r}: use some of {', '.join(kind.own)}")


def texts_of(piece: Piece) -> Iterator[Any]:
    """All expressions of a piece over fields of the file, and the names of those that it has no use for."""
    kind = _kinds()[piece["is"]]
    yield kind.reads
    for name, default in kind.own.items():
        given = piece.get(name, default)
        yield from given.values() if isinstance(given, dict) else (given,)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What pieces are read with: the file, and the values of its expressions."""

    reading: ConfigReader
    values: Expressions
    _known: dict[Any, Any] = field(default_factory=dict)
    """What pieces became, and what was given of those that are alike in every layer."""

    def piece(self, piece: Piece, at: str, i: int) -> Any:
        """What a piece becomes in layer ``i``, whose module is ``at``; None where the layer has none of it."""
        name, fields, maker = piece["is"], self.reading.fields, Maker(_kinds(), self.values, mixers, layers)
        kind = _kinds()[name]
        for each, why in kind.needs.items():
            if fields.get(each) is None:
                raise fields.missing(each, why)
        own = self._known.get(id(piece)) or maker.own(piece, i=i)
        if not any(re.search(r"\bi\b", str(text)) for text in texts_of(piece)):
            self._known[id(piece)] = own
        formats = self._formats(piece, f"{at}.{piece.get('module', kind.module)}", at, own)
        key = (name, *formats.values(), repr(own))
        if key not in self._known:
            bound = {**own, "dtype": self.reading.dtype, "packed": formats["weights"].name == MXFP4.name}
            if kind.reads_dtype:
                bound["file_dtype"] = fields.text(fields.first("mamba_ssm_dtype", "mamba_ssm_cache_dtype"))
            self._known[key] = maker.made(name, bound, formats)
        return self._known[key]

    def _formats(self, piece: Piece, module: str, at: str, own: Mapping[str, Any]) -> dict[str, WeightFormat]:
        """How its matrices are stored."""
        quant = self.reading.quant
        if piece["is"] != "experts":
            return {"weights": quant.of(module)}
        weights = MXFP4 if quant.method == "fp8" and own["four_bits"] else quant.of(module, experts=True)
        shared = piece.get("shared", "")
        return {"weights": weights, "shared_weights": quant.of(f"{at}.{shared}" if shared else module)}
