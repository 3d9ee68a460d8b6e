"""The head that drafts from a model's hidden states (EAGLE, MTP), where its own config is not known.

It counts as one more layer of the model, with keys and values of its own, and a matrix that joins a token's embedding
with the hidden state of the one before. Embedding and output head are the model's.
"""

from __future__ import annotations

from dataclasses import replace

from tokenyard.models.attention import Attends, LatentAttention, SoftmaxAttention
from tokenyard.models.layer import LayerSpec
from tokenyard.models.spec import ModelSpec

__all__ = ["draft_head", "with_draft_head"]


def draft_head(model: ModelSpec) -> ModelSpec:
    """The head alone: a model of its one layer, the last of the model's that attends to everything."""
    layer = next((each for each in reversed(model.layers) if _attends_to_all(each)), model.layers[-1])
    return replace(model, name=f"a head of {model.name}", layers=(layer,))


def with_draft_head(model: ModelSpec) -> ModelSpec:
    """Model and head as they share a GPU: what their weights and their KV come to."""
    joins = 2 * model.hidden_size * model.hidden_size
    layers = (*model.layers, *draft_head(model).layers)
    return replace(model, layers=layers, other_parameters=model.other_parameters + joins)


def _attends_to_all(layer: LayerSpec) -> bool:
    return any(
        isinstance(mixer, LatentAttention) or (isinstance(mixer, SoftmaxAttention) and mixer.attends is Attends.FULL)
        for mixer in layer.mixers
    )
