"""The Overview: the page opens on what was wrong (tests/browser/test_answer.py); its figures are the records' own."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("playwright.sync_api")

from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

Opener = Callable[..., "Page"]


def records(folder: Path) -> list[dict[str, Any]]:
    file = next(folder.glob("*.steps.jsonl"))
    return [json.loads(line) for line in file.read_text().splitlines()]


def overview(open_files: Opener, *paths: Path, **options: object) -> Page:
    page = open_files(*paths, state="tab=overview", **options)
    page.get_by_role("status", name="Verdict").wait_for()
    page.locator(".overview[aria-busy=false]").wait_for()
    return page


def tile(page: Page, name: str) -> str:
    return page.get_by_role("list", name="Figures").get_by_role("button", name=re.compile(f"^{name}")).inner_text()


def test_the_page_opens_on_the_verdict(open_files: Opener, small_trace: Path) -> None:
    page = overview(open_files, small_trace)
    verdict = page.get_by_role("status", name="Verdict")
    expect(verdict).to_contain_text("What is wrong, and what would help: tokenyard report TRACE")
    expect(page.get_by_role("img", name=re.compile("The run over time. Time lost: "))).to_be_visible()
    expect(page.locator(".minimap")).to_have_count(0)
    page.get_by_role("tab", name="Timeline").click()
    page.locator(".minimap").wait_for()


def test_it_stands_on_one_laptop_screen(open_files: Opener, small_trace: Path) -> None:
    page = overview(open_files, small_trace)
    page.get_by_role("heading", name="Worst stretches").wait_for()
    beyond = page.evaluate("(one => one.scrollHeight - one.clientHeight)(document.querySelector('.overview'))")
    assert beyond <= 0


def test_errors_are_those_of_the_records(open_files: Opener, impatient: Path) -> None:
    ended = [record for record in records(impatient) if record.get("event") == "request_finished"]
    aborted = [record for record in ended if record.get("finish_reason") == "abort"]
    assert 0 < len(aborted) < len(ended)
    page = overview(open_files, impatient)
    assert f"\n{len(aborted)}\n" in tile(page, "Errors")
    assert f"of {len(ended)}" in tile(page, "Errors")
    page.get_by_role("button", name=re.compile("were aborted, refused or failed")).click()
    page.get_by_role("button", name="Table", exact=True).click()
    expect(page.locator(".table-sum")).to_contain_text(f"{len(aborted)} request")
    statuses = page.locator("td.status").all_inner_texts()
    assert statuses
    assert all("aborted" in status for status in statuses)


def test_a_request_that_was_never_scheduled_is_said_to_be(open_files: Opener, impatient: Path) -> None:
    never = next(
        record["req_id"]
        for record in records(impatient)
        if record.get("event") == "request_finished" and record.get("first_scheduled_time") is None
    )
    page = open_files(impatient, state=f"tab=requests&req={never}")
    why = page.get_by_role("region", name="Why did it wait?")
    expect(why).to_contain_text("was never scheduled: it was aborted")
    expect(why).not_to_contain_text("before it was first scheduled")
    expect(page.get_by_role("complementary")).to_contain_text("aborted")


def test_who_took_the_tokens_is_that_of_the_records(open_files: Opener, small_trace: Path) -> None:
    steps = {record["step"]: record for record in records(small_trace) if record.get("event") == "step_decision"}
    step, most = max(steps.items(), key=lambda each: max(each[1]["num_scheduled_tokens"].values(), default=0))
    name, tokens = max(most["num_scheduled_tokens"].items(), key=lambda each: each[1])
    page = open_files(small_trace, state=f"tab=timeline&step={step}")
    first = page.get_by_role("region", name="Who got the tokens").locator("li").first
    expect(first).to_contain_text(f"{tokens:,}")
    expect(first).to_contain_text(name)


def test_a_drag_selects_and_the_figures_follow(open_files: Opener, small_trace: Path) -> None:
    page = overview(open_files, small_trace)
    box = page.locator(".tracks canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 300, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 60, steps=4)
    page.mouse.up()
    expect(page.get_by_role("status", name="Verdict")).to_contain_text("Of the selection")
    page.get_by_role("button", name="clear the selection").click()
    expect(page.get_by_role("status", name="Verdict")).not_to_contain_text("Of the selection")


def test_an_error_in_one_section_leaves_the_others(open_files: Opener, small_trace: Path) -> None:
    page = open_files(small_trace, state="tab=timeline")
    page.evaluate("() => { window.ResizeObserver = function () { throw new Error('as a browser would') } }")
    page.get_by_role("tab", name="Statistics").click()
    failed = page.get_by_role("alert", name="the KV blocks: not shown")
    expect(failed).to_contain_text("as a browser would")
    page.get_by_role("heading", name="What limited admission").wait_for()
    page.get_by_role("tab", name="Requests").click()
    page.get_by_role("tab", name="Statistics").wait_for()


def test_times_of_a_monitors_link_select_their_steps(open_files: Opener, small_trace: Path) -> None:
    starts = [record["ts"] for record in records(small_trace) if record.get("event") == "step_snapshot"]
    page = open_files(small_trace, state=f"tab=timeline&from={starts[20] + 1e-6}&to={starts[40] + 1e-6}")
    expect(page.locator(".selected")).to_contain_text("selected: 20\N{EN DASH}40 (21)")


def test_a_time_of_day_selects_its_steps_or_is_said_to_be_missing(
    open_files: Opener, small_trace: Path, tmp_path: Path
) -> None:
    """Grafana's links give milliseconds since 1970; an engine's trace has such times, a replay's begin with 0."""
    noon = 1_780_000_000.0
    folder = tmp_path / "noon"
    folder.mkdir()
    lines = records(small_trace)
    for record in lines:
        for name in record:
            if (name == "ts" or name.endswith("_time")) and isinstance(record[name], float):
                record[name] += noon
    file = next(small_trace.glob("*.steps.jsonl"))
    (folder / file.name).write_text("".join(json.dumps(record) + "\n" for record in lines))
    starts = [record["ts"] for record in lines if record.get("event") == "step_snapshot"]
    begin, end = math.ceil(1e3 * starts[20]), math.ceil(1e3 * starts[40])
    first, last = (sum(1e3 * ts <= at for ts in starts) - 1 for at in (begin, end))
    link = f"tab=timeline&from={begin}&to={end}"
    page = open_files(folder, state=link)
    expect(page.locator(".selected")).to_contain_text(f"selected: {first}\N{EN DASH}{last} ({last - first + 1})")
    page = open_files(small_trace, state=link)
    expect(page.locator(".announcement")).to_have_text(
        "The time of the link is not in this trace: it tells no time of day"
    )
    expect(page.locator(".selected")).to_have_count(0)
