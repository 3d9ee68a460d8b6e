"""The examples of docs/engine.md and docs/serve.md run, and print what they show."""

from __future__ import annotations

from pathlib import Path

import pytest
import tests.engine.needs_torch  # noqa: F401
from tests.integration import test_documents as documents


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["engine.md", "serve.md"])
def test_examples(name: str, tmp_path: Path) -> None:
    documents.run_examples(documents.REPO / "docs" / name, tmp_path)
