"""Queues, throughput and latencies over time, and how long requests took: drawn, and leading to requests."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import settled

from tokenyard.explain.report.summary import summarize

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]


@pytest.fixture
def page(open_files: Open, small_trace: Path) -> Page:
    page = open_files(small_trace, state="tab=statistics")
    page.get_by_role("heading", name="Over time").wait_for()
    return page


def test_a_drag_over_one_chart_selects_for_all(page: Page) -> None:
    charts = page.get_by_role("region", name="Over time").get_by_role("slider")
    expect(charts).to_have_count(7)
    charts.first.scroll_into_view_if_needed()
    box = charts.first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 40, steps=4)
    page.mouse.up()
    expect(page.locator(".selected")).to_contain_text("selected:")
    expect(page.locator(".scope")).to_contain_text("Selection")


def test_the_histograms_mark_the_percentile_of_the_report(page: Page, small_trace: Path) -> None:
    report = summarize(small_trace)
    assert report.ttft_ms.p99 is not None
    ttft = page.get_by_role("figure", name="Requests by TTFT")
    marked = re.search(r"p99 ([\d.]+) ms", ttft.inner_text())
    assert marked is not None
    assert float(marked[1]) == pytest.approx(report.ttft_ms.p99, abs=0.06)
    bars = ttft.get_by_role("button")
    titles = [bars.nth(at).get_attribute("title") or "" for at in range(bars.count())]
    counted = sum(int(title.split(": ")[1].split(" ")[0].replace(",", "")) for title in titles)
    assert counted == report.requests_finished
    bars.last.click()
    expect(page.get_by_role("columnheader", name="TTFT")).to_have_attribute("aria-sort", "descending")


def test_the_page_has_the_title_of_what_it_shows(page: Page) -> None:
    expect(page).to_have_title(re.compile("Statistics · Tokenyard$"))


@pytest.mark.parametrize("width", [1024, 390])
def test_nothing_is_wider_than_a_small_screen(open_files: Open, small_trace: Path, width: int) -> None:
    page = open_files(small_trace, viewport={"width": width, "height": 800})
    for key in ("1", "2", "3", "4"):
        page.keyboard.press(key)
        settled(page, "document.querySelector('#view').innerHTML.length", 250)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
