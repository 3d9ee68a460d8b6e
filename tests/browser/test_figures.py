"""The figures on the page are those that the raw lines add up to (`scripts/check_viewer_figures.py`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from check_viewer_figures import Figure, agrees, differences

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_figures_are_those_of_the_raw_lines(open_files: Callable[..., Page], small_trace: Path) -> None:
    found, wrong = differences(open_files(small_trace, state="tab=overview"), small_trace)
    assert len(found) > 40
    assert wrong == []


def test_a_figure_that_differs_in_its_last_digit_is_found() -> None:
    assert agrees("22.0 s", 22.04)
    assert not agrees("22.0 s", 22.06)
    assert not agrees("4,527", 4533)
    assert not agrees("12.0 %", 0.1206)
    assert Figure("waited", "1 min 05 s", 65.4).raw == 65.4
    assert not agrees("1 min 05 s", 66)
