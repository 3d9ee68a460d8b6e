"""The list of vLLM's own tests: what a run of them says against it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from own_tests import verdicts
from own_tests.verdicts import Outcome, listed, outcomes, table, written

PASSED, FAILED = Outcome("passed", ""), Outcome("failed", "assert 1 == 2")
REPORT = """<testsuites><testsuite>
<testcase classname="tests.v1.core.test_a" name="test_one"/>
<testcase classname="tests.v1.core.test_a" name="test_two[1]">
  <failure message="assert 1 == 2&#10;more">...</failure></testcase>
<testcase classname="tests.v1.core.test_b" name="test_three"><skipped message="refused: --runner"/></testcase>
<testcase classname="tests.v1.core.test_b" name="test_four"><error message="no fixture"/></testcase>
</testsuite></testsuites>"""
LIST = """
applies = ["test_a.py::test_one", "test_a.py::test_gone"]
[not_applicable]
"refused: --runner" = ["test_b.py::test_three"]
[files]
"test_c.py" = "no scheduler in it"
"""


@pytest.fixture(autouse=True)
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(verdicts, "LISTS", tmp_path)
    (tmp_path / "9.9.toml").write_text(LIST)
    return tmp_path


def test_outcomes_are_read_from_the_report(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert outcomes(tmp_path / "report.xml") == {
        "test_a.py::test_one": PASSED,
        "test_a.py::test_two[1]": FAILED,
        "test_b.py::test_three": Outcome("skipped", "refused: --runner"),
        "test_b.py::test_four": Outcome("failed", "no fixture"),
    }


def test_all_is_well_where_every_test_is_listed_and_those_that_apply_pass() -> None:
    found = {"test_a.py::test_one": PASSED, "test_a.py::test_gone": PASSED, "test_b.py::test_three": FAILED}
    lines, is_well = table("9.9", found)
    assert is_well
    assert lines[:5] == [
        "| vLLM 9.9 | passed | failed | not applicable | not listed |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| test_a.py | 2 | 0 | 0 | 0 |",
        "| test_b.py | 0 | 0 | 1 | 0 |",
        "| all | 2 | 0 | 1 | 0 |",
    ]
    assert "   1  refused: --runner" in lines
    assert "test_c.py: none applies: no scheduler in it" in lines


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({"test_a.py::test_one": FAILED}, "failed: test_a.py::test_one: assert 1 == 2"),
        ({"test_a.py::test_one": Outcome("skipped", "refused: --x")}, "failed: test_a.py::test_one: refused: --x"),
        ({"test_a.py::test_new": PASSED}, "not listed: test_a.py::test_new: "),
        ({}, "gone: test_a.py::test_gone"),
    ],
)
def test_what_differs_from_the_list_is_said(found: dict[str, Outcome], problem: str) -> None:
    lines, is_well = table("9.9", found)
    assert not is_well
    assert problem in lines


def test_a_list_made_anew_keeps_the_reasons_that_somebody_found(lists: Path) -> None:
    found = {
        "test_a.py::test_one": FAILED,
        "test_a.py::test_new": PASSED,
        "test_b.py::test_three": FAILED,
        "test_b.py::test_x": Outcome("skipped", 'inside: scheduler."x"'),
    }
    (lists / "9.9.toml").write_text(written("9.9", found))
    made = listed("9.9")
    assert made.applies == {"test_a.py::test_new"}
    assert made.reasons == {
        "test_a.py::test_one": "?? assert 1 == 2",
        "test_b.py::test_three": "refused: --runner",
        "test_b.py::test_x": 'inside: scheduler."x"',
    }
    assert made.files == {"test_c.py": "no scheduler in it"}


@pytest.mark.parametrize(
    "path", sorted(Path(written.__code__.co_filename).parent.glob("*.toml")), ids=lambda path: path.stem
)
def test_every_committed_list_gives_a_reason_for_each(path: Path) -> None:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    listed_twice = [
        test for tests in content["not_applicable"].values() for test in tests if test in content["applies"]
    ]
    assert content["applies"]
    assert not listed_twice
    assert not [reason for reason in content["not_applicable"] if reason.startswith("??")]
