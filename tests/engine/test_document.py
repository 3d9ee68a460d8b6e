"""The examples of docs/engine.md run, and print what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
import tests.engine.needs_torch  # noqa: F401
from tests.integration import test_documents as documents


@pytest.mark.smoke
def test_examples(tmp_path: Path) -> None:
    documents.test_examples_run_and_print_what_is_shown(documents.REPO / "docs" / "engine.md", tmp_path)
