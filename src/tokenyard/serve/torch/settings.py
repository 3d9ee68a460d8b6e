"""How an engine is set up: vLLM's flag names, those that mean something here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from tokenyard.connectors.config import KVTransferConfig
from tokenyard.core.config import (
    MAX_DRAFTS,
    SpeculativeConfig,
    SpeculativeMethod,
    require_bool,
    require_fraction,
    require_int,
    require_limit,
)
from tokenyard.errors import ConfigError
from tokenyard.quick_dataclass import dataclass
from tokenyard.serve.torch.adapters import LoRAConfig

_MOST_BYTES = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSettings:
    """``speculative_config``: where drafts come from."""

    config: SpeculativeConfig
    model: Path | None = None
    """The folder of a draft model."""
    prompt_lookup_min: int = 5
    """Fewest last tokens that an n-gram drafter looks for."""
    prompt_lookup_max: int = 5
    """Most of them."""


def speculation_of(given: Mapping[str, Any] | None) -> DraftSettings | None:
    """Read what ``--speculative-config`` takes. Raises ConfigError for what is not known or cannot work."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ConfigError("speculative_config", given, 'give an object, such as {"method": "ngram", ...}')
    known = ("method", "model", "num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max")
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"speculative_config.{name}", value, f"use some of: {', '.join(known)}")
    model = given.get("model")
    methods = {str(SpeculativeMethod.NGRAM): False, str(SpeculativeMethod.DRAFT_MODEL): True}
    method = given.get("method", SpeculativeMethod.DRAFT_MODEL if model is not None else SpeculativeMethod.NGRAM)
    if method not in methods:
        raise ConfigError("speculative_config.method", method, f"the engine drafts by: {', '.join(methods)}")
    if methods[method] != (model is not None):
        fix = "give the folder of a draft model" if methods[method] else "drafts come from the text: leave it out"
        raise ConfigError("speculative_config.model", model, fix)
    longest = given.get("prompt_lookup_max", given.get("prompt_lookup_min", 5))
    shortest = given.get("prompt_lookup_min", longest)
    require_int("speculative_config.prompt_lookup_max", longest, 1, 1024)
    require_int("speculative_config.prompt_lookup_min", shortest, 1, longest)
    number = given.get("num_speculative_tokens")
    require_int("speculative_config.num_speculative_tokens", number, 1, MAX_DRAFTS)
    return DraftSettings(
        config=SpeculativeConfig(num_speculative_tokens=int(number or 0), method=SpeculativeMethod(method)),
        model=None if model is None else Path(model),
        prompt_lookup_min=shortest,
        prompt_lookup_max=longest,
    )


def transfer_config_of(given: Mapping[str, Any] | KVTransferConfig | None) -> KVTransferConfig | None:
    """Read what ``--kv-transfer-config`` takes. Raises ConfigError for what is not known or cannot work."""
    if given is None or isinstance(given, KVTransferConfig):
        return given
    try:
        return KVTransferConfig.from_json(json.dumps(given))
    except TypeError as error:
        raise ConfigError("kv_transfer_config", given, f"give an object of settings: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Raises ConfigError for a value that cannot work."""

    dtype: str = "auto"
    """Format of weights and KV cache: the checkpoint's (bfloat16 where that is float32), or float32, float64 ..."""
    device: str | None = None
    """The device as torch names it; None: the first GPU, else the CPU."""
    max_model_len: int | None = None
    """Most tokens of one request; None: the model's."""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    block_size: int | None = None
    """Tokens per KV block; None: 16."""
    num_gpu_blocks_override: int | None = None
    """Blocks of the KV cache; None: as many as memory holds."""
    gpu_memory_utilization: float | None = None
    """Share of the device's memory that the engine may use; None: 0.9 of a GPU's, 0.4 of the machine's."""
    kv_cache_memory_bytes: int | None = None
    """Memory of the KV cache; None: what is left of that share."""
    enable_prefix_caching: bool = True
    seed: int = 0
    """Seed of the draws of requests without one of their own."""
    speculation: DraftSettings | None = None
    kv_transfer: KVTransferConfig | None = None
    adapters: LoRAConfig = field(default_factory=LoRAConfig)

    def __post_init__(self) -> None:
        if self.max_model_len is not None:
            require_limit("max_model_len", self.max_model_len)
        require_limit("max_num_seqs", self.max_num_seqs)
        require_limit("max_num_batched_tokens", self.max_num_batched_tokens)
        if self.block_size is not None:
            require_int("block_size", self.block_size, 1)
        if self.num_gpu_blocks_override is not None:
            require_int("num_gpu_blocks_override", self.num_gpu_blocks_override, 2)
        if self.gpu_memory_utilization is not None:
            require_fraction("gpu_memory_utilization", self.gpu_memory_utilization)
        if self.kv_cache_memory_bytes is not None:
            require_int("kv_cache_memory_bytes", self.kv_cache_memory_bytes, 1, _MOST_BYTES)
        require_bool("enable_prefix_caching", self.enable_prefix_caching)
        require_int("seed", self.seed, 0)
