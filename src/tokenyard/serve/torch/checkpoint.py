"""A Hugging Face checkpoint: its configuration as ours, and its weights with our attention in place of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.errors import ConfigError, MissingExtraError, text_of
from tokenyard.models.mixers import Attends, SoftmaxAttention
from tokenyard.models.reading.read import read_model_file
from tokenyard.models.spec import ModelSpec
from tokenyard.quick_dataclass import dataclass

DTYPES = ("float32", "bfloat16", "float16", "float64")
"""What weights and KV cache can be of."""
ATTENTION = "tokenyard_paged"
"""The name under which transformers finds our attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """What was loaded, as a server or a client of the engine has to know it."""

    name: str
    """The folder as it was given."""
    spec: ModelSpec
    dtype: str
    device: str
    bytes_per_block: int
    """Memory of a KV block over all layers, those of a draft model included."""
    max_model_len: int
    """Most tokens of one request."""
    eos_token_ids: tuple[int, ...]
    """Tokens at which the checkpoint says that generation ends; the first is the one that counts as end of sequence."""
    tokenizer: Path
    """The folder that a tokenizer is loaded from."""
    adapters: tuple[str, ...] = ()
    """Names of its LoRA adapters, which requests may ask for."""

    @property
    def vocab_size(self) -> int:
        """Token ids that the model knows."""
        return self.spec.vocab_size


_KEPT_KERNELS = "64"
"""Kernels of matrix products that oneDNN, and PyTorch on it, keep: one for each number of tokens and each shape of
weights. They would keep 1,024 each, about a megabyte apiece, and steps have as many tokens as they come to.
"""


def require_torch() -> Any:
    """The module ``torch``. MissingExtraError unless it and transformers are installed."""
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(name, _KEPT_KERNELS)  # looked at when the first is made
    try:
        import torch  # noqa: PLC0415 - an extra
        import transformers  # noqa: F401, PLC0415
    except ImportError as error:
        raise MissingExtraError(error.name or "torch", "torch") from None
    return torch


def device_named(name: str | None) -> str:
    """The device, or the first GPU if there is one, else the CPU. ConfigError if it is not there."""
    torch = require_torch()
    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError, TypeError) as error:
        what = text_of(error).splitlines()[0]
        raise ConfigError("device", name, f"is not there ({what}): use cpu, cuda or cuda:1") from None
    return name


def read_spec(folder: Path, dtype: str) -> tuple[ModelSpec, str]:
    """The model in ``folder`` and the dtype that it is run in. ConfigError if it cannot be run here."""
    if not folder.is_dir():
        fix = "give a folder with config.json, safetensors and tokenizer; `hf download NAME` brings one"
        raise ConfigError("model", str(folder), fix)
    if dtype not in ("auto", *DTYPES):
        raise ConfigError("dtype", dtype, f"use one of: auto, {', '.join(DTYPES)}")
    # Groups of layers depend on the proportions of their pages, which are those of float32.
    spec = read_model_file(folder, dtype="float32" if dtype == "float64" else dtype)
    for layer in spec.layers:
        _check_layer(spec, layer.mixers)
    if spec.encoders:
        raise ConfigError("model", spec.name, "has encoders for images or sound: the engine runs text models")
    return spec, spec.dtype if dtype == "auto" else dtype


def _check_layer(spec: ModelSpec, mixers: tuple[object, ...]) -> None:
    """ConfigError unless the layer has softmax attention over everything or over a window, and KV of its own."""
    kinds = ", ".join(type(mixer).__name__ for mixer in mixers)
    if len(mixers) != 1 or not isinstance(mixers[0], SoftmaxAttention) or mixers[0].shares_kv:
        raise ConfigError("model", spec.name, f"has a layer of {kinds}: the engine runs one attention with its own KV")
    if mixers[0].attends not in (Attends.FULL, Attends.SLIDING_WINDOW):
        raise ConfigError("model", spec.name, f"has {mixers[0].attends} attention: the engine runs full and windowed")


def load_checkpoint(folder: Path, *, dtype: str, device: str) -> Any:
    """The ``transformers`` model with its weights, in evaluation mode. ConfigError if they cannot be loaded."""
    torch = require_torch()
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    # Products of all experts at once have no form for float64.
    experts = {"experts_implementation": "eager"} if dtype == "float64" else {}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation=ATTENTION, local_files_only=True, **experts
        )
        return model.eval().requires_grad_(requires_grad=False).to(device)
    except Exception as error:
        raise ConfigError("model", str(folder), f"transformers cannot load it: {text_of(error)}") from error


def eos_token_ids(folder: Path) -> tuple[int, ...]:
    """End-of-sequence tokens of ``generation_config.json`` and ``config.json``, the latter's first."""
    found: list[int] = []
    for name in ("config.json", "generation_config.json"):
        file = folder / name
        raw = msgspec.json.decode(file.read_bytes()) if file.is_file() else {}
        given = raw.get("eos_token_id", (raw.get("text_config") or {}).get("eos_token_id"))
        found += given if isinstance(given, list) else [] if given is None else [given]
    return tuple(dict.fromkeys(int(token) for token in found))
