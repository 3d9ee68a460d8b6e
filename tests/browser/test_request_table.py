"""The table of requests: its figures are those of the report and of `tokenyard why`; it sorts, filters, opens."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tokenyard.explain.why.longest_waits import waiting

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
    held = sum(float(row["held_others_s"]) for row in saved)
    behind = [row["place"] for row in saved if row["place"]]
    assert held > 0
    assert behind


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


def test_a_filter_keeps_the_requests_it_means(page: Page) -> None:
    page.get_by_label("Filter", exact=True).fill("job:agent_03")
    expect(page.locator(".request-table tbody tr").first).to_be_visible()
    expect(page.locator("#filter-state")).to_contain_text("steps")
    assert {row["job"] for row in rows(page)} == {"agent_03"}
