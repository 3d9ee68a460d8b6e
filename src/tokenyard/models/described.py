"""A model's description as a file: what ``tokenyard describe`` writes, and ``--model model.json`` reads.

The file holds a :class:`~tokenyard.models.spec.ModelSpec` as it is: pieces with the name of their class (``piece``) and
their fields, layers that are alike once with their count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from tokenyard.errors import ConfigError
from tokenyard.models import formats, layers, mixers
from tokenyard.models.layers import MOST_LAYERS, LayerSpec
from tokenyard.models.spec import EncoderSpec, ModelSpec

DESCRIBED = "tokenyard_model"
"""The key that tells such a file from a ``config.json``; its value is the version of the format."""
DESCRIBED_BY = "described by the classes of vLLM "
"""How the first of a description's notes begins; the version is the rest."""
_VERSION = 1
_KINDS: dict[str, type] = {
    each.__name__: each
    for each in (
        formats.WeightFormat, mixers.SoftmaxAttention, mixers.LatentAttention, mixers.CompressedAttention,
        mixers.Indexer, mixers.KeyRing, mixers.Mamba1, mixers.Mamba2, mixers.GatedDeltaNet, mixers.ShortConvolution,
        mixers.LinearAttention, mixers.NgramEmbedding, mixers.PagedConvolution, layers.DenseMLP, layers.MoE,
        layers.LayerSpec, EncoderSpec,
    )
}  # fmt: skip


def is_described(raw: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a description, not a ``config.json``."""
    return DESCRIBED in raw


def model_in_words(spec: ModelSpec) -> dict[str, Any]:
    """The description of a model, ready for JSON: :func:`described_model` makes the same of it."""
    content: dict[str, Any] = _content(spec)
    content.pop("piece")
    runs: list[dict[str, Any]] = []
    for layer in spec.layers:
        words = _content(layer)
        words.pop("piece")
        if runs and runs[-1]["layer"] == words:
            runs[-1]["count"] += 1
        else:
            runs.append({"count": 1, "layer": words})
    return {DESCRIBED: _VERSION, **content, "layers": runs}


def _content(piece: Any) -> Any:
    if is_dataclass(piece):
        given = {field.name: getattr(piece, field.name) for field in fields(piece) if not _is_default(piece, field)}
        return {"piece": type(piece).__name__, **{name: _content(value) for name, value in given.items()}}
    return [_content(each) for each in piece] if isinstance(piece, tuple) else piece


def _is_default(piece: Any, field: Any) -> bool:
    return field.default is not NO_DEFAULT and getattr(piece, field.name) == field.default


def described_model(raw: Mapping[str, Any], *, where: str, dtype: str = "auto") -> ModelSpec:
    """The model of a description. Raises ConfigError naming file and field."""
    if raw[DESCRIBED] != _VERSION:
        raise ConfigError(f"{where}: {DESCRIBED}", raw[DESCRIBED], f"give {_VERSION}: describe the model again")
    content = {name: value for name, value in raw.items() if name != DESCRIBED}
    runs = content.pop("layers", None)
    if not isinstance(runs, list) or not runs:
        raise ConfigError(f"{where}: layers", runs, "give a list of layers with their counts")
    layers: list[LayerSpec] = []
    for run in runs:
        count = run.get("count") if isinstance(run, dict) else None
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_LAYERS - len(layers):
            raise ConfigError(f"{where}: layers", count, f"give counts, together {MOST_LAYERS} at most")
        layers += [_made(LayerSpec, run.get("layer"), f"{where}: layers")] * count
    spec: ModelSpec = _made(ModelSpec, content, where, layers=tuple(layers))
    if dtype not in ("auto", spec.dtype):
        raise ConfigError("dtype", dtype, f"{where} describes the model in {spec.dtype}: describe it again")
    return spec


def described_elsewhere(spec: ModelSpec, version: str) -> str | None:
    """What to say of a model whose description another version of vLLM made than ``version`` (``0.33``), which serves.

    Each version builds a model by its own class: layers, weights and what a token keeps may differ.
    """
    by = next((note.removeprefix(DESCRIBED_BY) for note in spec.notes if note.startswith(DESCRIBED_BY)), version)
    if by.split(".")[:2] == version.split(".")[:2]:
        return None
    return f"its description is of vLLM {by}, and {version} may build it otherwise: describe it again within {version}"


def _made(made: Any, content: Any, where: str, **more: Any) -> Any:
    """One piece; every field is checked by its type, and by the piece itself."""
    if not isinstance(content, dict):
        raise ConfigError(where, content, "give an object")
    types = get_type_hints(made)
    known = {field.name for field in fields(made)}
    values: dict[str, Any] = {}
    for name, value in content.items():
        if name == "piece":
            continue
        if name not in known:
            raise ConfigError(
                f"{where}: {name}", value, f"is not known: a {made.__name__} has {', '.join(sorted(known))}"
            )
        values[name] = _value(value, types[name], f"{where}: {name}")
    try:
        return made(**values, **more)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.field}", error.value, error.marked_fix) from None
    except TypeError as error:
        raise ConfigError(where, made.__name__, f"is not whole: {error}") from None


def _value(value: Any, wanted: Any, where: str) -> Any:
    if isinstance(value, dict):
        made = _KINDS.get(str(value.get("piece")))
        if made is None or get_origin(wanted) is tuple or not issubclass(made, wanted):
            fix = f"give one that belongs here: {', '.join(_KINDS)}"
            raise ConfigError(f"{where}: piece", value.get("piece"), fix)
        return _made(made, value, where)
    if isinstance(value, list) and any(isinstance(each, dict) for each in value) and get_args(wanted):
        return tuple(_value(each, get_args(wanted)[0], where) for each in value)
    try:
        return msgspec.convert(value, wanted)
    except (msgspec.ValidationError, TypeError) as error:
        raise ConfigError(where, value, f"does not work: {error}") from None
