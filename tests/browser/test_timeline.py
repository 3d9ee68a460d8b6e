"""The timeline: rows, pills, zoom, selection, and what the side panel says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import SMALL_LAST, until

from tokenyard.explain.classifier import classify
from tokenyard.trace.reader import TraceReader
from tokenyard.trace.steps import facts_of

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]


def go_to(page: Page, step: int) -> None:
    """Look at a step, as the keyboard does it."""
    page.keyboard.press("g")
    page.keyboard.type(str(step))
    page.keyboard.press("Enter")
    page.locator("aside h2", has_text=f"Step {step:,}").wait_for()


@pytest.fixture
def page(open_files: Open, small_trace: Path) -> Page:
    return open_files(small_trace)


def test_a_step_shows_what_the_trace_records(page: Page, small_trace: Path) -> None:
    steps = list(TraceReader(small_trace).steps())
    blocked = next(step for step in steps if step.outcome is not None and step.outcome.kv is not None)
    go_to(page, blocked.number)
    snapshot, decision, outcome = blocked.snapshot, blocked.decision, blocked.outcome
    assert snapshot is not None
    assert decision is not None
    assert outcome is not None
    assert outcome.kv is not None
    row = page.get_by_role("row", selected=True)
    badges = row.locator(".badges").inner_text()
    assert f"run:{snapshot.num_running}" in badges
    assert f"wait:{snapshot.num_waiting}" in badges
    assert f"tok:{decision.total_scheduled_tokens}/512" in badges
    held = f"{outcome.num_requests} held: {outcome.reason} (needs {outcome.kv.needed}, free {outcome.kv.free})"
    assert held in badges
    verdict = classify(facts_of(blocked, 16))
    # Where the record tells, no guess stands beside it.
    expect(row.locator(".badge.guess, .badge.blocked")).to_have_count(0)
    expect(row.get_by_role("toolbar", name="Running").locator("button")).to_have_count(snapshot.num_running)
    expect(row.get_by_role("toolbar", name="Waiting").locator("button")).to_have_count(verdict.unadmitted)
    page.get_by_text("What the counts alone would suggest").click()
    expect(page.get_by_role("complementary")).to_contain_text(f"bucket {verdict.bucket}", use_inner_text=True)
    numbers = page.get_by_role("table", name="Blocks needed and free").inner_text().replace("\t", " ")
    assert f"head needs {outcome.kv.needed}" in numbers
    assert f"free {outcome.kv.free}" in numbers
    assert f"smallest needs {outcome.smallest_need}" in numbers


def test_a_pill_shows_everything_known_of_its_request(page: Page, small_trace: Path) -> None:
    step = next(step for step in TraceReader(small_trace).steps() if step.number == 20)
    record = next(record for record in step.requests if record.queue == "running")
    go_to(page, 20)
    page.get_by_role("toolbar", name="Running").locator("button").first.click()
    section = page.get_by_role("region", name="Request")
    section.get_by_text("num_computed_tokens").wait_for()
    shown = section.inner_text()
    assert record.req_id is not None
    assert record.req_id in shown
    for field in ("num_tokens", "num_computed_tokens", "num_blocks", "status", "arrival_time"):
        assert field in shown
        assert str(getattr(record, field)).split(".")[0] in shown


def test_fields_that_nobody_knows_are_shown(open_files: Open, tmp_path: Path) -> None:
    lines = (
        '{"event":"step_snapshot","step":0,"ts":1.0,"num_running":1,"num_waiting":0,"running_req_ids":["a_t0"],'
        '"waiting_req_ids":[],"tier":"moon"}\n{"event":"step_decision","step":0,"ts":1.1,'
        '"scheduled_running_req_ids":["a_t0"],"num_scheduled_tokens":{"a_t0":1}}\n'
    )
    (tmp_path / "sched_trace.odd.steps.jsonl").write_text(lines)
    record = '{"step":0,"ts":1.0,"queue":"running","req_id":"a_t0","num_tokens":5,"mood":{"today":"sunny"}}\n'
    (tmp_path / "sched_trace.odd.requests.jsonl").write_text(record)
    page = open_files(tmp_path)
    go_to(page, 0)
    page.get_by_role("toolbar", name="Running").locator("button").first.click()
    section = page.get_by_role("region", name="Request")
    section.get_by_text("mood").wait_for()
    expect(section).to_contain_text("sunny")
    page.get_by_text("Records of this step, as in the file").click()
    page.locator(".raw pre", has_text="moon").wait_for()
    texts = page.locator(".raw pre").all_inner_texts()
    assert json.loads(texts[0])["tier"] == "moon", "what is shown can be copied as JSON"


def test_clicks_and_drags_on_the_canvas(page: Page) -> None:
    stage = page.locator(".stage")
    box = stage.bounding_box()
    assert box is not None
    row = box["height"] / 6
    page.mouse.click(box["x"] + 30, box["y"] + 1.5 * row)
    page.locator("aside h2", has_text="Step 1").wait_for()
    page.keyboard.press("Escape")
    page.mouse.move(box["x"] + 30, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 30, box["y"] + 2.5 * row, steps=4)
    page.mouse.up()
    expect(page.locator(".selected")).to_contain_text("selected: 0–2 (3)")  # noqa: RUF001
    expect(page.get_by_role("list", name="Reasons in the selection")).to_be_visible()
    page.get_by_role("button", name="Clear the selection").click()
    expect(page.locator(".selected")).to_have_count(0)


def test_keys_move_through_the_run(page: Page) -> None:
    heading = page.locator("aside h2")
    go_to(page, 10)
    page.keyboard.press(".")
    expect(heading).to_have_text("Step 11")
    page.keyboard.press(",")
    page.keyboard.press(",")
    expect(heading).to_have_text("Step 9")
    reason = page.locator(".reason-name strong").inner_text()
    page.keyboard.press("n")
    expect(page.locator(".reason-name strong")).to_have_text(reason)
    expect(heading).not_to_have_text("Step 9")
    page.keyboard.press("Shift+N")
    expect(heading).to_have_text("Step 9")
    page.keyboard.press("End")
    expect(heading).to_have_text(f"Step {SMALL_LAST}")
    page.keyboard.press("Escape")
    expect(heading).to_have_count(0)


def test_zoom_goes_from_single_steps_to_the_whole_run(page: Page) -> None:
    end = page.get_by_label("End")
    tracks = page.locator(".tracks-in-view")
    assert int(end.input_value()) < 10
    expect(tracks).to_have_count(0)
    for _ in range(4):
        page.keyboard.press("s")
    expect(end).to_have_value(re.compile("^(1[1-9]|[2-9][0-9]|1[01][0-9]|12[0-5])$"))
    page.keyboard.press("f")
    expect(end).to_have_value(str(SMALL_LAST))
    expect(tracks).to_be_visible()
    page.locator(".range-bar summary").click()
    page.get_by_label("Window").fill("50")
    page.get_by_role("button", name="Apply").click()
    until(page, "location.hash.includes('window=50')")
    page.locator(".range-bar summary").click()
    page.get_by_label("Start").fill("20")
    end.fill("40")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_label("Start")).to_have_value("20")
    expect(end).to_have_value("40")
    for _ in range(12):
        page.keyboard.press("w")
    expect(tracks).to_have_count(0)


def test_wheel_scrolls_by_rows_up_to_the_end(page: Page) -> None:
    page.locator(".stage").hover(position={"x": 300, "y": 300})
    for _ in range(3):
        page.mouse.wheel(0, 6_000)
    expect(page.get_by_label("End")).to_have_value(str(SMALL_LAST))
    page.mouse.wheel(0, -100_000)
    expect(page.get_by_label("Start")).to_have_value("0")


def test_load_another_leads_back(page: Page) -> None:
    page.get_by_role("button", name="Load another").click()
    expect(page.get_by_role("button", name="Open the sample")).to_be_visible()


def test_the_panel_tells_the_moment_of_a_step_once(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, state="step=20")
    told = page.get_by_role("region", name="Step", exact=True).locator(".number").first.inner_text()
    assert re.fullmatch(r"\d+\.\d{3} s \+[\d.]+ (ms|s)", told), told
