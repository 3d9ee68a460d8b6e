"""A row of the table: an architecture by its pieces, and the layers that a config file makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tokenyard.models.expressions import Expressions, Fill
from tokenyard.models.formats import dtype_bytes
from tokenyard.models.layers import MOST_LAYERS, LayerSpec
from tokenyard.models.reading.pieces import NAMES, ConfigReader, Part, Piece, Reader, check_piece, texts_of
from tokenyard.models.reading.predicting import layers_that_predict
from tokenyard.models.reading.towers import Tower


class ArchitectureRow(Part, frozen=True, kw_only=True, dict=True):
    """What an architecture is made of."""

    pools: bool = False
    """vLLM serves it for its hidden states alone: embeddings, scores, labels."""
    pools_whole_prompts: bool = False
    """It needs a prompt's first token or its steps, so that vLLM computes a prompt in one step."""
    mixers: Mapping[str, tuple[Piece, ...]] = field(default_factory=lambda: {"full_attention": ({"is": "grouped"},)})
    """Kind of layer -> its mixer; a kind that is not here mixes nothing."""
    mlps: Mapping[str, Piece | None] = field(default_factory=lambda: {"": {"is": "dense"}})
    """Kind of layer, or all others -> its MLP; a kind with None has none."""
    types: str = "layer_types"
    """Fields with a kind for every layer, by their names in the table; empty: there are none."""
    counts_layers: bool = False
    """A list of kinds says how many layers there are."""
    types_if: Fill = True
    kinds: Mapping[str, str] = {}
    """Words of the file -> kinds of this row, where they differ."""
    order: tuple[tuple[str, str], ...] = (("full_attention", "1"),)
    """Where the file has no such field: (kind, expression over ``i``), and the first that is true counts."""
    experts: Piece | None = None
    sparse: str = "experts"
    """Which layers have ``experts``: an expression over ``i``."""
    norms: Fill = 2
    """Per layer, as wide as the model."""
    repeats: Fill = False
    """Which layers have the weights of an earlier one: an expression over ``i``."""
    other: Fill = "hidden"
    """Parameters outside the layers, besides embedding and head: the last norm, learned positions."""
    embeddings: Fill = 0
    """Parameters of embeddings beside the first."""
    tied: Fill = ""
    """Whether the output head shares the embedding's weights; empty: as the file says, inside the decoder or around."""
    ties: bool = False
    """What a file that says nothing of it means, where ``tied`` is empty."""
    context: Fill = 0
    """Longest context; 0: as ``max_position_embeddings`` and its scaling say."""
    names: Mapping[str, str] = {}
    """Fields by another name than most files have."""
    around: Mapping[str, Fill] = {}
    """Names of what the file has around a decoder with a section of its own: expressions over that."""
    defaults: Mapping[str, Any] = {}
    """Fields that files leave out, as the configuration class fills them in."""
    harmless: tuple[str, ...] = ()
    """Fields that look as if they mattered and do not."""
    harmless_around: tuple[str, ...] = ()
    """The same, around a decoder that has a section of its own."""
    refused: tuple[tuple[str, str, str], ...] = ()
    """(field, expression that has to be false, what is not modelled)."""
    refused_around: tuple[tuple[str, str], ...] = ()
    """(field around the decoder that must be missing or null, what is not modelled)."""
    prefix: str = "model.layers"
    towers: tuple[Tower, ...] = ()
    decoders: Mapping[str, ArchitectureRow] = {}
    """What stands behind the towers, by the decoder's ``model_type``, where it may be several; others: this row."""
    encoder_tokens: Fill = 0
    """Embeddings that cross attention keeps per request."""
    embedding_on_every_stage: bool = False
    encoders_on_every_stage: bool = False
    """Every stage of a pipeline holds them."""
    attention_first: bool = False
    """vLLM makes all that attends before the first layer."""
    one_gpu: bool = False
    """vLLM refuses to share it out over a tensor-parallel group."""
    least_state: Fill = 0
    """Blocks of attention have room for a state of so many elements, whether or not a layer keeps one."""
    replicated_embedding: bool = False
    images_attend_both_ways: Fill = False

    def __post_init__(self) -> None:
        for piece in (*self.mlps.values(), self.experts, *(each for some in self.mixers.values() for each in some)):
            if piece is not None:
                check_piece(piece)

    @cached_property
    def known(self) -> frozenset[str]:
        """Fields that its expressions name, whether or not a file has a layer that needs them."""
        names, found = {**NAMES, **self.names}, set[str]()
        left = ["hidden layers vocab", *_texts(self)]
        while left:
            for word in re.findall(r"[A-Za-z_]\w*", left.pop()):
                if word not in found:
                    found.add(word)
                    left += [names[word]] if word in names else []
        return frozenset(found)


