"""An adapter as peft saves it: ``adapter_config.json`` and ``adapter_model.safetensors``.

A layer's weight ``W`` becomes ``W + scale * B A`` (Hu et al. 2021), with ``scale = lora_alpha / r``, or
``lora_alpha / sqrt(r)`` with ``use_rslora`` (Kalajdzievski 2023). Whatever a configuration says beyond that, and that
changes what the adapter computes, is refused by its name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tokenyard.errors import ConfigError, text_of

__all__ = ["Adapter", "LoraLayer", "read_adapter"]

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
"""Of ``init_lora_weights``: others change the model's own weights as well."""


class LoraLayer(NamedTuple):
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
    """By the module's path in the model."""

    @property
    def field(self) -> str:
        """What errors call it."""
        return f"lora_modules.{self.name}"


def read_adapter(name: str, folder: Path, *, max_rank: int, dtype: Any, device: str) -> Adapter:
    """The adapter in ``folder``. ConfigError if there is none, or one that the engine cannot apply."""
    field = f"lora_modules.{name}"
    rank, scale = _read_config(field, folder / _CONFIG)
    if rank > max_rank:
        raise ConfigError(field, f"r = {rank}", f"max_lora_rank is {max_rank}: give {rank}")
    try:
        tensors = import_module("safetensors.torch").load_file(folder / _WEIGHTS)
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
