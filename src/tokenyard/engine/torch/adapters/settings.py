"""Which adapters an engine has, and how many of them a step may mix: vLLM's flag names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenyard.config import require_bool, require_int
from tokenyard.errors import ConfigError

__all__ = ["AdapterSettings", "lora_modules_of"]

_GREATEST_RANK = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """Raises ConfigError for a value that cannot work."""

    enable_lora: bool = False
    max_loras: int = 1
    """Most adapters in one step."""
    max_lora_rank: int = 16
    """Greatest rank of an adapter."""
    lora_modules: Mapping[str, Path] = field(default_factory=dict)
    """By name: folders with ``adapter_config.json`` and ``adapter_model.safetensors``."""

    def __post_init__(self) -> None:
        require_bool("enable_lora", self.enable_lora)
        require_int("max_loras", self.max_loras, 1)
        require_int("max_lora_rank", self.max_lora_rank, 1, _GREATEST_RANK)
        if self.lora_modules and not self.enable_lora:
            raise ConfigError("lora_modules", ", ".join(self.lora_modules), "give enable_lora as well")

    @property
    def most_in_a_step(self) -> int:
        """Of the scheduler's configuration: 0 without adapters."""
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