_NO_EXPRESSIONS = (
    "prefix", "towers", "decoders", "types_if", "harmless", "harmless_around", "defaults", "about",
)  # fmt: skip


def _texts(piece: Any) -> Iterator[str]:
    """All expressions of a row or a piece."""
    if isinstance(piece, str):
        yield piece
    elif isinstance(piece, Mapping) and "is" in piece:
        yield from _texts(tuple(texts_of(piece)))
    elif isinstance(piece, Mapping | tuple | list):
        for each in piece.values() if isinstance(piece, Mapping) else piece:
            yield from _texts(each)
    elif isinstance(piece, Struct):
        for name in piece.__struct_fields__:
            if name not in _NO_EXPRESSIONS and (name != "sparse" or getattr(piece, "experts", None)):
                yield from _texts(getattr(piece, name))


_AS_THE_ROW = (
    "replicated_embedding", "embedding_on_every_stage", "encoders_on_every_stage", "attention_first", "one_gpu",
)  # fmt: skip


def read_row(row: ArchitectureRow, reading: ConfigReader) -> dict[str, Any]:
    """Fields of a :class:`~tokenyard.models.spec.ModelSpec` that follow from a file by its row.

    ``max_model_len`` is 0 where ``max_position_embeddings`` and its scaling say it.
    """
    if row.decoders:
        kind = reading.fields.text("model_type")
        if kind not in row.decoders:
            raise reading.fields.error("model_type", f"is not modelled here: use {' or '.join(row.decoders)}")
        row = replace(row.decoders[kind], towers=row.towers, harmless_around=row.harmless_around, ties=row.ties)
    names = {**NAMES, **row.names}
    around = Expressions(reading.outer, {})
    found = {name: around.value(fill) for name, fill in row.around.items()}
    reader = Reader(reading=reading, values=Expressions(reading.fields, names, found))
    values = reader.values
    for name, expression, what in row.refused:
        if values.value(expression):
            reading.not_modelled(name, what)
    for name, what in row.refused_around:
        if around.value(f"{name}|{name}=0"):
            reading.not_modelled(name, what)
    reading.fields.harmless(*row.harmless, *row.known)
    reading.outer.harmless(*row.harmless_around, *(row.known if row.towers else ()))
    kinds = _kinds(row, reading, values)
    alike: dict[LayerSpec, LayerSpec] = {}  # one object for layers that are equal: they are counted in no time
    made = (_layer(row, reader, kind, i) for i, kind in enumerate(kinds))
    layers = tuple(alike.setdefault(layer, layer) for layer in made)
    predicting, joins_once = layers_that_predict(
        reading,
        layers,
        row.prefix,
        lambda i, at, dense: _layer(row, reader, kinds[i], i, at, dense=dense),
    )
    if row.tied != "":
        reading.fields.harmless("tie_word_embeddings")
    return {
        **{name: getattr(row, name) for name in _AS_THE_ROW},
        "layers": layers,
        "hidden_size": values.name("hidden"),
        "vocab_size": values.name("vocab"),
        "max_model_len": values.count(row.context),
        "tie_word_embeddings": _tied(row, reading) if row.tied == "" else bool(values.count(row.tied)),
        "other_parameters": values.count(row.other),
        "embedding_parameters": values.count(row.embeddings),
        "encoders": tuple(filter(None, (tower.build(reading, values.name("hidden")) for tower in row.towers))),
        "max_encoder_tokens": values.count(row.encoder_tokens),
        "images_attend_both_ways": bool(row.towers) and bool(values.value(row.images_attend_both_ways)),
        "predicting_layers": predicting,
        "joins_once": joins_once,
        "least_state_bytes": values.count(row.least_state) * dtype_bytes(reading.dtype),
    }


