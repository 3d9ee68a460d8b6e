"""The Requests tab: lanes, the life of a request, and why it waited."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import replay, until

from tokenyard.explain.why.why import waiting, why
from tokenyard.units import milliseconds
from viewer_sample import crowded

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

Opener = Callable[..., "Page"]


def open_lanes(open_files: Opener, *trace: Path, state: str = "", **options: object) -> Page:
    page = open_files(*trace, state=f"tab=requests&{state}", **options)
    page.get_by_role("listbox").wait_for()
    return page


def current(page: Page) -> str:
    return page.locator("#lane-current").inner_text()


def test_one_lane_per_job_read_with_the_keyboard(open_files: Opener, small_trace: Path) -> None:
    page = open_lanes(open_files, small_trace)
    page.get_by_text("9 lanes, one per job").wait_for()
    lanes = page.get_by_role("listbox")
    lanes.press("Home")
    assert re.match(r"agent_00: \d turns?, waited .*; lane 1 of 9", current(page))
    lanes.press("ArrowDown")
    assert "lane 2 of 9" in current(page)
    lanes.press("End")
    assert "lane 9 of 9" in current(page)
    lanes.press("Home")
    lanes.press("ArrowRight")
    assert re.match(r"agent_00_t0: .*prefill, steps? .*decode, steps? ", current(page))


def test_the_one_who_waited_longest_comes_first(open_files: Opener, small_trace: Path) -> None:
    page = open_lanes(open_files, small_trace)
    page.get_by_label("sort by").select_option("wait")
    by_job: dict[str, int] = {}
    for file in small_trace.glob("*.steps.jsonl"):
        for record in map(json.loads, file.read_text().splitlines()):
            if record["event"] == "request_arrived":
                waited = why(small_trace, record["req_id"]).waited_us
                by_job[record["job_id"]] = by_job.get(record["job_id"], 0) + waited
    page.get_by_role("listbox").press("Home")
    assert current(page).startswith(max(by_job, key=by_job.__getitem__))
    until(page, "location.hash.includes('lanes=wait')")


def test_why_it_waited_is_what_the_terminal_says(open_files: Opener, small_trace: Path) -> None:
    slowest = waiting(small_trace).longest[0].request_id
    answer = why(small_trace, slowest)
    page = open_lanes(open_files, small_trace, state=f"req={slowest}")
    panel = page.get_by_role("region", name="Why did it wait?")
    panel.wait_for()
    expect(panel).to_contain_text(f"It waited {milliseconds(answer.waited_us / 1e3)}")
    rows = panel.locator("ul.split > li:not(.split-sum)").all()
    assert len(rows) == len(answer.reasons)
    for row, share in zip(rows, answer.reasons, strict=True):
        assert row.locator(".split-name").inner_text().split("\n")[-1] == share.reason
        if share.us >= 1000:
            assert milliseconds(share.us / 1e3) in row.inner_text()
    assert milliseconds(answer.waited_us / 1e3) in panel.locator(".split-sum").inner_text()


def test_a_click_on_a_turn_opens_its_life(open_files: Opener, small_trace: Path) -> None:
    page = open_lanes(open_files, small_trace)
    lanes = page.get_by_role("listbox")
    lanes.press("Home")
    lanes.press("ArrowRight")
    expect(page.locator(".turn-current")).to_be_visible()
    lanes.press("Enter")
    panel = page.get_by_role("complementary")
    expect(panel).to_be_focused()
    panel.get_by_text("agent_00_t0").first.wait_for()
    life = panel.locator("ol.life")
    assert [row.split("\n")[0] for row in life.locator("li").all_inner_texts()][-1] == "decode"
    step = life.get_by_role("button").last
    first = step.inner_text().split("\N{EN DASH}")[0]
    step.click()
    page.get_by_role("heading", name=f"Step {first}", exact=True).wait_for()


def test_a_filter_keeps_its_lanes(open_files: Opener, small_trace: Path) -> None:
    page = open_lanes(open_files, small_trace)
    page.get_by_role("searchbox", name="Filter").fill("job:agent_03")
    page.get_by_text("1 of 9 lanes").wait_for()
    page.get_by_role("searchbox", name="Filter").fill("job:nobody")
    page.get_by_text("No job passes the filter.").wait_for()


def test_the_window_is_in_the_address(open_files: Opener, small_trace: Path) -> None:
    page = open_lanes(open_files, small_trace)
    page.get_by_role("listbox").focus()
    page.keyboard.press("w")
    until(page, "location.hash.includes('zoom=')")
    page.keyboard.press("f")
    until(page, "!location.hash.includes('zoom=')")


def test_a_hundred_thousand_jobs(open_files: Opener, tmp_path: Path) -> None:
    """Enough requests to crash the page if each cost it something; scrolling through millions is tested by vitest."""
    steps = tmp_path / "sched_trace.many.steps.jsonl"
    jobs, per_step = 100_000, 500
    with steps.open("w") as file:
        for step in range(jobs // per_step):
            ids = [f"job{number}_t0" for number in range(step * per_step, (step + 1) * per_step)]
            queues = {"running_req_ids": ids, "waiting_req_ids": [], "running_job_ids": [one[:-3] for one in ids]}
            counts = {"num_running": per_step, "num_waiting": 0, "free_blocks": 5, "total_blocks": 10}
            file.write(json.dumps({"event": "step_snapshot", "step": step, "ts": step / 10} | queues | counts) + "\n")
    page = open_lanes(open_files, steps)
    page.get_by_text("100,000 lanes").wait_for()
    page.get_by_role("listbox").press("End")
    assert "lane 100,000 of 100,000" in current(page)


def test_hostile_ids_are_shown_as_text(open_files: Opener, tmp_path: Path) -> None:
    hostile = '<img src=x onerror="window.hacked=1">\u202e</script>'
    records = [
        {"event": "step_snapshot", "step": 0, "ts": 0.0, "num_running": 0, "num_waiting": 1, "running_req_ids": []}
        | {"waiting_req_ids": [hostile], "waiting_job_ids": ["x" * 1_000_000], "free_blocks": 1, "total_blocks": 9},
        {"event": "step_decision", "step": 0, "ts": 0.1, "scheduled_new_req_ids": [], "num_scheduled_tokens": {}},
    ]
    steps = tmp_path / "sched_trace.hostile.steps.jsonl"
    steps.write_text("".join(json.dumps(record) + "\n" for record in records))
    page = open_lanes(open_files, steps)
    lanes = page.get_by_role("listbox")
    lanes.press("Home")
    lanes.press("ArrowRight")
    lanes.press("Enter")
    page.get_by_role("region", name="Why did it wait?").wait_for()
    expect(page.get_by_role("region", name="Request", exact=True)).to_contain_text(
        '<img src=x onerror="window.hacked=1">'
    )
    assert page.evaluate("window.hacked") is None
    expect(page.locator("aside img")).to_have_count(0)
    assert len(page.get_by_role("complementary").inner_text()) < 100_000


def arrivals(trace: Path) -> list[str]:
    """Ids of the requests of a trace."""
    lines = (json.loads(line) for line in next(trace.glob("*.steps.jsonl")).read_text().splitlines())
    return [line["req_id"] for line in lines if line["event"] == "request_arrived"]


def test_who_stood_before_a_request_is_added_up(open_files: Opener, small_trace: Path) -> None:
    """The request that stood longest behind others: its heads, as `tokenyard why` tells them."""
    ids = arrivals(small_trace)

    def behind(request: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for span in why(small_trace, request).spans:
            if span.head is not None:
                found[span.head] += span.end_us - span.start_us
        return found

    most = max(ids, key=lambda request: behind(request).total())
    heads = behind(most).most_common()
    page = open_files(small_trace, state=f"req={most}")
    shown = page.get_by_role("region", name="Who stood before it")
    shown.wait_for()
    times = [row.locator("button").inner_text() for row in shown.locator("li").all()]
    assert len(heads) > 1
    assert times[0] == heads[0][0]
    assert set(times) <= set(dict(heads))
    assert re.search(r"It was \d+(st|nd|rd|th) of \d+ in the queue", shown.inner_text())


def test_who_stood_before_it_where_the_seats_ran_out(open_files: Opener, tmp_path: Path) -> None:
    """No request is refused at the head then: the queue that it found, and those who ran."""
    workload = tmp_path / "crowded.jsonl"
    workload.write_text(crowded())
    trace = replay(tmp_path / "seats", str(workload), "--max-num-seqs", "1")
    longest = waiting(trace).longest[0]
    assert longest.reason == "max_num_seqs"
    page = open_files(trace, state=f"req={longest.request_id}")
    names = page.get_by_role("region", name="Who stood before it").locator(".names")
    running = names.filter(has_text="in the seats it waited for")
    expect(running.locator(".id")).to_have_count(1)
    before = names.filter(has_text="Before it then").locator(".id").first
    first = before.inner_text()
    before.click()
    expect(page.locator(".request-id .id")).to_have_text(first)


def test_a_range_of_steps_is_selected_and_shown(open_files: Opener, small_trace: Path) -> None:
    ids = arrivals(small_trace)
    longest = max(ids, key=lambda request: sum(span.us for span in why(small_trace, request).spans))
    page = open_files(small_trace, state=f"req={longest}")
    link = page.locator(".split button", has_text="\N{EN DASH}").first
    first, last = link.inner_text().split("\N{EN DASH}")
    link.click()
    page.get_by_role("heading", name=f"Step {first}", exact=True).wait_for()
    until(page, f"new URLSearchParams(location.hash.slice(1)).get('sel') === '{first}..{last}'")
