"""Token ids to text, by whatever tokenizer library is installed; none is imported before it is needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Decode", "load_tokenizer"]

Decode = Callable[[Sequence[int]], str]


def load_tokenizer(name: str, *, skip_special_tokens: bool = True) -> Decode:
    """The decode function of a ``tokenizer.json``, of a directory with one, or of a name that transformers knows.

    Raises whatever the tokenizer library raises; ImportError if there is none.
    """
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    tokenizer: Any
    if file.is_file():
        tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(str(file))
    else:
        tokenizer = importlib.import_module("transformers").AutoTokenizer.from_pretrained(name)
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))
