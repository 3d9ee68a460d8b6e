"""Token ids as text, for the ``*_text`` fields of per-request records, by a tokenizer that is loaded when first needed.

A tokenizer that cannot be loaded, or fails, costs one warning; the records then carry token ids only.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Decode", "Decoder", "load_decoder"]

Decode = Callable[[Sequence[int]], str]

_log = logging.getLogger("tokenyard.trace")


def load_decoder(name: str) -> Decode:
    """The decode function of a tokenizer: a ``tokenizer.json``, a directory with one, or a name transformers knows.

    Raises whatever the tokenizer library raises; ImportError if there is none.
    """
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    tokenizer: Any
    if file.is_file():
        tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(str(file))
    else:
        tokenizer = importlib.import_module("transformers").AutoTokenizer.from_pretrained(name)
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))


class Decoder:
    """Decodes with the named tokenizer, or answers None: when none is named, or after its first failure."""

    def __init__(self, name: str | None, load: Callable[[str], Decode] = load_decoder) -> None:
        self._name = name
        self._load = load
        self._decode: Decode | None = None

    def text(self, token_ids: Sequence[int]) -> str | None:
        """``token_ids`` as text, or None."""
        if self._name is None:
            return None
        try:
            if self._decode is None:
                self._decode = self._load(self._name)
            return self._decode(token_ids)
        except Exception as error:  # noqa: BLE001 - a foreign library's: whatever it is, the scheduler goes on
            _log.warning("trace: tokenizer %s cannot be used, token ids only: %s", self._name, error)
            self._name = None
            return None
