"""threads.tsv, of which the page regressions.md is made, and the tests name each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TABLE = HERE / "threads.tsv"
REPORTED = {
    *(39734, 53130, 45414, 35541, 57104),
    *(37307, 44594, 54644, 42827),
    *(9342, 23347, 49097, 42157, 46263, 53799, 43226),
    *(54360, 53670, 40624, 51769),
}


@pytest.mark.slow
def test_every_thread_has_a_test_and_every_test_stands_in_the_table() -> None:
    rows = re.findall(r"^[^\t]+\t(\d+)\t.*`(test_\w+\.py)::(test_(\d+)_\w+)`$", TABLE.read_text("utf-8"), re.MULTILINE)
    assert {int(thread) for thread, *_ in rows} == REPORTED
    assert all(thread == number for thread, _, _, number in rows)
    defined = {
        (path.name, name)
        for path in HERE.glob("test_*.py")
        for name in re.findall(r"^def (test_\d+_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    listed = {(path, name) for _, path, name, _ in rows}
    assert listed <= defined
    assert {name.split("_")[1] for _, name in defined} == {name.split("_")[1] for _, name in listed}
