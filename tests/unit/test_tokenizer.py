"""Which library loads a tokenizer, and with what it decodes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tokenyard.tokenizer import load_tokenizer


class Tokenizer:
    """Tells what it was asked."""

    def __init__(self, source: str) -> None:
        self.source = source

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        return f"{self.source} {ids} {skip_special_tokens}"


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: dict[str, Any] = {
        "tokenizers": SimpleNamespace(Tokenizer=SimpleNamespace(from_file=lambda path: Tokenizer(f"file {path}"))),
        "transformers": SimpleNamespace(
            AutoTokenizer=SimpleNamespace(from_pretrained=lambda name: Tokenizer(f"name {name}"))
        ),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_a_file_or_the_directory_that_holds_it(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    for name in (file, tmp_path):
        assert load_tokenizer(str(name))((1, 2)) == f"file {file} [1, 2] True"


def test_what_is_no_file_is_a_name(tmp_path: Path) -> None:
    assert load_tokenizer("org/model", skip_special_tokens=False)([3]) == "name org/model [3] False"
    assert load_tokenizer(str(tmp_path))([3]) == f"name {tmp_path} [3] True"
