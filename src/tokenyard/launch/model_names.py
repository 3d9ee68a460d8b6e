"""Names of the Hugging Face hub, and which of the models known by name they are."""

from __future__ import annotations

import re
from collections.abc import Collection

__all__ = ["known_as"]

_TUNED = re.compile(
    r"(?:-(?:instruct|it|chat|hf|base|preview|thinking|text|\d{4}|v\d+(?:\.\d+)*|[45]-?bit|main|original|turbo))+$"
)
"""What says how a model was tuned or packed, not what shape it has."""
_MAKERS = ("meta-", "c4ai-", "nvidia-", "mistral-ai-", "rhai-")
_QUANTISED = (
    "fp8",
    "awq",
    "gptq",
    "nvfp4",
    "w8a8",
    "w4a16",
    "int4",
    "int8",
    "bnb",
    "fp4",
    "mxfp4",
    "quantized",
    "gguf",
)


def known_as(name: str, known: Collection[str]) -> str | None:
    """Which of the ``known`` names a name of the hub stands for.

    ``meta-llama/Llama-3.1-8B-Instruct`` is ``llama-3.1-8b``. None if it is none of them. A name
    that says how weights are quantised stands for one that says the same, and for no other.
    """
    short = name.rsplit("/", 1)[-1].lower().replace("_", "-")
    for maker in _MAKERS:
        short = short.removeprefix(maker)
    short = short.replace("llama3", "llama-3").replace("llama-3-1", "llama-3.1")
    for candidate in (short, _without_tuning(short)):
        if candidate in known:
            return candidate
    return None


def _without_tuning(name: str) -> str:
    """Without the parts that say how it was tuned; quantisation stays at the end."""
    ends = [part for part in name.split("-") if part in _QUANTISED]
    plain = "-".join(part for part in name.split("-") if part not in _QUANTISED)
    return "-".join([_TUNED.sub("", plain), *ends])
