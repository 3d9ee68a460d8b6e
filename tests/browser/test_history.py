"""One range, one history: Back leads to where one was, a reload shows the same page, a step link keeps the request."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import settled

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]


@pytest.fixture
def page(open_files: Open, small_trace: Path) -> Page:
    return open_files(small_trace)


def go_to(page: Page, step: int) -> None:
    page.keyboard.press("g")
    page.keyboard.type(str(step))
    page.keyboard.press("Enter")
    expect(page.locator("aside h2", has_text=re.compile("^Step"))).to_have_text(f"Step {step}")
    expect(page).to_have_url(re.compile(rf"step={step}(&|$)"))


def test_back_and_forward_lead_through_what_was_looked_at(page: Page) -> None:
    heading = page.locator("aside h2")
    go_to(page, 20)
    go_to(page, 60)
    page.keyboard.press("4")
    expect(page).to_have_url(re.compile("tab=statistics"))
    page.go_back()
    expect(page.get_by_role("tab", selected=True)).to_have_text("Timeline")
    expect(heading).to_have_text("Step 60")
    page.go_back()
    expect(heading).to_have_text("Step 20")
    page.go_back()
    expect(heading).to_have_count(0)
    page.go_forward()
    expect(heading).to_have_text("Step 20")


def test_back_leads_to_the_first_page_and_forward_to_the_trace(page: Page) -> None:
    go_to(page, 20)
    page.get_by_role("button", name="Load another").click()
    expect(page.get_by_role("button", name="Open the sample")).to_be_visible()
    settled(page)
    page.go_back()
    expect(page.locator("aside h2")).to_have_text("Step 20")
    page.go_forward()
    expect(page.get_by_role("button", name="Open the sample")).to_be_visible()


def test_load_another_can_be_undone(page: Page) -> None:
    go_to(page, 33)
    page.get_by_role("button", name="Load another").click()
    page.get_by_role("button", name=re.compile("^Back to ")).click()
    expect(page.locator("aside h2")).to_have_text("Step 33")


def test_a_step_link_keeps_the_request(page: Page) -> None:
    page.keyboard.press("3")
    page.get_by_role("button", name="Table").click()
    page.locator(".request-table tbody button").first.click()
    request = page.get_by_role("region", name="Request", exact=True)
    name = request.locator(".request-id .id").inner_text()
    request.get_by_title(re.compile("^(Look at this step|Select these steps)")).last.click()
    expect(request.locator(".request-id .id")).to_have_text(name)


def test_rows_keeps_the_chosen_step_in_view(page: Page) -> None:
    go_to(page, 80)
    page.keyboard.press("f")
    page.get_by_role("button", name="Rows", exact=True).click()
    expect(page.locator(".focused-row .strong")).to_have_text("80")
    assert int(page.get_by_label("Start").input_value()) <= 80 <= int(page.get_by_label("End").input_value())


def test_an_address_is_the_same_after_it_was_opened_again_and_again(
    page: Page, open_files: Open, small_trace: Path
) -> None:
    page.keyboard.press("w")
    page.keyboard.press("d")
    page.keyboard.press("d")
    expect(page).to_have_url(re.compile("view="))
    settled(page)
    state = page.url.split("#")[1]
    for _ in range(2):
        again = open_files(small_trace, state=state)
        settled(again)
        assert again.url.split("#")[1] == state
