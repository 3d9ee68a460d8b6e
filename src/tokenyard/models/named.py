"""Models known by name."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tokenyard.errors import ConfigError, near_names
from tokenyard.files import packaged
from tokenyard.models.reading.params import PARAMS
from tokenyard.models.reading.read import model_from_config, name_in, read_config, read_model_file
from tokenyard.models.spec import ModelSpec
from tokenyard.plugins import called, foreign, is_foreign

# ---------------------------------------------------------------------------------------------------------------------
# Models known by name: their ``config.json``, reduced to the facts that matter, in ``configs/``.

_CONFIGS = Path(__file__).parent / "configs"


class _Named(Mapping[str, ModelSpec]):
    """Name -> model; a model is read on first use."""

    def __getitem__(self, name: str) -> ModelSpec:
        return _named(name, "auto")

    def __iter__(self) -> Iterator[str]:
        return iter(_names())

    def __len__(self) -> int:
        return len(_names())


MODELS: Mapping[str, ModelSpec] = _Named()
"""Name, as ``--model`` takes it -> file."""


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in _CONFIGS.glob("*.json")))


@cache
def _named(name: str, dtype: str) -> ModelSpec:
    if name not in _names():
        raise KeyError(name)
    file, raw = read_config(_CONFIGS / f"{name}.json")
    model = model_from_config(raw, name=name, where=file.name, dtype=dtype)
    unconfirmed = sources().get(name, {}).get("unconfirmed")
    if unconfirmed is None:
        return model
    note = f"known by name, not confirmed by a public file: {unconfirmed}; give its config.json to be sure"
    return replace(model, notes=(*model.notes, note))


@cache
def sources() -> Mapping[str, Mapping[str, str]]:
    """Name -> ``source``, the public file that confirmed it, and ``unconfirmed``, what none did: ``sources.toml``."""
    return tomllib.loads(packaged("tokenyard.models", "sources.toml").decode())


def named_model(name: str, *, dtype: str = "auto") -> ModelSpec:
    """The model called ``name`` (case does not matter), or ConfigError with the names that are most like it."""
    if not isinstance(name, str) or name.lower() not in _names():
        close = near_names(str(name).rsplit("/", 1)[-1].lower(), _names(), n=5, cutoff=0.5)
        named = f", or a name that is known, for example {', '.join(close)}" if close else ", or a name that is known"
        where = ""
        if isinstance(name, str) and _HUB_NAME.fullmatch(name):
            where = f" and not in the hub's cache ({next(_hub_caches())}/models--{name.replace('/', '--')})"
        if isinstance(name, str) and "gguf" in name.lower():
            raise ConfigError("model", name, "is a GGUF file, which is not read: name the model that it was made of")
        fix = f"is not known by name{where}: give the path of its config.json{named}"
        fix += " (models are the last list of `tokenyard workloads`)"
        raise ConfigError("model", name, fix)
    return _named(name.lower(), dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Models that lie in the cache of the Hugging Face hub: what ``vllm serve`` has loaded before.

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_REVISION = re.compile(r"[0-9a-f]{7,64}")


def _hub_caches() -> Iterator[Path]:
    """Where the hub's files are kept, by its own variables."""
    if os.environ.get("HF_HUB_CACHE"):
        yield Path(os.environ["HF_HUB_CACHE"])
    if os.environ.get("HF_HOME"):
        yield Path(os.environ["HF_HOME"]) / "hub"
    cache_home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    yield Path(cache_home).expanduser() / "huggingface" / "hub"


def cached_folder(name: str) -> Path | None:
    """The folder with the newest ``config.json`` of ``owner/model`` in the hub's cache; None where there is none."""
    if not isinstance(name, str) or not _HUB_NAME.fullmatch(name):
        return None
    for cache_folder in _hub_caches():
        folder = cache_folder / f"models--{name.replace('/', '--')}"
        reference = folder / "refs" / "main"
        try:
            revision = reference.read_text().strip() if reference.is_file() else ""
            kept = [folder / "snapshots" / revision] if _REVISION.fullmatch(revision) else []
            kept += sorted((folder / "snapshots").glob("*"), key=lambda each: each.stat().st_mtime, reverse=True)
        except OSError:
            continue
        for each in kept:
            if any((each / name).is_file() for name in ("config.json", PARAMS)):
                return each
    return None


def config_of(name_or_path: str) -> tuple[str, str, dict[str, Any]]:
    """The name, the file and the content of a model's ``config.json``; ConfigError as :func:`model_spec`."""
    path = Path(name_or_path)
    if path.suffix == ".json" or path.is_dir():
        file, raw = read_config(path)
        return name_in(file, raw), str(file), raw
    cached = cached_folder(name_or_path)
    if cached is not None:
        file, raw = read_config(cached)
        return name_or_path, str(file), raw
    try:
        known = named_model(name_or_path).name
    except ConfigError:
        own = foreign("model", name_or_path)
        if own is None:
            raise
        made = called(own, "model", name_or_path) if callable(own) else own
        if not isinstance(made, dict):
            fix = "it has to be a dictionary as a config.json or a description holds, or a function that makes one"
            raise ConfigError("model", name_or_path, fix) from None
        return name_or_path, name_or_path, made
    file, raw = read_config(_CONFIGS / f"{known}.json")
    return known, file.name, raw


def model_spec(name_or_path: str, *, dtype: str = "auto") -> ModelSpec:
    """A named model, one in the hub's cache, or that of a ``config.json``, of its folder, or of a description; or
    ``FILE.py:NAME``, or a name of the entry points ``tokenyard.models``: what such a file holds, as a dictionary.

    Arguments and errors as :func:`tokenyard.models.reading.read.model_from_config`.
    """
    path = Path(name_or_path)
    if path.suffix == ".json" or path.is_dir():
        return read_model_file(path, dtype=dtype)
    if cached_folder(name_or_path) is None:
        try:
            return named_model(name_or_path, dtype=dtype)
        except ConfigError:
            if not is_foreign("model", name_or_path):
                raise
    name, where, raw = config_of(name_or_path)
    return model_from_config(raw, name=name, where=where, dtype=dtype)
