"""Which fields of a configuration vLLM's model classes read: one that they do not cannot change what they build.

A field counts as read if it was, or if the code of a class that the model is made of names it: other values of other
fields may lead there.
"""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

__all__ = ["Watch"]


class Watch:
    """Notes every field that code of a model reads, from now on."""

    def __init__(self) -> None:
        from transformers import PretrainedConfig

        self._read: set[str] = set()
        self._seen: set[str] = set()
        self._modules: set[str] = set()
        read, plain = self._read, PretrainedConfig.__getattribute__

        def noted(config: Any, name: str) -> Any:
            if name[0] != "_" and name not in read and _is_model(sys._getframe(1).f_code.co_filename):  # noqa: SLF001
                read.update((name, plain(config, "attribute_map").get(name, name)))
            return plain(config, name)

        PretrainedConfig.__getattribute__ = noted

    def built(self, model: Any) -> None:
        """Note the classes that the model is made of."""
        self._modules |= {type(module).__module__ for module in model.modules()}

    def saw(self, config: dict[str, Any]) -> None:
        """Fields of a configuration that was built."""
        for name, value in config.items():
            self._seen.add(name)
            if isinstance(value, dict) and name.endswith("_config"):
                self.saw(value)

    def unread(self) -> list[str]:
        """Fields that nothing read."""
        left = self._seen - self._read
        for module in self._modules:
            if module.startswith("vllm."):
                left -= set(re.findall(r"\w+", inspect.getsource(sys.modules[module])))
        return sorted(left)


def _is_model(file: str) -> bool:
    return "/vllm/model" in file or "/modeling_" in file
