"""The Statistics tab: the same numbers as the report, each leading to its steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import until

from tokenyard.explain.report.report import Report
from tokenyard.explain.report.summary import summarize
from tokenyard.units import duration

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

Opener = Callable[..., "Page"]


@pytest.fixture(scope="module")
def report(small_trace: Path) -> Report:
    return summarize(small_trace)


def open_statistics(open_files: Opener, trace: Path, **options: object) -> Page:
    page = open_files(trace, state="tab=statistics", **options)
    page.locator(".statistics[aria-busy=false]").wait_for()
    return page


def rows_of(page: Page, table: str) -> dict[str, list[str]]:
    """First word of each row of a table -> its cells."""
    rows = page.get_by_role("table", name=table).locator("tbody tr").all()
    return {
        row.locator("button").inner_text().split("\n")[-1]: row.locator("td.number").all_inner_texts() for row in rows
    }


def filter_of(page: Page) -> str:
    return page.get_by_role("searchbox", name="Filter").input_value()


def test_buckets_and_recorded_reasons_are_those_of_the_report(
    open_files: Opener, small_trace: Path, report: Report
) -> None:
    page = open_statistics(open_files, small_trace)
    page.get_by_text("What the counts alone would suggest").click()
    buckets = rows_of(page, "Steps per bucket")
    assert {name: int(cells[0].replace(",", "")) for name, cells in buckets.items()} == report.buckets
    recorded = rows_of(page, "Recorded reasons")
    assert list(recorded) == list(report.recorded_reasons)
    for name, cells in recorded.items():
        truth = report.recorded_reasons[name]
        assert cells[:2] == [f"{truth.steps:,}", f"{truth.requests:,}"], name
    guesses = report.disagreements
    said = page.locator(".agreement")
    expect(said).to_contain_text(f"Of {guesses.steps_compared:,} steps")
    expect(said).to_contain_text(f"{guesses.steps_disagreeing:,} contradict")


def test_a_bucket_leads_to_its_steps(open_files: Opener, small_trace: Path, report: Report) -> None:
    page = open_statistics(open_files, small_trace)
    page.get_by_text("What the counts alone would suggest").click()
    bucket = max(report.buckets, key=report.buckets.__getitem__)
    page.get_by_role("table", name="Steps per bucket").get_by_role("button", name=bucket).click()
    assert filter_of(page) == f"bucket:{bucket}"
    expect(page.get_by_role("tab", name="Timeline")).to_have_attribute("aria-selected", "true")
    page.get_by_text(f"{report.buckets[bucket]:,} steps", exact=True).wait_for()


def test_a_bar_of_the_token_budget_leads_to_its_steps(open_files: Opener, small_trace: Path) -> None:
    page = open_statistics(open_files, small_trace)
    chart = page.get_by_role("figure", name=re.compile("token budget"))
    bar = chart.get_by_role("button", name=re.compile("^95\N{EN DASH}100 %: [1-9]"))
    steps = re.match("95\N{EN DASH}100 %: ([0-9,]+) steps", bar.get_attribute("aria-label") or "")
    assert steps is not None
    bar.focus()
    bar.press("Enter")
    assert filter_of(page) == "budget:95..100"
    page.get_by_text(f"{steps[1]} steps", exact=True).wait_for()


def test_two_scales_and_the_mean(open_files: Opener, small_trace: Path, report: Report) -> None:
    page = open_statistics(open_files, small_trace)
    chart = page.get_by_role("figure", name=re.compile("token budget"))
    expect(chart.get_by_role("listitem")).to_have_count(20)
    percents, tokens = (scale.inner_text().split() for scale in chart.locator(".histogram-scale").all())
    assert percents[-2:] == ["100", "%"]
    assert tokens[0] == "0t"
    assert tokens[-1] == "512t"
    assert report.token_budget_use.mean is not None
    expect(chart).to_contain_text(f"mean {100 * report.token_budget_use.mean:.1f} %")


def test_time_before_a_step_could_see_requests_is_told(open_files: Opener, small_trace: Path, report: Report) -> None:
    page = open_statistics(open_files, small_trace)
    section = page.get_by_role("region", name="What limited admission")
    assert report.unseen_s is not None
    assert report.unseen_s > 0.0005
    sentence = f"requests waited {duration(report.unseen_s)} in all for the step that ran when they arrived."
    assert sentence in " ".join(section.inner_text().split())


def test_prefix_hits_are_split(open_files: Opener, small_trace: Path, report: Report) -> None:
    page = open_statistics(open_files, small_trace)
    section = page.get_by_role("region", name="Prefix-cache hits")
    expect(section).to_contain_text(f"{report.prefix_lookups} requests")
    assert report.prefix_hit_rate.local is not None
    assert f"local {100 * report.prefix_hit_rate.local:.1f} %" in section.inner_text().replace("\n", " ")
    bars = section.get_by_role("listitem").filter(has=page.get_by_role("button")).all()
    assert len(bars) == 10
    counted = [
        re.search(r": ([\d,]+) requests", bar.get_by_role("button").get_attribute("aria-label") or "") for bar in bars
    ]
    assert sum(int(found[1]) for found in counted if found) == report.prefix_lookups


def test_figures_follow_the_selection(open_files: Opener, small_trace: Path) -> None:
    page = open_statistics(open_files, small_trace)
    chart = page.get_by_role("slider", name=re.compile("VRAM"))
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 60, steps=4)
    page.mouse.up()
    scope = page.locator(".scope")
    scope.get_by_text("Selection").wait_for()
    found = re.search("steps ([0-9]+)\N{EN DASH}([0-9]+)", scope.inner_text())
    assert found is not None
    first, last = int(found[1]), int(found[2])
    page.get_by_text("What the counts alone would suggest").click()
    steps = page.get_by_role("table", name="Steps per bucket").locator("tbody td.number:nth-of-type(2)")
    until(
        page,
        "[...document.querySelectorAll('table[aria-label=\"Steps per bucket\"] tbody tr')]"
        ".reduce((sum, row) => sum + Number(row.querySelector('td.number').textContent), 0)"
        f" === {last - first + 1}",
    )
    expect(steps).to_have_count(10)
    scope.get_by_role("button", name="whole run").click()
    scope.get_by_text("Whole run").wait_for()


def test_a_chart_is_read_with_the_keyboard(open_files: Opener, small_trace: Path) -> None:
    page = open_statistics(open_files, small_trace)
    chart = page.get_by_role("slider", name=re.compile("VRAM"))
    chart.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        chart.press(key)
    expect(chart).to_have_attribute(
        "aria-valuetext", re.compile(r"^step 3, [\d.]+ s: [\d,]+ active · .*[\d,]+ free of 186")
    )
    chart.press("Enter")
    page.get_by_role("heading", name="Step 3", exact=True).wait_for()


def test_figures_can_be_copied(open_files: Opener, small_trace: Path, report: Report) -> None:
    page = open_statistics(open_files, small_trace)
    page.evaluate("navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); }")
    page.get_by_role("button", name="Copy all figures").click()
    copied = page.evaluate("window.copied")
    assert f"preemptions: {report.preemptions}" in copied
    assert f"steps: {report.steps}" in copied
    assert "TTFT: mean" in copied
    page.get_by_role("button", name="Copy peak KV use").click()
    assert page.evaluate("window.copied") == f"peak KV use: {100 * (report.peak_kv_use or 0):.1f} %"


def test_a_trace_without_reasons_shows_the_guesses(
    open_files: Opener, small_trace: Path, report: Report, tmp_path: Path
) -> None:
    plain = tmp_path / "sched_trace.plain.steps.jsonl"
    kept = ('"event":"step_snapshot"', '"event":"step_decision"', '"event":"prefix_cache_lookup"')
    lines = next(small_trace.glob("*.steps.jsonl")).read_text().splitlines(keepends=True)
    plain.write_text("".join(line for line in lines if any(event in line for event in kept)))
    page = open_statistics(open_files, plain)
    guessed = rows_of(page, "Blocked steps per reason")
    expected = summarize(plain).reasons
    assert {name: int(cells[0].replace(",", "")) for name, cells in guessed.items()} == expected
    expect(page.get_by_role("table", name="Recorded reasons")).to_have_count(0)
    assert report.recorded_reasons


def test_the_keys_scroll_wherever_the_focus_is(open_files: Opener, small_trace: Path) -> None:
    page = open_statistics(open_files, small_trace)
    scrolled = "document.querySelector('.statistics').scrollTop"
    page.get_by_role("tab", name="Statistics").focus()
    for key, holds in (("End", f"{scrolled} > 1000"), ("Home", f"{scrolled} === 0")):
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press(key)
        until(page, holds)
    expect(page.locator("aside h2")).to_have_count(0)


def test_nothing_hidden_makes_the_page_longer_than_a_phone(open_files: Opener, small_trace: Path) -> None:
    page = open_statistics(open_files, small_trace, viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollHeight") <= 844
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
