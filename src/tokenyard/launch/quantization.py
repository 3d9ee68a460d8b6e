"""``--quantization``: what vLLM does with weights as it loads them, and which names mean the same weights."""

from __future__ import annotations

from typing import Any

from tokenyard.errors import ConfigError, NoStartError
from tokenyard.models.spec import ModelSpec

__all__ = ["ONLINE", "check_activations", "check_method", "online_quantization"]

_ONLINE: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True},
}
"""Methods that weights as they are can be turned into, as ``quantization_config`` would say it."""
_ONLINE_TOO = (
    "deepseek_v4_fp8",
    "experts_int8",
    "fp8_per_block",
    "fp8_per_channel",
    "fp8_per_tensor",
    "gguf",
    "gpt_oss_mxfp4",
    "humming",
    "int8_per_channel_weight_only",
    "mxfp4",
    "mxfp8",
    "nvfp4_per_token",
)
"""Others that vLLM starts with where weights are not quantised."""
ONLINE = frozenset((*_ONLINE, *_ONLINE_TOO))
"""Both."""
_ON_ANY = ("gguf", "humming")
"""vLLM starts with them however weights are quantised."""
_BY_THE_WEIGHTS = ("mxfp4", "modelopt")
"""Weights of these methods are loaded by them, whatever is asked for."""
_KERNELS = ("_marlin", "-marlin", "_machete")
_WNA16 = ("awq", "gptq")
_ACTIVATIONS = {
    "awq": ("bfloat16", "float16"),
    "fp8": ("bfloat16", "float16"),
    "gptq": ("bfloat16", "float16"),
    "mxfp4": ("bfloat16",),
}
"""Dtypes that their kernels take."""


def online_quantization(method: str) -> dict[str, Any] | None:
    """The ``quantization_config`` of weights that vLLM quantises itself; None if it has to find them quantised."""
    return _ONLINE.get(method)


def check_method(asked: str, model: ModelSpec) -> None:
    """Whether vLLM loads weights of ``model`` as ``asked``.

    NoStartError for a method that they are not of, ConfigError for one that vLLM has and a replay does not.
    """
    found = model.quantization
    if (asked, found, model.model_type) == ("humming", "mxfp4", "gpt_oss"):
        raise NoStartError(f"quantization = 'humming' is not for {model.name}: give --moe-backend humming")
    if found in _BY_THE_WEIGHTS or (found is not None and _is_same(asked, found)):
        return
    known = asked in (_ONLINE_TOO if found is None else _ON_ANY) or (asked, found) == ("deepseek_v4_fp8", "fp8")
    if known:
        raise ConfigError("quantization", asked, f"is not modelled with the weights of {model.name}: leave it out")
    has = f"are {found}" if found is not None else "are not quantised"
    raise NoStartError(f"quantization = {asked!r}, and the weights of {model.name} {has}")


def check_activations(model: ModelSpec) -> None:
    """Raise NoStartError for a dtype that the kernels for its quantised weights do not take."""
    taken = _ACTIVATIONS.get(model.quantization or "")
    if taken is not None and model.dtype not in taken:
        has = f"the {model.quantization} weights of {model.name}"
        raise NoStartError(f"dtype = {model.dtype!r} does not go with {has}: use {' or '.join(taken)}")


def _is_same(asked: str, found: str) -> bool:
    """Whether both name the same weights: kernels have names of their own."""
    plain, known = _plain(asked), _plain(found)
    if plain == "moe-wna16":
        return known in _WNA16
    return plain in (known, f"auto-{known}") or known.startswith(f"{plain}-")


def _plain(method: str) -> str:
    short = method.lower()
    for kernel in _KERNELS:
        short = short.removesuffix(kernel)
    return short.replace("_", "-")
