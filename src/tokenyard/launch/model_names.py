"""Names of the Hugging Face hub, and which of the models known by name they are."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

__all__ = ["KnownModel", "known_as"]


class KnownModel(NamedTuple):
    """What a name of the hub stands for."""

    name: str
    """Of the model whose shape it has."""
    max_model_len: int | None = None
    """Its own, in tokens, where that is another than the known model's."""


_TUNED = (
    r"instruct|it|pt|chat|hf|base|preview|thinking|text|\d{4}|\d{2}-20\d\d|[45]-?bit|bf16|main|original|turbo|exp|terminus"
    r"|dynamic|\d+k"
)
_TUNING_WORDS = re.compile(rf"(?:-(?:{_TUNED}))+$")
_TUNING = re.compile(rf"(?:-(?:{_TUNED}|v\d+(?:\.\d+)*))+$")
"""What says how a model was tuned or packed, not what shape it has."""
_TUNING_BEFORE_VERSION = re.compile(rf"(?:-(?:{_TUNED}))+(-v\d+(?:\.\d+)*)$")
_EXPERTS = re.compile(r"-17b-\d+e(?=-|$)")
"""Llama 4's sizes, which its short names leave out."""
_MAKERS = ("meta-", "ai21-", "c4ai-", "nvidia-", "mistral-ai-", "rhai-")
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
_BITS_OF = {"awq", "gptq"}
"""Methods whose names are followed by their bits."""
_SAME_SHAPE = {
    "llama-3.3-70b": KnownModel("llama-3.1-70b"),
    "llama-3-70b": KnownModel("llama-3.1-70b", 8192),
    "deepseek-r1-distill-llama-8b": KnownModel("llama-3.1-8b"),
    "deepseek-r1-distill-llama-70b": KnownModel("llama-3.1-70b"),
    "deepseek-r1-distill-qwen-7b": KnownModel("qwen2.5-7b", 131_072),
    "deepseek-r1-distill-qwen-32b": KnownModel("qwen2.5-32b", 131_072),
    "deepseek-v3.1": KnownModel("deepseek-v3"),
    "qwen2.5-coder-7b": KnownModel("qwen2.5-7b"),
    "qwen2.5-coder-32b": KnownModel("qwen2.5-32b"),
    "qwq-32b": KnownModel("qwen2.5-32b", 40_960),
    "qwen3-coder-30b-a3b": KnownModel("qwen3-30b-a3b", 262_144),
    "mistral-small-3.2-24b": KnownModel("mistral-small-3.1-24b"),
    "minimax-m2.1": KnownModel("minimax-m2"),
    "glm-4.7": KnownModel("glm-4.6"),
    "phi-3-mini-4k-instruct": KnownModel("phi-3-mini-4k"),
}
"""Models that differ in weights alone, and some in length."""
_LONGER = ((re.compile(r"qwen3-.*-2507(-fp8)?$"), 262_144), (re.compile(r"kimi-k2-instruct-0905$"), 262_144))
"""Later versions that were made for longer contexts."""


def known_as(name: str, known: Collection[str]) -> KnownModel | None:
    """Which of the ``known`` models a name of the hub stands for.

    ``meta-llama/Llama-3.1-8B-Instruct`` is ``llama-3.1-8b``, and ``Qwen3-4B-Instruct-2507`` is ``qwen3-4b`` with more
    context. None if it is none of them. A name that says how weights are quantised stands for one that says the same,
    and for no other.
    """
    short = name.rsplit("/", 1)[-1].lower().replace("_", "-").replace("quantized.", "")
    for maker in _MAKERS:
        short = short.removeprefix(maker)
    short = _EXPERTS.sub("", short.replace("llama3", "llama-3").replace("llama-3-1", "llama-3.1"))
    longer = next((length for pattern, length in _LONGER if pattern.match(short)), None)
    for candidate in _candidates(short):
        if candidate.name in known:
            return KnownModel(candidate.name, candidate.max_model_len or longer)
    return None


def _candidates(short: str) -> Iterator[KnownModel]:
    """From the name as it is to the shape alone; quantisation stays, at the end."""
    yield KnownModel(short)
    parts = short.split("-")
    ends = [part for part in parts if part in _QUANTISED]
    if _BITS_OF & set(ends):
        ends = [end for end in ends if not end.startswith("int")]
    plain = "-".join(part for part in parts if part not in _QUANTISED)
    with_version = _TUNING_WORDS.sub("", _TUNING_BEFORE_VERSION.sub(r"\1", plain))
    for name in (plain, with_version, _TUNING.sub("", plain)):
        same = _SAME_SHAPE.get(name, KnownModel(name))
        endings = [[name, *ends]] if same.name == name else [[name, *ends], [same.name, *ends]]
        for words in endings:
            yield same._replace(name="-".join(words))
            if words[-1] == "bnb":
                yield same._replace(name="-".join([*words, "4bit"]))
            if words[-1] == "fp4":
                yield same._replace(name="-".join([*words[:-1], "nvfp4"]))
