"""What flags change of a model that is read: fields of its config.json, and whether its encoders are loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tokenyard.errors import ConfigError, NotModelledError
from tokenyard.models.spec import ModelSpec

__all__ = ["Changed", "loads_encoders", "overridden"]

_POSITIONS = (
    "max_position_embeddings",
    "original_max_position_embeddings",
    "rope_local_base_freq",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
)
"""Fields that say how long a context may be; no shape depends on them."""
_TEXT = "text_config"
_TEXT_APART = ("qwen2_5_vl",)
"""Model types whose file may name fields of the decoder outside, and whose length vLLM reads inside alone."""
_LEARNED = ("whisper",)
"""Model types that have learned positions, a fixed number of them."""


class Changed(NamedTuple):
    """A config.json after overrides."""

    raw: dict[str, Any]
    ignored: tuple[str, ...] = ()
    """Overrides that were passed over."""


def overridden(raw: Mapping[str, Any], overrides: str | None, *, ignore_unmodelled: bool) -> Changed:
    """``raw`` with the fields of ``--hf-overrides``.

    Raises NotModelledError for fields that are not those of positions, unless they are to be passed over. Positions
    of a model type whose decoder vLLM reads apart are left as they are: so does vLLM.
    """
    if overrides is None:
        return Changed(dict(raw))
    given = _object("hf_overrides", overrides)
    inner = given.get(_TEXT)
    is_nested = isinstance(raw.get(_TEXT), dict)
    positions = () if is_nested or raw.get("model_type") in _LEARNED else _POSITIONS
    outer = {key: value for key, value in given.items() if key in positions}
    nested = {key: value for key, value in inner.items() if key in _POSITIONS} if isinstance(inner, dict) else {}
    nested = nested if is_nested else {}
    left = {key: value for key, value in given.items() if key not in outer and key != _TEXT}
    if isinstance(inner, dict):
        left |= {f"{_TEXT}.{key}": value for key, value in inner.items() if key not in nested}
    said = [(f"--hf-overrides {json.dumps({key: value})}", "the model is changed") for key, value in left.items()]
    if said and not ignore_unmodelled:
        raise NotModelledError([(flag, f"{why}: give a changed config.json by --model") for flag, why in said])
    if raw.get("model_type") in _TEXT_APART:
        outer = {}
    # The newer name wins over what the file says by the older one.
    kept = {key: value for key, value in raw.items() if key != "rope_scaling" or "rope_parameters" not in outer}
    changed = {**kept, **outer}
    if nested:
        changed[_TEXT] = {**raw[_TEXT], **nested}
    return Changed(changed, tuple(f"{flag}: {why}" for flag, why in said))


def loads_encoders(model: ModelSpec, limits: str | None) -> bool:
    """Whether ``--limit-mm-per-prompt`` leaves the model any use of its encoders. ConfigError for what is no limit."""
    if limits is None or not model.encoders:
        return bool(model.encoders)
    given = _object("limit_mm_per_prompt", limits)
    return any(_count(kind, given.get(kind)) != 0 for kind in _kinds(model))


def _kinds(model: ModelSpec) -> set[str]:
    """What its encoders read."""
    vision = {"image", "video"} if "VL" in model.architecture else {"image"}
    kinds: set[str] = set()
    for encoder in model.encoders:
        kinds |= vision if encoder.kind == "vision" else {encoder.kind}
    return kinds


def _count(kind: str, value: Any) -> int | None:
    """How many are allowed: a number, or the ``count`` among sizes; None where nobody says."""
    count = value.get("count") if isinstance(value, dict) else value
    if count is not None and (type(count) is not int or count < 0):
        raise ConfigError(f"limit_mm_per_prompt.{kind}", value, "give a whole number from 0")
    return count


def _object(field: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(field, text, 'give a JSON object: {"KEY": VALUE}')
    return value
