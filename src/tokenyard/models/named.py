"""Models known by name, and decoders whose layers are all alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tokenyard.core.config import require_int
from tokenyard.errors import ConfigError, near_names
from tokenyard.models.layers import DenseMLP, LayerSpec, MoE, SoftmaxAttention, plain_format
from tokenyard.models.reading.read import model_from_config, name_in, read_config, read_model_file
from tokenyard.models.spec import ModelSpec

__all__ = ["MODELS", "config_of", "model_spec", "named_model", "uniform_decoder"]


# ---------------------------------------------------------------------------------------------------------------------
# Decoders whose layers are all alike, from a handful of sizes.


def uniform_decoder(
    *,
    name: str,
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    vocab_size: int,
    max_model_len: int,
    intermediate_size: int = 0,
    dtype: str = "bfloat16",
    tie_word_embeddings: bool = False,
    num_experts: int = 0,
    num_experts_per_tok: int = 0,
    moe_intermediate_size: int = 0,
    shared_intermediate_size: int = 0,
) -> ModelSpec:
    """A dense or mixture-of-experts decoder with grouped-query attention, not quantised.

    ``intermediate_size`` is the width of a dense layer's gated MLP, ``moe_intermediate_size`` that of one expert.
    Raises ConfigError if a size cannot work.
    """
    require_int("num_layers", num_layers, 1, 1 << 16)
    weights = plain_format(dtype)
    attention = SoftmaxAttention(
        hidden_size=hidden_size, num_heads=num_heads, num_kv_heads=num_kv_heads, head_size=head_size, weights=weights
    )
    mlp: DenseMLP | MoE
    if num_experts:
        mlp = MoE(
            hidden_size=hidden_size,
            num_experts=num_experts,
            num_experts_per_tok=num_experts_per_tok,
            width=moe_intermediate_size,
            shared_width=shared_intermediate_size,
            extra_parameters=hidden_size * num_experts,
            weights=weights,
            shared_weights=weights,
        )
    else:
        mlp = DenseMLP(hidden_size=hidden_size, width=intermediate_size, weights=weights)
    layer = LayerSpec(mixers=(attention,), mlp=mlp, norm_parameters=2 * hidden_size)
    return ModelSpec(
        name=name,
        layers=(layer,) * num_layers,
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        max_model_len=max_model_len,
        dtype=dtype,
        tie_word_embeddings=tie_word_embeddings,
        other_parameters=hidden_size,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Models known by name: their ``config.json``, reduced to the facts that matter, in ``configs/``.

_CONFIGS = Path(__file__).parent / "configs"


class _Named(Mapping[str, ModelSpec]):
    """Name -> model; a model is read when it is first asked for."""

    def __getitem__(self, name: str) -> ModelSpec:
        return _named(name, "auto")

    def __iter__(self) -> Iterator[str]:
        return iter(_names())

    def __len__(self) -> int:
        return len(_names())


MODELS: Mapping[str, ModelSpec] = _Named()
"""By name, as ``--model`` takes it."""


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in _CONFIGS.glob("*.json")))


@cache
def _named(name: str, dtype: str) -> ModelSpec:
    if name not in _names():
        raise KeyError(name)
    file, raw = read_config(_CONFIGS / f"{name}.json")
    return model_from_config(raw, name=name, where=file.name, dtype=dtype)


def named_model(name: str, *, dtype: str = "auto") -> ModelSpec:
    """The model called ``name`` (case does not matter), or ConfigError with the names that are most like it."""
    if not isinstance(name, str) or name.lower() not in _names():
        close = near_names(str(name).rsplit("/", 1)[-1].lower(), _names(), n=5, cutoff=0.5)
        named = f", or a name that is known, for example {', '.join(close)}" if close else ", or a name that is known"
        fix = f"is not known by name: give the path of its config.json{named} (`tokenyard workloads` lists all)"
        raise ConfigError("model", name, fix)
    return _named(name.lower(), dtype)


def config_of(name_or_path: str) -> tuple[str, str, dict[str, Any]]:
    """The name, the file and the content of a model's ``config.json``; ConfigError as :func:`model_spec`."""
    path = Path(name_or_path)
    if path.suffix == ".json" or path.is_dir():
        file, raw = read_config(path)
        return name_in(file, raw), str(file), raw
    known = named_model(name_or_path).name
    file, raw = read_config(_CONFIGS / f"{known}.json")
    return known, file.name, raw


def model_spec(name_or_path: str, *, dtype: str = "auto", ignore_unmodelled: bool = False) -> ModelSpec:
    """A named model, or the one read from the path of a ``config.json`` or of the folder that holds it.

    Arguments and errors as :func:`tokenyard.models.reading.read.model_from_config`.
    """
    path = Path(name_or_path)
    if path.suffix == ".json" or path.is_dir():
        return read_model_file(path, dtype=dtype, ignore_unmodelled=ignore_unmodelled)
    return named_model(name_or_path, dtype=dtype)
