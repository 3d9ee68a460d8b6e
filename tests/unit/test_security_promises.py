"""Each promise in docs/security.md names the test that holds it, and there is such a test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_promise_has_the_test_that_it_names() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").partition("## How it is tested")[2]
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    named = [re.findall(r"`(tests/[a-z_/]+\.py)(?:::(\w+))?`", row) for row in rows if not row.startswith("| ---")]
    assert len(named) >= 25
    for row, tests in zip(rows[1:], named, strict=True):
        assert tests, row
        for file, name in tests:
            assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"
