"""LoRA adapters: read from peft's files, applied to the rows of a step."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenyard.core.arrays import IntArray
from tokenyard.core.config import require_bool, require_int
from tokenyard.errors import ConfigError, text_of
from tokenyard.quick_dataclass import dataclass
from tokenyard.serve.torch.checkpoint import require_torch

# ---------------------------------------------------------------------------------------------------------------------
# Which adapters an engine has, and how many of them a step may mix: vLLM's flag names.

_GREATEST_RANK = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LoRAConfig:
    """Raises ConfigError for a value that cannot work."""

    enable_lora: bool = False
    max_loras: int = 1
    """Most adapters in one step."""
    max_lora_rank: int = 16
    """Greatest rank of an adapter."""
    lora_modules: Mapping[str, Path] = field(default_factory=dict)
    """Name -> folder with ``adapter_config.json`` and ``adapter_model.safetensors``."""

    def __post_init__(self) -> None:
        require_bool("enable_lora", self.enable_lora)
        require_int("max_loras", self.max_loras, 1)
        require_int("max_lora_rank", self.max_lora_rank, 1, _GREATEST_RANK)
        if self.lora_modules and not self.enable_lora:
            raise ConfigError("lora_modules", ", ".join(self.lora_modules), "give §enable_lora as well")

    @property
    def most_in_a_step(self) -> int:
        """``max_loras`` of the scheduler's configuration: 0 without adapters."""
        return self.max_loras if self.enable_lora else 0


def lora_modules_of(given: Mapping[str, str | Path] | Sequence[str] | None) -> dict[str, Path]:
    """Name -> folder, of a mapping or of texts ``NAME=FOLDER``. ConfigError for what is neither."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        pairs: list[tuple[Any, Any]] = list(given.items())
    elif isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError("lora_modules", given, "give a list of NAME=FOLDER")
    else:
        pairs = [_pair(each) for each in given]
    named: dict[str, Path] = {}
    for name, folder in pairs:
        if not isinstance(name, str) or not name or not isinstance(folder, str | Path) or not str(folder):
            raise ConfigError("lora_modules", f"{name}={folder}", "give NAME=FOLDER")
        if name in named:
            raise ConfigError("lora_modules", f"{name}={folder}", "another adapter has this name: choose another")
        named[name] = Path(folder)
    return named


def _pair(text: Any) -> tuple[str, str]:
    name, equals, folder = text.partition("=") if isinstance(text, str) else ("", "", "")
    if not equals:
        raise ConfigError("lora_modules", text, "give NAME=FOLDER")
    return name, folder


# ---------------------------------------------------------------------------------------------------------------------
# An adapter as peft saves it: ``adapter_config.json`` and ``adapter_model.safetensors``.
#
# A layer's weight ``W`` becomes ``W + scale * B A`` (Hu et al. 2021), with ``scale = lora_alpha / r``, or
# ``lora_alpha / sqrt(r)`` with ``use_rslora`` (Kalajdzievski 2023). Whatever a configuration says beyond that, and
# that changes what the adapter computes, is refused by its name.

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_WITHOUT_EFFECT = frozenset(
    (
        *("peft_type", "r", "lora_alpha", "use_rslora", "target_modules", "bias", "init_lora_weights"),
        *("lora_dropout", "base_model_name_or_path", "revision", "task_type", "inference_mode", "auto_mapping"),
        *("exclude_modules", "layers_to_transform", "layers_pattern", "peft_version", "megatron_core"),
        *("qalora_group_size", "loftq_config", "eva_config", "corda_config", "lora_ga_config"),
    )
)
"""Fields that are heeded, or that say how it was trained or which layers have weights."""
_HARMLESS_STARTS = (None, True, False, "gaussian", "orthogonal", "eva")
"""Values of ``init_lora_weights`` that are taken: others change the model's own weights as well."""


class LoraLayer(msgspec.Struct, frozen=True):
    """What an adapter adds to one linear layer: ``up @ down @ x``."""

    down: Any
    """A, shape ``[rank, inputs]``."""
    up: Any
    """B times the scale, shape ``[outputs, rank]``."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter."""

    name: str
    layers: Mapping[str, LoraLayer]
    """Path of the module in the model -> its LoRA layer."""

    @property
    def field(self) -> str:
        """What errors call it."""
        return f"lora_modules.{self.name}"


def read_adapter(name: str, folder: Path, *, max_rank: int, dtype: Any, device: str) -> Adapter:
    """The adapter in ``folder``. ConfigError if there is none, or one that the engine cannot apply."""
    field = f"lora_modules.{name}"
    rank, scale = _read_config(field, folder / _CONFIG)
    if rank > max_rank:
        raise ConfigError(field, f"r = {rank}", f"§max_lora_rank is {max_rank}: give {rank}")
    try:
        from safetensors.torch import load_file  # noqa: PLC0415 - an extra

        tensors = load_file(folder / _WEIGHTS)
    except Exception as error:
        raise ConfigError(field, str(folder / _WEIGHTS), f"cannot be read: {text_of(error)}") from error
    halves: dict[str, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        found = _NAME.fullmatch(key)
        if found is None:
            raise ConfigError(field, key, "is no weight of a linear layer: the engine applies lora_A and lora_B alone")
        halves.setdefault(found[1], {})[found[2]] = tensor.to(device, dtype)
    layers = {path: _layer(field, path, found, rank, scale) for path, found in halves.items()}
    if not layers:
        raise ConfigError(field, str(folder / _WEIGHTS), "has no weights")
    return Adapter(name, layers)


def _layer(field: str, path: str, halves: Mapping[str, Any], rank: int, scale: float) -> LoraLayer:
    down, up = halves.get("A"), halves.get("B")
    if down is None or up is None or down.ndim != 2 or up.ndim != 2 or len(down) != rank or up.shape[1] != rank:
        raise ConfigError(field, path, f"needs lora_A of shape [{rank}, inputs] and lora_B of [outputs, {rank}]")
    return LoraLayer(down, up * scale)


def _read_config(field: str, file: Path) -> tuple[int, float]:
    """Rank and scale."""
    try:
        config = msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(field, str(file), f"cannot be read: {text_of(error)}") from None
    if not isinstance(config, dict):
        raise ConfigError(field, str(file), "is no configuration of an adapter")
    if config.get("peft_type", "LORA") != "LORA":
        raise ConfigError(field, f"peft_type = {config['peft_type']}", "the engine applies LORA")
    for key, value in config.items():
        asks = value not in (None, False, 0, "", "none", [], {})
        unknown = asks and (key not in _WITHOUT_EFFECT or key == "bias")
        if unknown or (key == "init_lora_weights" and value not in _HARMLESS_STARTS):
            raise ConfigError(field, f"{key} = {value}", "the engine does not apply it: save an adapter without")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise ConfigError(field, f"r = {rank}", "must be a whole number from 1 on")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool):
        raise ConfigError(field, f"lora_alpha = {alpha}", "must be a number")
    return rank, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


# ---------------------------------------------------------------------------------------------------------------------
# Adapters by rows: a step's tokens get what their own adapter adds, in every linear layer that it changes.
#
#     y = W x                    all tokens, as without adapters
#     y[i] += B_a A_a x[i]       for the tokens i of the requests that ask for adapter a

NO_ADAPTER = -1
_EXPERTS = "experts"


class _Part(msgspec.Struct, frozen=True):
    """The tokens of a step that ask for one adapter."""

    adapter: int
    places: Any
    """Places in the flattened batch; None: all of it."""


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