def _tied(row: ArchitectureRow, reading: ConfigReader) -> bool:
    """As the file says: what is around a decoder counts before it, as transformers 5 hands it on."""
    sections = (reading.outer, reading.fields)
    found = next((each for each in sections if each.get("tie_word_embeddings") is not None), reading.fields)
    return found.flag("tie_word_embeddings", default=row.ties)


def _kinds(row: ArchitectureRow, reading: ConfigReader, values: Expressions) -> list[str]:
    """The kind of every layer."""
    fields = reading.fields
    names = [name for name in row.types.split("|") if name]
    fields.harmless(*names)
    given = fields.get(fields.first(*names)) if names and values.value(row.types_if) else None
    if isinstance(given, str):
        known = sorted({*row.kinds})
        if not given or set(given) - set(known):
            raise fields.error(fields.first(*names), f"give a letter per layer: {', '.join(known)}")
        fields.harmless("num_hidden_layers")
        return [row.kinds[letter] for letter in given]
    if given and row.counts_layers and isinstance(given, list):
        fields.harmless("num_hidden_layers")
        count = len(given)
    else:
        count = _num_layers(fields, values)
    if given:
        words = fields.per_layer(fields.first(*names), count)
        return [_known(row, fields, names, values, word) for word in words]
    return [next(kind for kind, rule in row.order if values.value(rule, i=i)) for i in range(count)]


def _num_layers(fields: Any, values: Expressions) -> int:
    """Each layer is looked at by itself: no model has so many that it takes long."""
    text = values.names["layers"]
    if text.isidentifier():
        return int(fields.count(text, high=MOST_LAYERS))
    count = int(values.name("layers"))
    if count > MOST_LAYERS:
        raise fields.error(fields.first(*text.partition("=")[0].split("|")), f"give at most {MOST_LAYERS}")
    return count


def _known(row: ArchitectureRow, fields: Any, names: list[str], values: Expressions, word: Any) -> str:
    kind = row.kinds.get(word, word) if isinstance(word, str) else ""
    if kind not in row.mixers and kind not in row.mlps:
        known = {*row.mixers, *row.kinds} - {*row.kinds.values()} | {*row.kinds}
        raise fields.error(fields.first(*names), f"holds {word!r}: use {' or '.join(sorted(known))}")
    for mixer in row.mixers.get(kind, ()):
        if mixer["is"] == "grouped" and mixer.get("window") and not values.value(mixer["window"], i=0):
            raise fields.missing("sliding_window", "give a whole number")
    return kind


def _layer(row: ArchitectureRow, reader: Reader, kind: str, i: int, at: str = "", *, dense: bool = False) -> LayerSpec:
    """A layer as the one of number ``i``; ``at`` is its module where it is another, ``dense`` one without experts."""
    at = at or f"{row.prefix}.{i}"
    found = (reader.piece(mixer, at, i) for mixer in row.mixers.get(kind, ()))
    mixers = tuple(mixer for mixer in found if mixer is not None)
    piece = row.mlps.get(kind, row.mlps.get(""))
    if row.experts is not None and kind not in row.mlps and not dense and reader.values.value(row.sparse, i=i):
        piece = row.experts
    mlp = None if piece is None else reader.piece(piece, at, i)
    norms = reader.values.count(row.norms, i=i) * reader.values.name("hidden")
    repeats = bool(reader.values.count(row.repeats, i=i))
    return LayerSpec(mixers=mixers, mlp=mlp, norm_parameters=norms, repeats=repeats)
