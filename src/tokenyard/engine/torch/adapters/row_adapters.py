"""Adapters by rows: a step's tokens get what their own adapter adds, in every linear layer that it changes.

y = W x                    all tokens, as without adapters
y[i] += B_a A_a x[i]       for the tokens i of the requests that ask for adapter a
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tokenyard.columns import IntArray
from tokenyard.engine.torch.adapters.adapter_file import Adapter, LoraLayer
from tokenyard.engine.torch.checkpoint import require_torch
from tokenyard.errors import ConfigError

__all__ = ["NO_ADAPTER", "RowAdapters"]

NO_ADAPTER = -1
_EXPERTS = "experts"


class _Part(NamedTuple):
    """The tokens of a step that ask for one adapter."""

    adapter: int
    places: Any
    """In the flattened batch; None: all of it."""


class RowAdapters:
    """The adapters of one model, hooked into its layers."""

    def __init__(self, model: Any, adapters: Sequence[Adapter], device: str) -> None:
        """ConfigError for an adapter of layers that the model does not have, or that do not see every token."""
        self._device = device
        self._parts: list[_Part] = []
        self._num_tokens = 0
        changed: dict[str, dict[int, LoraLayer]] = {}
        for number, adapter in enumerate(adapters):
            for path, layer in adapter.layers.items():
                _check(model, adapter, path, layer)
                changed.setdefault(path, {})[number] = layer
        for path, by_adapter in changed.items():
            model.get_submodule(path).register_forward_hook(self._adding(by_adapter))

    def begin(self, adapters: IntArray, counts: IntArray) -> None:
        """The next forward pass has rows of ``counts`` tokens that ask for ``adapters``, NO_ADAPTER or a number."""
        torch = require_torch()
        of_token = np.repeat(adapters, counts)
        self._num_tokens = len(of_token)
        self._parts = []
        for each in np.unique(of_token[of_token != NO_ADAPTER]).tolist():
            places = (of_token == each).nonzero()[0]
            everywhere = len(places) == len(of_token)
            self._parts.append(_Part(each, None if everywhere else torch.from_numpy(places).to(self._device)))

    def _adding(self, by_adapter: Mapping[int, LoraLayer]) -> Callable[[Any, Any, Any], None]:
        """A hook that adds to a layer's output, in place."""

        def add(_: Any, inputs: tuple[Any, ...], output: Any) -> None:
            for part in self._parts:
                layer = by_adapter.get(part.adapter)
                if layer is None:
                    continue
                asking, told = inputs[0].flatten(0, -2), output.view(-1, output.shape[-1])
                assert len(told) == self._num_tokens, "a layer that does not see the whole batch"
                if part.places is None:
                    told.addmm_(asking @ layer.down.T, layer.up.T)
                else:
                    told.index_add_(0, part.places, asking[part.places] @ layer.down.T @ layer.up.T)

        return add


def _check(model: Any, adapter: Adapter, path: str, layer: LoraLayer) -> None:
    linear = require_torch().nn.Linear
    try:
        module = model.get_submodule(path)
    except AttributeError:
        module = None
    parts = path.split(".")
    if not isinstance(module, linear) or _EXPERTS in parts or "layers" not in parts:
        fix = "is no linear layer of attention or MLP in this model: the engine adapts those alone"
        raise ConfigError(adapter.field, path, fix)
    shape = (layer.up.shape[0], layer.down.shape[1])
    if shape != tuple(module.weight.shape):
        own = " x ".join(map(str, module.weight.shape))
        raise ConfigError(adapter.field, path, f"is made for {shape[0]} x {shape[1]}, and the model's has {own}")
