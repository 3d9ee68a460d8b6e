"""Layers that predict tokens further ahead (MTP): which checkpoints bring them, and what vLLM loads to draft with.

They are no part of the model: vLLM ignores their weights unless ``--speculative-config`` asks for ``mtp``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tokenyard.models.layers import MOST_LAYERS, LayerSpec, MoE
from tokenyard.models.mixers import Attends, CompressedAttention, Mixer, SoftmaxAttention
from tokenyard.models.reading.parts import ConfigReader
from tokenyard.quick_dataclass import dataclass


@dataclass(frozen=True, kw_only=True)
class _Predicting:
    """Layers that predict, made as layers of the model are."""

    field: str = "num_nextn_predict_layers"
    """How many there are."""
    without: int = 0
    """How many there are in a file that does not say it."""
    most: int = MOST_LAYERS
    """How many vLLM loads at most."""
    like: tuple[Callable[[LayerSpec], bool], ...] = ()
    """Each is made like the last of the model's layers that is so; nothing: that attends to everything."""
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


_PLAIN = _Predicting()
_DENSE = _Predicting(dense=True)
_QWEN = _Predicting(field="mtp_num_hidden_layers", without=1, joins_once=True, prefix="mtp.layers")
_NEMOTRON = _Predicting(
    most=1, like=(lambda layer: layer.attends_to_all, _has_experts), joins_once=True, prefix="mtp.layers"
)
_MIMO2 = _Predicting(without=1, most=1, like=(_has_window,), dense=True, prefix="model.mtp.layers")
_PREDICTING = {
    "DeepseekV4ForCausalLM": _PLAIN,
    "Glm4MoeForCausalLM": _PLAIN,
    "Glm4MoeLiteForCausalLM": _PLAIN,
    "GlmOcrForConditionalGeneration": _PLAIN,
    "MiMoForCausalLM": _PLAIN,
    "MiMoV2FlashForCausalLM": _MIMO2,
    "MiMoV2ForCausalLM": _MIMO2,
    "MiniMaxM3SparseForConditionalGeneration": _Predicting(field="num_mtp_modules"),
    "Step3p5ForCausalLM": _PLAIN,
    "deepseek_v3": _PLAIN,
    "deepseek_v32": _PLAIN,
    "ernie4_5_moe": _DENSE,
    "exaone4_5_text": _Predicting(without=1, joins_once=True, prefix="mtp.layers"),
    "exaone_moe": _Predicting(without=1, like=(_has_window,), dense=True, joins_once=True, prefix="mtp.layers"),
    "glm_moe_dsa": _PLAIN,
    "hy_v3": _PLAIN,
    "hy_v4": _PLAIN,
    "longcat_flash": _Predicting(without=1, most=1, dense=True, mixers=1),
    "nemotron_h": _NEMOTRON,
    "nemotron_h_puzzle": _NEMOTRON,
    "pangu_ultra_moe": _PLAIN,
    "qwen3_5": _QWEN,
    "qwen3_5_moe": _QWEN,
    "qwen3_5_moe_text": _QWEN,
    "qwen3_5_text": _QWEN,
    "qwen3_next": _Predicting(without=1, joins_once=True, prefix="mtp.layers"),
}
"""Architecture, or ``model_type`` of the decoder -> how its layers predict."""


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
    how = next((_PREDICTING[name] for name in known_as if name in _PREDICTING), None)
    if how is None:
        return (), False
    section = reading.fields if reading.fields.get(how.field) is not None else reading.outer
    count = min(section.count(how.field, how.without, low=0, high=MOST_LAYERS), how.most)
    first, at = (0, how.prefix) if how.prefix else (len(layers), prefix)
    likes = how.like or (lambda layer: layer.attends_to_all,)
    alike = [max((i for i, layer in enumerate(layers) if like(layer)), default=len(layers) - 1) for like in likes]
    made = (make(i, f"{at}.{first + n}", how.dense) for n in range(count) for i in alike)
    return tuple(_predicting(layer, how) for layer in made), how.joins_once


def _predicting(layer: LayerSpec, how: _Predicting) -> LayerSpec:
    """Compressed vectors are the model's alone: what predicts attends to its window."""
    return replace(layer, mixers=tuple(map(_without_compression, layer.mixers[: how.mixers])))


def _without_compression(mixer: Mixer) -> Mixer:
    if not isinstance(mixer, CompressedAttention):
        return mixer
    norms = mixer.q_lora_rank + mixer.head_size + mixer.num_heads
    return replace(mixer, ratio=0, indexer=None, extra_parameters=norms)
