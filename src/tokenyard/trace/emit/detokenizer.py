"""Token ids as text, for the ``*_text`` fields of per-request records, by a tokenizer that is loaded when first needed.

A tokenizer that cannot be loaded, or fails, costs one warning; the records then carry token ids only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tokenyard.tokenizer import Decode, load_tokenizer

__all__ = ["Decoder"]

_log = logging.getLogger("tokenyard.trace")


def _load(name: str) -> Decode:
    """The records show a text as the model saw it, special tokens too."""
    return load_tokenizer(name, skip_special_tokens=False)


class Decoder:
    """Decodes with the named tokenizer, or answers None: when none is named, or after its first failure."""

    def __init__(self, name: str | None, load: Callable[[str], Decode] = _load) -> None:
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
