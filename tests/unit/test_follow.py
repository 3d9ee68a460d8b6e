"""What `make follow` lists of two source trees, and that the page of versions is what the checks noted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from follow import _compared, structure_of, with_entry
from tokenyard.core import profiles, releases
from tokenyard.vllm import versions

ROOT = Path(__file__).resolve().parents[2]

OLDER = """
class Scheduler:
    \"\"\"A docstring that nobody compares.\"\"\"
    budget: int = 8
    gone: str

    def schedule(self):
        \"\"\"Another.\"\"\"
        return 1

    def same(self):
        return 2  # a comment
"""
NEWER = """
class Scheduler:
    budget: int = 16
    watermark: float = 0.0

    def schedule(self, throttle=False):
        if throttle:
            return 0
        return 1

    def same(self):
        \"\"\"Now documented.\"\"\"
        return 2
"""


def _tree(folder: Path, text: str) -> Path:
    file = folder / "v1" / "core" / "sched" / "scheduler.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return folder


def test_structure_is_compared_by_name_without_comments_and_docstrings(tmp_path: Path) -> None:
    both = [structure_of(_tree(tmp_path / name, text)) for name, text in (("a", OLDER), ("b", NEWER))]
    said = "\n".join(_compared(*both))
    where = "v1/core/sched/scheduler.py:Scheduler"
    assert f"### 1 fields that came\n\n* `{where}.watermark`: float = 0.0" in said
    assert f"### 1 fields that went\n\n* `{where}.gone`" in said
    assert f"`{where}.budget`: int = 8 -> int = 16" in said
    assert f"### 1 functions that changed, most lines first\n\n* `{where}.schedule`: 4" in said
    assert ".same" not in said


def test_a_version_that_changes_nothing_gets_an_entry_that_makes_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    text = with_entry(Path(releases.__file__).with_suffix(".py").read_text(encoding="utf-8"), "9.99", "9.99.1")
    table = ModuleType("releases")
    monkeypatch.setitem(sys.modules, "releases", table)
    exec(compile(text, "releases.py", "exec"), vars(table))
    assert (*profiles.PROFILES, "9.99") == table.VERSIONS
    assert table.RELEASES[-1].switches == {}
    assert [each.tested for each in table.RELEASES] == [*versions.TESTED, "9.99.1"]
    made: dict[str, object] = {"__name__": "tokenyard.core.profiles"}
    monkeypatch.setattr(releases, "RELEASES", table.RELEASES)
    exec(Path(profiles.__file__).with_suffix(".py").read_text(encoding="utf-8"), made)
    known = made["PROFILES"]
    assert isinstance(known, dict)
    assert list(known) == [*profiles.PROFILES, "9.99"]


@pytest.mark.slow
def test_the_page_of_versions_is_what_was_noted() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "lab" / "generate_versions.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
