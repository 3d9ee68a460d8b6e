"""Models known by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tokenyard.errors import ConfigError, near_names
from tokenyard.models.reading.read import model_from_config, name_in, read_config, read_model_file
from tokenyard.models.spec import ModelSpec

__all__ = ["MODELS", "config_of", "model_spec", "named_model"]


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
