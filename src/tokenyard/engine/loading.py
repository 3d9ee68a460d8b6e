"""From the name of a model to an engine that can be stepped, and its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from tokenyard.engine.core import EngineCore
from tokenyard.engine.served_model import ServedModel
from tokenyard.engine.text.tokenizer import TextTokenizer
from tokenyard.errors import ConfigError

__all__ = ["load_core", "tokenizer_of"]


def load_core(model: str | Path | EngineCore, flags: Mapping[str, Any]) -> EngineCore:
    """The engine of a checkpoint, loaded with ``flags``; an engine is its own. Raises TokenyardError."""
    if not isinstance(model, EngineCore):
        load_engine = import_module("tokenyard.engine.torch.load").load_engine  # an extra, and heavy
        return cast(EngineCore, load_engine(model, **flags))
    if flags:
        raise ConfigError(next(iter(flags)), next(iter(flags.values())), "is for loading: the engine is loaded already")
    return model


def tokenizer_of(
    model: ServedModel, given: str | Path | TextTokenizer | None, chat_template: str | Path | None = None
) -> TextTokenizer | None:
    """The tokenizer that was given, else the model's own; None where it has none."""
    if isinstance(given, TextTokenizer):
        return given
    if given is not None:
        return TextTokenizer.load(given, chat_template)
    own = model.tokenizer
    if own is None or not (own / "tokenizer.json" if own.is_dir() else own).is_file():
        return None
    return TextTokenizer.load(own, chat_template)
