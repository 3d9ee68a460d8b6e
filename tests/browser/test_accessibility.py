"""What axe finds, and what only a keyboard reaches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]

REPO = Path(__file__).resolve().parent.parent.parent
AXE = REPO / "viewer" / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = """async () => {
    const {violations} = await axe.run({resultTypes: ["violations"]});
    return violations
        .filter(({impact}) => impact === "serious" || impact === "critical")
        .map(({id, nodes}) => `${id}: ${nodes.slice(0, 4).map(({html}) => html.slice(0, 200)).join(" | ")}`);
}"""


@pytest.fixture(scope="session")
def axe() -> str:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: `npm ci` in viewer/")
    return AXE.read_text()


def serious(page: Page, axe: str) -> list[str]:
    """Serious faults; the script is evaluated by the test, which the page's policy does not forbid."""
    page.evaluate(axe)
    return list(page.evaluate(SERIOUS))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    new_page: Callable[..., Page], open_files: Open, viewer_html: Path, small_trace: Path, axe: str, scheme: str
) -> None:
    landing = new_page(color_scheme=scheme)
    landing.goto(viewer_html.as_uri())
    assert serious(landing, axe) == []
    page = open_files(small_trace, state="step=20", color_scheme=scheme)
    page.get_by_role("toolbar", name="Running").locator("button").first.click()
    for tab in ("overview", "timeline", "requests", "statistics", "compare"):
        page.locator(f"#tab-{tab}").click()
        page.wait_for_timeout(200)
        assert (tab, serious(page, axe)) == (tab, [])
    page.locator("#tab-timeline").click()
    page.keyboard.press("?")
    assert serious(page, axe) == []


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
