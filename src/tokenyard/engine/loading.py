"""From the name of a model to an engine that can be stepped, and its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from tokenyard.engine.core import EngineCore
from tokenyard.engine.grammars import MAX_GRAMMAR_BYTES, GrammarCompiler
from tokenyard.engine.served_model import GrammarSource, ServedModel
from tokenyard.engine.text.tokenizer import TextTokenizer
from tokenyard.errors import ConfigError

__all__ = ["grammars_of", "load_core", "tokenizer_of"]


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


def grammars_of(
    model: ServedModel, tokenizer: str | Path | TextTokenizer | None, *, max_grammar_bytes: int = MAX_GRAMMAR_BYTES
) -> GrammarSource:
    """Where the model's grammars come from; ``tokenizer`` as for :func:`tokenizer_of`.

    It raises ConfigError where there is no tokenizer or no end-of-sequence token, MissingExtraError without llguidance.
    """

    @cache
    def make() -> GrammarCompiler:
        path = tokenizer if isinstance(tokenizer, str | Path) else model.tokenizer
        if path is None:
            raise ConfigError("structured_outputs", None, "the engine has no tokenizer, so there are no grammars")
        return GrammarCompiler(path, model.vocab_size, model.eos_token_ids, max_grammar_bytes=max_grammar_bytes)

    return make
