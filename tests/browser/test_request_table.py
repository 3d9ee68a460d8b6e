"""The table of requests: its figures are those of the report and of `tokenyard why`; it sorts, filters, opens."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import settled, until

from tokenyard.explain.why.why import waiting, why

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]


@pytest.fixture
def page(open_files: Open, small_trace: Path) -> Page:
    page = open_files(small_trace, state="tab=requests&show=table")
    page.locator(".request-table tbody tr").first.wait_for()
    return page


def rows(page: Page) -> list[dict[str, str]]:
    """What `save as CSV` saves."""
    with page.expect_download() as download:
        page.get_by_role("button", name="save as CSV").click()
    return list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))


def test_who_waited_longest_and_for_what_is_what_the_terminal_says(page: Page, small_trace: Path) -> None:
    saved = rows(page)
    told = waiting(small_trace)
    assert len(saved) == told.requests
    longest = {row["request"]: row for row in saved}
    for each in told.longest:
        row = longest[each.request_id]
        assert float(row["waited_s"]) == pytest.approx(each.waited_us / 1e6, abs=1e-6)
        assert row["mostly_for"] == each.reason
        assert float(row["preempted"]) == each.num_preemptions
    waits = [float(row["waited_s"]) for row in saved]
    assert waits == sorted(waits, reverse=True)
    behind = [row["place"] for row in saved if row["place"]]
    assert behind


FIRST = "document.querySelector('.request-table tbody tr').ariaRowIndex"


def test_the_keys_scroll_the_table_and_leave_the_timeline_alone(page: Page) -> None:
    scrolled = "document.querySelector('.request-table').scrollTop"
    page.set_viewport_size({"width": 1024, "height": 400})
    settled(page)
    before = page.url
    page.keyboard.press("PageDown")
    until(page, f"{scrolled} > 0")
    page.keyboard.press("Home")
    until(page, f"{scrolled} === 0 && {FIRST} === '2'")
    lines = page.locator(".request-table tbody button")
    lines.first.focus()
    page.keyboard.press("ArrowDown")
    expect(lines.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(lines.first).to_be_focused()
    expect(page.locator("aside h2")).to_have_count(0)
    settled(page)
    assert page.url == before, "no step was opened, nothing moved behind the table"


def test_the_arrows_reach_every_line(page: Page) -> None:
    page.set_viewport_size({"width": 1024, "height": 400})
    focused = "Number(document.activeElement.closest('tr')?.ariaRowIndex)"
    until(page, f"document.querySelectorAll('.request-table tbody tr').length < 20 && {FIRST} === '2'")
    last = page.evaluate("document.querySelector('.request-table table').ariaRowCount")
    page.locator(".request-table tbody button").first.focus()
    for place in range(3, int(last) + 1):
        page.keyboard.press("ArrowDown")
        until(page, f"{focused} === {place}")
    for place in range(int(last) - 1, 1, -1):
        page.keyboard.press("ArrowUp")
        until(page, f"{focused} === {place}")


def test_heads_sort_and_lines_open(page: Page) -> None:
    page.get_by_role("columnheader", name="E2E").get_by_role("button").click()
    values = [float(row["e2e_s"]) for row in rows(page)]
    assert values == sorted(values, reverse=True)
    page.get_by_role("columnheader", name="E2E").get_by_role("button").click()
    assert [float(row["e2e_s"]) for row in rows(page)] == sorted(values)
    first = page.locator(".request-table tbody tr").first
    name = first.locator("button").inner_text()
    first.locator("td").last.click()
    expect(page.locator(".request-id .id")).to_have_text(name)


def test_figures_and_reasons_filter_it(page: Page, small_trace: Path) -> None:
    saved = rows(page)
    bound = sorted(float(row["ttft_s"]) for row in saved if row["ttft_s"] not in {"", "NaN"})[-3]
    field = page.get_by_label("Filter", exact=True)
    field.fill(f"ttft:{bound * 1000}ms..")
    expect(page.locator(".table-sum")).to_contain_text("3 requests")
    field.fill("waited:..0")
    expect(page.locator("#filter-note")).to_have_text("waited:..0 is in seconds")
    still = sum(float(row["waited_s"]) == 0 for row in saved)
    expect(page.locator(".table-sum")).to_contain_text(f"{still} request")
    lost = {each["request"] for each in saved if loses(small_trace, each["request"], saved[0]["mostly_for"])}
    field.fill(f"reason:{saved[0]['mostly_for']} step:1..5")
    expect(page.locator(".table-sum")).to_contain_text(f"{len(lost)} request")
    expect(page.locator("#filter-note")).to_have_text("Not applied here: step: asks about steps")
    assert {row["request"] for row in rows(page)} == lost


def loses(trace: Path, request: str, reason: str) -> bool:
    return any(reason in share.reason for share in why(trace, request).reasons)


def test_what_is_wrong_with_a_filter_covers_no_head(page: Page) -> None:
    page.get_by_label("Filter", exact=True).fill("ttft:soon")
    note = page.locator("#filter-note")
    expect(note).to_contain_text("ttft:30s.., ttft:..80ms")
    settled(page, "document.querySelector('.request-table thead').getBoundingClientRect().top")
    below, head = note.bounding_box(), page.locator(".request-table thead").bounding_box()
    assert below is not None
    assert head is not None
    assert below["y"] + below["height"] <= head["y"]


def test_enter_leads_into_the_panel_and_escape_back(page: Page) -> None:
    button = page.locator(".request-table tbody button").first
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("aside.side")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(button).to_be_focused()


def test_the_column_it_is_sorted_by_is_seen_beside_the_panel(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, state="tab=requests&show=table&sort=-place", viewport={"width": 1024, "height": 700})
    page.locator(".request-table tbody td").first.click()
    expect(page.locator("aside.side")).to_be_visible()
    last = page.locator(".request-table tbody tr").first.locator("td").last
    for cell in (page.locator("th[aria-sort=descending]"), last):
        expect(cell).to_be_in_viewport(ratio=0.98)


def test_a_filter_keeps_the_requests_it_means(page: Page) -> None:
    page.get_by_label("Filter", exact=True).fill("job:agent_03")
    expect(page.locator(".request-table tbody tr").first).to_be_visible()
    expect(page.locator("#filter-state")).to_contain_text("steps")
    assert {row["job"] for row in rows(page)} == {"agent_03"}
