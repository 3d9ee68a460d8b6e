"""What axe finds, and what only a keyboard reaches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import settled

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]

REPO = Path(__file__).resolve().parent.parent.parent
AXE = REPO / "viewer" / "node_modules" / "axe-core" / "axe.min.js"
FOUND = """async () => {
    const {violations} = await axe.run({resultTypes: ["violations"]});
    return violations.map(({id, nodes}) =>
        `${id}: ${nodes.slice(0, 4).map(({html}) => html.slice(0, 200)).join(" | ")}`);
}"""


@pytest.fixture(scope="session")
def axe() -> str:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: `npm ci` in viewer/")
    return AXE.read_text()


def faults(page: Page, axe: str) -> list[str]:
    """What axe finds; the script is evaluated by the test, which the page's policy does not forbid."""
    page.evaluate(axe)
    return list(page.evaluate(FOUND))


SCREENS: dict[str, dict[str, Any]] = {
    "laptop": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "device_scale_factor": 3},
    "magnified": {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2},
}
"""The last is what a page of 1280 by 800 pixels has at 200 %."""
VIEWS = (
    *("tab=overview", "tab=timeline", "tab=requests", "tab=requests&show=table", "tab=requests&show=groups"),
    *("tab=statistics", "tab=compare", "step=20"),
)


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(
    new_page: Callable[..., Page],
    open_files: Open,
    viewer_html: Path,
    small_trace: Path,
    axe: str,
    scheme: str,
    screen: str,
) -> None:
    """On every view; and nothing makes the page itself scroll sideways."""
    options = SCREENS[screen] | {"color_scheme": scheme}
    landing = new_page(**options)
    landing.goto(viewer_html.as_uri())
    assert faults(landing, axe) == []
    page = open_files(small_trace, state="step=20", **options)
    page.get_by_role("toolbar", name="Running").locator("button").first.click()
    assert faults(page, axe) == [], "the panel of a request"
    for view in VIEWS:
        page.evaluate("(state) => { location.hash = state; }", view)
        settled(page, "document.querySelector('#view').innerHTML.length", 250)
        assert (view, faults(page, axe)) == (view, [])
        assert (view, page.evaluate("document.documentElement.scrollWidth <= innerWidth")) == (view, True)
    page.evaluate("location.hash = 'tab=compare'")
    page.set_input_files("[data-picker=files]", sorted(small_trace.iterdir()))
    page.get_by_role("button", name="swap").wait_for()
    settled(page, "document.querySelector('#view').innerHTML.length", 400)
    assert faults(page, axe) == [], "two traces beside each other"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("?")
    assert faults(page, axe) == []


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
    places = [order.index(name) for name in ("Steps in view", "Timeline", "Filter", "Go to step", "Steps of the run")]
    assert places == sorted(places)
