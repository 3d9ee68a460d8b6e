"""Bounds on latencies: the goodput over time, in words and in the table of requests, as the report counts it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tokenyard.explain.report.summary import summarize
from tokenyard.explain.slo import Goodput, read_slos

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]

TTFT_MS = 100


@pytest.fixture
def told(small_trace: Path) -> Goodput:
    """What the report says; some meet the bound and some do not."""
    report = summarize(small_trace, slos=read_slos([[f"ttft:{TTFT_MS}"]]))
    assert report.goodput is not None
    assert report.goodput.requests is not None
    assert report.requests_finished is not None
    assert 0 < report.goodput.requests < report.requests_finished
    return report.goodput


def listed(page: Page) -> int:
    """How many requests the table says it shows."""
    found = re.match(r"(\d+) requests?,", page.locator(".table-sum").inner_text())
    assert found is not None
    return int(found[1])


def test_a_bound_shows_the_goodput_of_the_report(open_files: Open, small_trace: Path, told: Goodput) -> None:
    page = open_files(small_trace, state="tab=statistics")
    section = page.get_by_role("region", name="Over time")
    chart = section.get_by_role("slider", name="Requests per second over time")
    expect(chart).to_have_count(1)
    expect(section.get_by_text("goodput", exact=True)).to_have_count(0)
    page.get_by_role("textbox", name="TTFT ≤ ms").fill(str(TTFT_MS))
    assert told.share is not None
    assert told.requests_per_s is not None
    expect(page.locator(".goodput [role=status]")).to_contain_text(f"{told.requests} requests of the")
    expect(page.locator(".goodput [role=status]")).to_contain_text(f"{100 * told.share:.1f} %")
    expect(page.locator(".goodput [role=status]")).to_contain_text(f"{told.requests_per_s:.2f} requests/s")
    expect(section.get_by_text("goodput", exact=True)).to_be_visible()
    chart.focus()
    chart.press("End")
    expect(chart).to_have_attribute("aria-valuetext", re.compile(r"requests/s [\d.]+, goodput [\d.]+$"))
    expect(page.locator(".figures")).to_contain_text(f"goodput within TTFT ≤ {TTFT_MS} ms")


def test_the_table_shows_who_met_and_who_missed(open_files: Open, small_trace: Path, told: Goodput) -> None:
    page = open_files(small_trace, state=f"tab=statistics&slo-ttft={TTFT_MS}")
    page.get_by_role("button", name="table of those that missed").click()
    page.locator(".request-table tbody tr").first.wait_for()
    expect(page.get_by_role("region", name="Requests; scrolls")).to_be_focused()
    missed = listed(page)
    finished = summarize(small_trace).requests_finished
    assert told.requests is not None
    assert missed + told.requests == finished
    shown = page.get_by_label(f"TTFT ≤ {TTFT_MS} ms")
    shown.select_option("met")
    expect(page.locator(".table-sum")).to_contain_text(f"{told.requests} requests,")
    shown.select_option("")
    expect(page.locator(".table-sum")).to_contain_text(f"{finished} requests,")


def test_a_bound_may_have_a_unit(open_files: Open, small_trace: Path, told: Goodput) -> None:
    page = open_files(small_trace, state=f"tab=statistics&slo-ttft={TTFT_MS}ms")
    expect(page.locator(".goodput [role=status]")).to_contain_text(f"{told.requests} requests of the")
    page.get_by_role("slider", name="Goodput, share over time").wait_for()
    field = page.get_by_role("textbox", name="TTFT ≤ ms")
    field.fill("2500")
    expect(page.locator(".goodput form")).to_contain_text("ms = 2.5 s")
    field.fill("2.5s")
    expect(page.locator(".goodput form")).not_to_contain_text("2.5 s")
    expect(page.locator(".figures")).to_contain_text("goodput within TTFT ≤ 2.5 s")
    heads = page.get_by_role("table", name="Latencies of the requests").locator("thead th")
    assert heads.all_inner_texts() == ["latency", "mean", "p50", "p90", "p95", "p99", "max"]


def test_a_reload_keeps_bounds_and_a_wrong_one_is_named(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, state="tab=statistics")
    page.get_by_role("textbox", name="E2E ≤ ms").fill("2500")
    page.get_by_role("textbox", name="TPOT ≤ ms").fill("soon")
    section = page.get_by_role("region", name="Over time")
    expect(section.get_by_role("alert")).to_have_text(re.compile("^TPOT: “soon” bounds nothing. Give a time"))
    expect(page).to_have_url(re.compile("slo-tpot=soon&slo-e2e=2500|slo-e2e=2500&slo-tpot=soon"))
    page.get_by_role("textbox", name="TPOT ≤ ms").fill("")
    expect(section.get_by_role("alert")).to_have_count(0)
    expect(page).not_to_have_url(re.compile("slo-tpot"))
    address = page.url.partition("#")[2]
    again = open_files(small_trace, state=address)
    expect(again.get_by_role("textbox", name="E2E ≤ ms")).to_have_value("2500")
