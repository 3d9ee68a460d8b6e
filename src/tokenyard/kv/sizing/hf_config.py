"""A model's shape from the ``config.json`` of a Hugging Face checkpoint."""

from __future__ import annotations

from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import msgspec

from tokenyard.config import MAX_COUNT
from tokenyard.errors import ConfigError
from tokenyard.models.decoder import uniform_decoder
from tokenyard.models.named import named_model
from tokenyard.models.spec import ModelSpec
from tokenyard.models.weights import DTYPE_BYTES

__all__ = ["model_shape", "shape_from_hf_config"]

_EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")


def model_shape(name_or_path: str) -> ModelSpec:
    """A named model, or the shape read from the path of a ``config.json`` or of the folder that holds it."""
    path = Path(name_or_path)
    if path.suffix == ".json" or path.is_dir():
        return shape_from_hf_config(path)
    return named_model(name_or_path)


def shape_from_hf_config(path: Path | str) -> ModelSpec:
    """Read a Hugging Face ``config.json`` (or the folder with one in it).

    Raises ConfigError naming the file and the field that is missing, mistyped or not supported.
    """
    file = Path(path) / "config.json" if Path(path).is_dir() else Path(path)
    try:
        raw = msgspec.json.decode(file.read_bytes().removeprefix(BOM_UTF8))
    except OSError as error:
        raise ConfigError("model", str(file), f"cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError("model", str(file), f"is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError("model", str(file), "must hold a JSON object")
    text = raw.get("text_config")
    return _Fields(file, {**raw, **text} if isinstance(text, dict) else raw).shape()


class _Fields:
    """The fields of one file; every reading error names the file and the field."""

    def __init__(self, file: Path, raw: dict[str, Any]) -> None:
        self._file = file
        self._raw = raw

    def _error(self, field: str, fix: str) -> ConfigError:
        return ConfigError(f"{self._file}: {field}", self._raw.get(field), fix)

    def count(self, field: str, default: int | None = None) -> int:
        value = self._raw.get(field)
        if value is None:
            if default is None:
                raise self._error(field, "is missing: give a whole number")
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_COUNT:
            raise self._error(field, f"give a whole number from 1 to {MAX_COUNT}")
        return value

    def flag(self, field: str, *, default: bool) -> bool:
        value = self._raw.get(field, default)
        if not isinstance(value, bool):
            raise self._error(field, "give true or false")
        return value

    def dtype(self) -> str:
        field = "dtype" if "dtype" in self._raw else "torch_dtype"
        value = self._raw.get(field)
        if value is None:
            value = "bfloat16"
        if not isinstance(value, str) or value not in DTYPE_BYTES:
            raise self._error(field, f"use one of: {', '.join(DTYPE_BYTES)}")
        return value

    def shape(self) -> ModelSpec:
        if self._raw.get("kv_lora_rank") is not None:
            raise self._error("kv_lora_rank", "multi-head latent attention is not supported: its cache has no heads")
        heads = self.count("num_attention_heads")
        hidden = self.count("hidden_size")
        experts_field = next((name for name in _EXPERT_COUNTS if self._raw.get(name) is not None), None)
        experts = self.count(experts_field) if experts_field else 0
        mlp = self.count("intermediate_size", 1 if experts else None)
        try:
            return uniform_decoder(
                name=str(self._raw.get("_name_or_path") or self._file.parent.name or self._file.stem),
                num_layers=self.count("num_hidden_layers"),
                hidden_size=hidden,
                num_heads=heads,
                num_kv_heads=self.count("num_key_value_heads", heads),
                head_size=self.count("head_dim", max(1, hidden // heads)),
                intermediate_size=mlp,
                vocab_size=self.count("vocab_size"),
                max_model_len=self.count("max_position_embeddings"),
                dtype=self.dtype(),
                tie_word_embeddings=self.flag("tie_word_embeddings", default=False),
                num_experts=experts,
                num_experts_per_tok=self.count("num_experts_per_tok") if experts else 0,
                moe_intermediate_size=self.count("moe_intermediate_size", mlp) if experts else 0,
                shared_intermediate_size=self.count("shared_expert_intermediate_size", 0) if experts else 0,
            )
        except ConfigError as error:
            if str(self._file) in error.field:
                raise
            raise ConfigError(f"{self._file}: {error.field}", error.value, error.fix) from None
