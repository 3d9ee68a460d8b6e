"""Each promise of docs/security.md names the test that holds it (security_promises.toml), and there is such a test."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_promise_has_the_test_that_it_names() -> None:
    promises = tomllib.loads(Path(__file__).with_name("security_promises.toml").read_text())["promise"]
    assert len(promises) >= 25
    for promise in promises:
        assert promise["tests"], promise["what"]
        for file, _, name in (test.partition("::") for test in promise["tests"]):
            assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"
