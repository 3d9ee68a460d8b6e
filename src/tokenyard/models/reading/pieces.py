"""The pieces that a model is made of: what a row of the table (:mod:`~tokenyard.models.reading.row`) names becomes one.

``pieces.json`` has the kinds: what a row may give of each, and how the fields of a
:class:`~tokenyard.models.mixers.SoftmaxAttention` or the like follow from that. Every number is an expression over the
file's fields (:mod:`~tokenyard.models.reading.expressions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import Enum
from functools import cache
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from tokenyard.files import packaged
from tokenyard.models import layers, mixers
from tokenyard.models.formats import WeightFormat
from tokenyard.models.reading.expressions import Expressions, Fill
from tokenyard.models.reading.parts import ConfigReader
from tokenyard.models.reading.quantization import MXFP4
from tokenyard.quick_dataclass import dataclass

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
Piece = Mapping[str, Any]
"""A piece as a row writes it: its kind as ``is``, and what it gives of the kind's own."""


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a row, as its family's file writes it."""

    about: str | tuple[str, ...] = ""
    """A note for readers."""


class _Kind(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"unless_zero": "if"}):
    """A kind of piece, as ``pieces.json`` writes it."""

    makes: str
    fields: dict[str, Any]
    own: dict[str, Any] = {}
    let: dict[str, Any] = {}
    reads: str = ""
    module: str = ""
    unless_zero: Fill = 1
    needs: dict[str, str] = {}
    reads_dtype: bool = False
    about: dict[str, str] = {}


class _Kinds(Struct, forbid_unknown_fields=True):
    """``pieces.json``."""

    about: tuple[str, ...]
    pieces: dict[str, _Kind]


@cache
def _kinds() -> dict[str, _Kind]:
    return msgspec.json.decode(packaged(__package__, "pieces.json"), type=_Kinds).pieces


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


@cache
def _types(made: type) -> dict[str, Any]:
    return get_type_hints(made)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What pieces are read with: the file, and the values of its expressions."""

    reading: ConfigReader
    values: Expressions
    _known: dict[Any, Any] = field(default_factory=dict)
    """What pieces became, and what was given of those that are alike in every layer."""

    def piece(self, piece: Piece, at: str, i: int) -> Any:
        """What a piece becomes in layer ``i``, whose module is ``at``; None where the layer has none of it."""
        kind = _kinds()[piece["is"]]
        for name, why in kind.needs.items():
            if self.reading.fields.get(name) is None:
                raise self.reading.fields.missing(name, why)
        own = self._own(kind, piece, i)
        module = f"{at}.{piece.get('module', kind.module)}"
        formats = self._formats(piece, module, at, own) if kind.module else {}
        key = (piece["is"], *formats.values(), repr(own))  # layers are alike
        if key not in self._known:
            bound = {
                **own,
                "dtype": self.reading.dtype,
                "packed": MXFP4.name in [each.name for each in formats.values()],
            }
            if kind.reads_dtype:
                fields = self.reading.fields
                bound["file_dtype"] = fields.text(fields.first("mamba_ssm_dtype", "mamba_ssm_cache_dtype"))
            for name, fill in kind.let.items():
                bound[name] = self.values.value(_joined(fill), **bound)
            self._known[key] = self._made(kind, bound, formats)
        return self._known[key]

    def _own(self, kind: _Kind, piece: Piece, i: int) -> dict[str, Any]:
        """What the row gives, else the defaults."""
        if id(piece) not in self._known:
            is_alike = not any(re.search(r"\bi\b", str(text)) for text in texts_of(piece))
            own = {name: self._value(name, piece.get(name, default), default, i) for name, default in kind.own.items()}
            if not is_alike:
                return own
            self._known[id(piece)] = own
        known: dict[str, Any] = self._known[id(piece)]
        return known

    def _value(self, name: str, given: Any, default: Any, i: int) -> Any:
        if given is None or isinstance(given, bool | dict):
            return {"is": name, **given} if isinstance(given, dict) else given
        if isinstance(default, list):
            return tuple(self.values.count(each, i=i) for each in given)
        found = self.values.value(_joined(given), i=i)
        return found if isinstance(found, str) else self.values.whole(given, found)

    def _formats(self, piece: Piece, module: str, at: str, own: Mapping[str, Any]) -> dict[str, WeightFormat]:
        """How its matrices are stored."""
        quant = self.reading.quant
        if piece["is"] != "experts":
            return {"weights": quant.of(module)}
        weights = MXFP4 if quant.method == "fp8" and own["four_bits"] else quant.of(module, experts=True)
        shared = piece.get("shared", "")
        return {"weights": weights, "shared_weights": quant.of(f"{at}.{shared}" if shared else module)}

    def _made(self, kind: _Kind, bound: Mapping[str, Any], formats: Mapping[str, WeightFormat]) -> Any:
        if not self.values.value(kind.unless_zero, **bound):
            return None
        made = getattr(mixers, kind.makes, None) or getattr(layers, kind.makes)
        fields: dict[str, Any] = {"hidden_size": "hidden", "conv_dtype": "dtype", **kind.fields}
        types = _types(made)
        return made(
            **formats, **{name: self._field(fill, types[name], bound) for name, fill in fields.items() if name in types}
        )

    def _field(self, fill: Any, wanted: Any, bound: Mapping[str, Any]) -> Any:
        """The value of a field of what a piece becomes, in its type."""
        if isinstance(fill, dict):
            return self._made(msgspec.convert(fill, _Kind), bound, {})
        found = self.values.value(_joined(fill), **bound)
        if isinstance(found, dict):
            return self.piece(found, "", 0)
        if wanted is int:
            return self.values.whole(fill, found)
        return wanted(found) if wanted is bool or (isinstance(wanted, type) and issubclass(wanted, Enum)) else found


def _joined(fill: Any) -> Fill:
    """The terms of a sum as :class:`Expressions` takes them; anything else as it is."""
    return tuple(fill) if isinstance(fill, list) else fill
