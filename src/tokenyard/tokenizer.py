"""Token ids to text, by whatever tokenizer library is installed; none is imported before it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Decode = Callable[[Sequence[int]], str]


def load_tokenizer(name: str, *, skip_special_tokens: bool = True) -> Decode:
    """The decode function of a ``tokenizer.json``, of a directory with one, or of a name that transformers knows.

    Raises whatever the tokenizer library raises; ImportError if there is none.
    """
    file = _file_of(name)
    tokenizer: Any
    if file.is_file():
        tokenizer = open_tokenizer(name)
    else:
        from transformers import AutoTokenizer  # noqa: PLC0415 - an extra

        tokenizer = AutoTokenizer.from_pretrained(name)
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))


def open_tokenizer(name: str | Path) -> Any:
    """The ``tokenizers.Tokenizer`` of a ``tokenizer.json``, or of a directory with one.

    Raises whatever the library raises, also where the file is missing; ImportError if it is not installed.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - an extra

    return Tokenizer.from_file(str(_file_of(name)))


def _file_of(name: str | Path) -> Path:
    path = Path(name)
    return path / "tokenizer.json" if path.is_dir() else path
