"""What axe finds, and what only a keyboard reaches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from tests.browser.conftest import SCREENS, faults, settled

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]

VIEWS = (
    *("tab=overview", "tab=timeline", "tab=requests", "tab=requests&show=table", "tab=requests&show=groups"),
    *("tab=statistics", "tab=compare", "step=20"),
)
BOTH: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing(
    new_page: Callable[..., Page], open_files: Open, viewer_html: Path, small_trace: Path, axe: str, screen: str
) -> None:
    """On every view, light and dark; and nothing makes the page itself scroll sideways."""
    options = SCREENS[screen]
    landing = new_page(**options)
    landing.goto(viewer_html.as_uri())
    assert faults(landing, axe, BOTH) == []
    page = open_files(small_trace, state="step=20", **options)
    page.get_by_role("toolbar", name="Running").locator("button").first.click()
    assert faults(page, axe, BOTH) == [], "the panel of a request"
    for view in VIEWS:
        page.evaluate("(state) => { location.hash = state; }", view)
        settled(page, "document.querySelector('#view').innerHTML.length", 250)
        assert (view, faults(page, axe, BOTH)) == (view, [])
        assert (view, page.evaluate("document.documentElement.scrollWidth <= innerWidth")) == (view, True)
    page.evaluate("location.hash = 'tab=compare'")
    page.set_input_files("[data-picker=files]", sorted(small_trace.iterdir()))
    page.get_by_role("button", name="swap").wait_for()
    settled(page, "document.querySelector('#view').innerHTML.length", 400)
    assert faults(page, axe, BOTH) == [], "two traces beside each other"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("?")
    assert faults(page, axe, BOTH) == []


def test_the_tab_key_goes_from_the_top_to_the_rows(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace)
    order = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent.trim()"
        )
        order.append(name)
        if name == "Steps of the run":
            break
    places = [order.index(name) for name in ("Timeline", "Filter", "Go to step", "Steps in view", "Steps of the run")]
    assert places == sorted(places)


@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_in_the_answer(open_files: Open, two: Path, pressed: Path, axe: str, screen: str) -> None:
    """The first screen, columns, and who held slots; of a served page: tests/browser/test_answer.py."""
    options = SCREENS[screen]
    fits = "document.documentElement.scrollWidth <= innerWidth"
    page = open_files(two, state="tab=overview", **options)
    page.locator(".overview[aria-busy=false]").wait_for()
    assert (faults(page, axe, BOTH), page.evaluate(fits)) == ([], True), "the verdict"
    for state in ("show=table", "show=groups"):
        page.evaluate("(state) => { location.hash = `tab=requests&${state}`; }", state)
        page.locator(".chooser summary").click()
        page.locator(".chooser input").first.wait_for()
        assert (state, faults(page, axe, BOTH), page.evaluate(fits)) == (state, [], True), "the chooser of columns"
    page = open_files(pressed, state="req=r3", **options)
    page.get_by_role("region", name="Adapters that held the slots").wait_for()
    assert (faults(page, axe, BOTH), page.evaluate(fits)) == ([], True), "who held the slots"
    page.evaluate("location.hash = 'tab=overview'")
    page.locator(".overview[aria-busy=false]").wait_for()
    assert (faults(page, axe, BOTH), page.evaluate(fits)) == ([], True), "the verdict beside the panel"
