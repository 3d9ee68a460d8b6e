"""How a model's makers want it asked: the defaults in ``generation_config.json``, as vLLM takes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tokenyard.engine.generation import GenerationParams, check_generation_params
from tokenyard.errors import ConfigError, RequestError
from tokenyard.params import check_sampling_params

__all__ = ["GenerationDefaults", "read_generation_config"]

_TAKEN = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p")
"""Fields of the file that are defaults of requests; others are about other programs."""
_AUTO, _NONE = "auto", "vllm"
_FILE = "generation_config.json"


class GenerationDefaults(NamedTuple):
    """For requests that do not say it themselves."""

    params: Mapping[str, Any]
    """Field of ``SamplingParams`` -> value."""
    max_new_tokens: int | None = None
    """Most output tokens of any request; None: as many as the model has room for."""


def read_generation_config(
    model: Path, generation_config: str = _AUTO, override: Mapping[str, Any] | None = None
) -> GenerationDefaults:
    """The defaults of the model in the folder ``model``.

    ``generation_config`` is ``auto`` (the model's own file, if there is one), ``vllm`` (none), or another folder;
    ``override`` are fields that are put over those of the file. Raises ConfigError.
    """
    folder = model if generation_config == _AUTO else Path(generation_config)
    found: dict[str, Any] = {}
    if generation_config != _NONE:
        file = folder / _FILE
        if file.is_file():
            found = _read(file)
        elif generation_config != _AUTO:
            fix = f"use auto, vllm, or a folder with a {_FILE}"
            raise ConfigError("generation_config", generation_config, fix)
    given = {**{name: found[name] for name in (*_TAKEN, "max_new_tokens") if found.get(name) is not None}}
    for name, value in (override or {}).items():
        if name not in (*_TAKEN, "max_new_tokens"):
            fix = f"known are {', '.join((*_TAKEN, 'max_new_tokens'))}"
            raise ConfigError("override_generation_config", {name: value}, fix)
        given[name] = value
    most = given.pop("max_new_tokens", None)
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise ConfigError("max_new_tokens", most, "give a whole number from 1 on")
    _check(given)
    return GenerationDefaults(given, most)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError("generation_config", str(file), f"cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError("generation_config", str(file), "must hold an object")
    return found


def _check(given: Mapping[str, Any]) -> None:
    params = GenerationParams(**given)
    try:
        check_sampling_params("defaults", params)
        check_generation_params("defaults", params)
    except RequestError as error:
        fix = f"{error.fix}; it is a default of the model's: mend it by --override-generation-config"
        raise ConfigError(error.field, error.value, fix) from None
