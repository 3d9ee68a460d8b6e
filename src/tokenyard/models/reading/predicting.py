"""Layers that predict tokens further ahead (MTP): which checkpoints bring them, and what vLLM loads to draft with.

They are no part of the model: vLLM ignores their weights unless ``--speculative-config`` asks for ``mtp``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

import msgspec

from tokenyard.files import packaged
from tokenyard.models.layers import MOST_LAYERS, LayerSpec, MoE
from tokenyard.models.mixers import Attends, CompressedAttention, Mixer, SoftmaxAttention
from tokenyard.models.reading.pieces import ConfigReader, Part


class _Predicting(Part, frozen=True, kw_only=True):
    """Layers that predict, made as layers of the model are."""

    field: str = "num_nextn_predict_layers"
    """How many there are."""
    without: int = 0
    """How many there are in a file that does not say it."""
    most: int = MOST_LAYERS
    """How many vLLM loads at most."""
    like: tuple[Literal["attends to all", "window", "experts"], ...] = ("attends to all",)
    """Each is made like the last of the model's layers that is or has this."""
    dense: bool = False
    """They have an MLP where the model's layers have experts."""
    mixers: int = 2
    """How many of the layer's attentions they are made of."""
    joins_once: bool = False
    """One matrix, shared out, joins embeddings and hidden states for all of them."""
    prefix: str = ""
    """What the names of their modules begin with; empty: they count on from the model's layers."""


def _has_window(layer: LayerSpec) -> bool:
    return any(
        isinstance(mixer, SoftmaxAttention) and mixer.attends is Attends.SLIDING_WINDOW for mixer in layer.mixers
    )


def _has_experts(layer: LayerSpec) -> bool:
    return isinstance(layer.mlp, MoE)


_LIKE: dict[str, Callable[[LayerSpec], bool]] = {
    "attends to all": lambda layer: layer.attends_to_all, "window": _has_window, "experts": _has_experts,
}  # fmt: skip


class _Known(msgspec.Struct, forbid_unknown_fields=True):
    """``predicting.json``."""

    about: tuple[str, ...]
    predicting: dict[str, _Predicting]
    """Architecture, or ``model_type`` of the decoder -> how its layers predict."""


@cache
def _known() -> dict[str, _Predicting]:
    return msgspec.json.decode(packaged(__package__, "predicting.json"), type=_Known).predicting


def may_predict(*known_as: str) -> bool:
    """Whether checkpoints of an architecture, or of a ``model_type``, have such layers."""
    return any(name in _known() for name in known_as)


def layers_that_predict(
    reading: ConfigReader,
    layers: Sequence[LayerSpec],
    prefix: str,
    make: Callable[[int, str, bool], LayerSpec],
) -> tuple[tuple[LayerSpec, ...], bool]:
    """What vLLM 0.33 loads where the model drafts for itself, nothing where it cannot; and whether it joins once.

    ``make`` makes a layer like the one of a number, by the name of its module, with an MLP in the place of experts or
    not; ``prefix`` is what the names of the model's layers begin with.
    """
    known_as = (reading.architecture, reading.fields.text("model_type"))
    how = next((_known()[name] for name in known_as if name in _known()), None)
    if how is None:
        return (), False
    section = reading.fields if reading.fields.get(how.field) is not None else reading.outer
    count = min(section.count(how.field, how.without, low=0, high=MOST_LAYERS), how.most)
    first, at = (0, how.prefix) if how.prefix else (len(layers), prefix)
    alike = [
        max((i for i, layer in enumerate(layers) if _LIKE[like](layer)), default=len(layers) - 1) for like in how.like
    ]
    made = (make(i, f"{at}.{first + n}", how.dense) for n in range(count) for i in alike)
    return tuple(_predicting(layer, how) for layer in made), how.joins_once


def _last_like(layers: Sequence[LayerSpec], is_like: Callable[[LayerSpec], bool]) -> int:
    return max((i for i, layer in enumerate(layers) if is_like(layer)), default=len(layers) - 1)


def _predicting(layer: LayerSpec, how: _Predicting) -> LayerSpec:
    """Compressed vectors are the model's alone: what predicts attends to its window."""
    return replace(layer, mixers=tuple(map(_without_compression, layer.mixers[: how.mixers])))


def _without_compression(mixer: Mixer) -> Mixer:
    if not isinstance(mixer, CompressedAttention):
        return mixer
    norms = mixer.q_lora_rank + mixer.head_size + mixer.num_heads
    return replace(mixer, ratio=0, indexer=None, extra_parameters=norms)
