"""``--quantization``: what vLLM does with weights as it loads them, and which names mean the same weights."""

from __future__ import annotations

from typing import Any

__all__ = ["online_quantization", "same_method"]

_ONLINE: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True},
}
"""Methods that weights as they are can be turned into, as ``quantization_config`` would say it."""
_KERNELS = ("_marlin", "-marlin", "_machete")
_WNA16 = ("awq", "gptq")


def online_quantization(method: str) -> dict[str, Any] | None:
    """The ``quantization_config`` of weights that vLLM quantises itself; None if it has to find them quantised."""
    return _ONLINE.get(method)


def same_method(asked: str, found: str | None) -> bool:
    """Whether weights of the method ``found`` can be loaded as ``asked``: kernels have names of their own."""
    if found is None:
        return False
    plain, known = _plain(asked), _plain(found)
    if plain == "moe-wna16":
        return known in _WNA16
    return plain == known or known.startswith(f"{plain}-") or plain.startswith(f"{known}-")


def _plain(method: str) -> str:
    short = method.lower()
    for kernel in _KERNELS:
        short = short.removesuffix(kernel)
    return short.replace("_", "-")
