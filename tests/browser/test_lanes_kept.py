"""Lanes keep their place when a selection leaves some of them out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import ARRIVED_MS

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]


def test_lanes_that_are_left_out_move_none_of_the_others(open_files: Open, two: Path) -> None:
    """A drag over the lanes keeps the one that was at the top there, and so does the way back."""
    page = open_files(two, state="tab=overview")
    page.locator(".overview[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    page.keyboard.press("3")
    box = page.get_by_role("listbox")
    box.wait_for()
    box.evaluate("one => { one.scrollTop = 8000; }")
    canvas = page.locator(".lanes canvas").bounding_box()
    assert canvas is not None
    x, y = canvas["x"], canvas["y"] + 24 + 5
    tip = page.locator(".lane-tip strong")

    def top() -> str:
        page.mouse.move(x + 40, y + 1)
        page.mouse.move(x + 40, y)
        page.wait_for_timeout(100)
        return tip.inner_text()

    before = top()
    page.mouse.move(x + 600, y + 200)
    page.mouse.down()
    page.mouse.move(x + canvas["width"] - 20, y + 200, steps=4)
    page.mouse.up()
    status = page.locator(".requests-bar [role=status]")
    expect(status).to_contain_text("there in the selection")
    assert top() == before
    status.get_by_role("button", name="whole run").click()
    expect(status).not_to_contain_text("there in the selection")
    assert top() == before
