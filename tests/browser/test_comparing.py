"""The Compare tab: two traces, what differs, and where they part."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import replay, until

from tokenyard.explain.report.summary import summarize
from viewer_sample import crowded

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

Opener = Callable[..., "Page"]


@pytest.fixture(scope="module")
def smaller_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small trace's workload, with smaller steps."""
    folder = tmp_path_factory.mktemp("smaller")
    (folder / "crowded.jsonl").write_text(crowded())
    settings = ("--num-gpu-blocks-override=186", "--no-scheduler-reserve-full-isl", "--vllm-version=0.22")
    limits = ("--max-num-seqs=6", "--max-num-batched-tokens=256")
    return replay(folder / "smaller_h100", str(folder / "crowded.jsonl"), *settings, *limits)


def records(path: Path) -> list[dict[str, Any]]:
    """The lines of a trace's steps file."""
    return [json.loads(line) for line in next(path.glob("*.steps.jsonl")).read_text().splitlines()]


def open_both(open_files: Opener, a: Path, b: Path, **options: object) -> Page:
    page = open_files(a, state="tab=compare", **options)
    page.get_by_role("heading", name="Set a second trace beside").wait_for()
    page.locator("[role=tabpanel] [data-picker=files]").set_input_files(sorted(b.iterdir()))
    page.locator(".parting").wait_for()
    return page


def test_where_two_runs_part(open_files: Opener, small_trace: Path, smaller_trace: Path) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    expect(page.locator(".parting")).to_contain_text("Their decisions diverge at step")
    rows = page.get_by_role("region", name="Figures").locator("tbody tr").all()
    figures = {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in rows}
    a, b = summarize(small_trace), summarize(smaller_trace)
    assert figures["Steps"][:2] == [f"{a.steps:,}", f"{b.steps:,}"]
    assert figures["Preemptions"][:2] == [f"{a.preemptions:,}", f"{b.preemptions:,}"]
    worse = (b.preemptions or 0) > (a.preemptions or 0)
    assert ("worse" in figures["Preemptions"][3]) == worse


def test_the_settings_in_which_two_runs_differ(open_files: Opener, small_trace: Path, smaller_trace: Path) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    rows = page.locator("table.settings tbody tr").all()
    told = {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in rows}
    configs = [records(path)[0]["config"]["scheduler"] for path in (small_trace, smaller_trace)]
    assert told["scheduler.max_num_batched_tokens"] == [str(each["max_num_batched_tokens"]) for each in configs]
    differing = {name for name in configs[0] if configs[0][name] != configs[1][name]} - {"profile"}
    sections = {name.split(".")[1] for name in told if name.startswith("scheduler.")} - {"profile"}
    assert sections == differing


def test_the_cause_where_two_runs_part(open_files: Opener, small_trace: Path, smaller_trace: Path) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    step = int(page.locator(".parting .number").first.inner_text().replace(",", ""))
    rows = page.locator("table.cause tbody tr").all()
    told = {row.locator("th").inner_text().split(" (")[0]: row.locator("td").all_inner_texts() for row in rows}
    snapshots = [
        next(line for line in records(path) if line["event"] == "step_snapshot" and line["step"] == step)
        for path in (small_trace, smaller_trace)
    ]
    for name, field, whole in (
        ("running before", "num_running", "max_num_running_reqs"),
        ("free blocks", "free_blocks", "total_blocks"),
    ):
        assert told[name] == [f"{each[field]:,} of {each[whole]:,}" for each in snapshots]
    decided = [
        [line for line in records(path) if line["event"] == "step_decision" and line["step"] <= step]
        for path in (small_trace, smaller_trace)
    ]
    scheduled = [[line["num_scheduled_tokens"] for line in lines] for lines in decided]
    assert scheduled[0][:-1] == scheduled[1][:-1]
    assert scheduled[0][-1] != scheduled[1][-1]


def test_links_to_the_steps_of_b_swap_the_two(open_files: Opener, small_trace: Path, smaller_trace: Path) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    names = page.locator(".compare-head strong").all_inner_texts()
    page.locator(".sides tbody tr").nth(6).locator("td").nth(7).get_by_role("button").click()
    page.get_by_role("tab", name="Timeline", selected=True).wait_for()
    assert page.get_by_role("heading", name="Step ", exact=False).count() > 0
    assert page.title().startswith(names[1])
    expect(page.locator(".announcement")).to_have_text("A and B are swapped: the trace in front was B")


def test_on_a_phone_both_sides_stand_beside_each_other(
    open_files: Opener, small_trace: Path, smaller_trace: Path
) -> None:
    page = open_both(open_files, small_trace, smaller_trace, viewport={"width": 390, "height": 844})
    cells = page.locator(".sides tbody tr").nth(6).locator("td:visible")
    for cell in cells.all():
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert len(page.locator(".sides tbody tr").nth(6).get_by_role("button").all()) == 2


def test_runs_that_did_not_finish_the_same_are_not_judged_alike(
    open_files: Opener, small_trace: Path, tmp_path: Path
) -> None:
    lines = next(small_trace.glob("*.steps.jsonl")).read_text().splitlines(keepends=True)
    part = tmp_path / "part"
    part.mkdir()
    (part / "part.steps.jsonl").write_text("".join(lines[: len(lines) // 2]))
    page = open_both(open_files, small_trace, part)
    expect(page.locator(".parting")).to_contain_text("They never diverge as far as both go")
    figures = page.get_by_role("region", name="Figures")
    people = [summarize(path).outcomes for path in (small_trace, part)]
    came = [0 if each is None else each.arrived for each in people]
    assert came[0] > came[1] > 0
    expect(figures).to_contain_text(f"A {came[0]:,}, B {came[1]:,}, of which {came[1]:,}")
    rows = {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in figures.locator("tbody tr").all()
    }
    assert rows["Time"][3] == ""
    whole, cut = rows["End to end, mean"][:2]
    assert whole[0].isdigit()
    assert cut[0] == "\N{GREATER-THAN OR EQUAL TO}", "requests that have not ended count by their age"


def test_a_run_never_parts_from_itself(open_files: Opener, small_trace: Path) -> None:
    page = open_both(open_files, small_trace, small_trace)
    expect(page.locator(".parting")).to_contain_text("They never diverge")
    expect(page.locator(".sides td.apart")).to_have_count(0)


def test_step_by_step(open_files: Opener, small_trace: Path, smaller_trace: Path) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    sides = page.locator(".sides")
    expect(sides.locator("tbody tr")).to_have_count(18)
    chosen = sides.locator("tr.chosen")
    parting = page.locator(".parting .number").first.inner_text()
    expect(chosen.get_by_role("button").first).to_have_text(parting)
    page.get_by_role("button", name="next difference").click()
    page.wait_for_function("step => document.querySelector('.sides tr.chosen button').innerText !== step", arg=parting)
    assert chosen.locator(".sign").inner_text().startswith("≠")
    step = chosen.get_by_role("button").first
    number = step.inner_text()
    step.click()
    page.get_by_role("heading", name=f"Step {number}", exact=True).wait_for()


def test_the_list_of_steps_is_one_tab_stop(open_files: Opener, small_trace: Path, smaller_trace: Path) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    page.get_by_role("button", name="both, step by step").press("Enter")
    until(page, "document.activeElement.classList.contains('sides')")
    step = page.locator(".sides tr.chosen button").first
    expect(step).to_have_text(page.locator(".parting .number").first.inner_text())
    page.keyboard.press("Home")
    until(page, "document.querySelector('.sides tr.chosen button').innerText === '0'")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("PageDown")
    until(page, "document.querySelector('.sides tr.chosen button').innerText === '19'")
    page.keyboard.press("Tab")
    expect(page.locator(".sides :focus")).to_have_count(0)
    page.locator(".sides").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Step 19", exact=True).wait_for()


def test_the_order_of_the_queue_is_told(open_files: Opener, small_trace: Path, tmp_path: Path) -> None:
    """The same run, but for the order of one queue, and one admission after it."""
    lines = records(small_trace)
    queued = [line for line in lines if line["event"] == "step_snapshot" and len(line["waiting_req_ids"]) > 1]
    admitting = {line["step"] for line in lines if line["event"] == "step_decision" and line["scheduled_new_req_ids"]}
    turned = next(line for line in queued if line["step"] not in admitting)
    turned["waiting_req_ids"].reverse()
    later = next(
        line
        for line in lines
        if line["event"] == "step_decision" and line["step"] > turned["step"] and line["scheduled_new_req_ids"]
    )
    later["scheduled_new_req_ids"] = []
    other = tmp_path / "other"
    other.mkdir()
    (other / "other.steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = open_both(open_files, small_trace, other)
    text = page.locator(".parting").inner_text()
    assert re.search(r"A( \(.+\))? admits .+, B( \(.+\))? does not", text)
    assert "the same, in another order" in text
    page.locator(".parting").get_by_role("button", name=f"step {turned['step']:,}", exact=True).click()
    until(page, f"document.querySelector('.sides tr.chosen button').innerText === \"{turned['step']:,}\"")
    chosen = page.locator(".sides tr.chosen")
    assert page.evaluate("document.documentElement.scrollTop + document.body.scrollTop") == 0
    expect(chosen.locator(".sign")).to_have_attribute("title", re.compile("another order"))
    expect(chosen.locator(".sign")).to_have_text(re.compile("^≈"))


def test_steps_beside_each_other_by_time(open_files: Opener, small_trace: Path, smaller_trace: Path) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    page.get_by_label("align by").select_option("time")
    page.get_by_role("heading", name="Over time").wait_for()
    until(page, "location.hash.includes('align=time')")


def test_who_was_faster(open_files: Opener, small_trace: Path, smaller_trace: Path) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    told = page.get_by_role("region", name="Who was faster")
    verdict = told.inner_text().splitlines()[0]
    assert re.match(r"([AB] is faster|Neither is faster throughout|A and B take equally long)", verdict)
    assert re.search(r"of the \d+ requests of both", verdict)
    assert re.search(r"\d+ jobs? faster in B, \d+ slower", told.inner_text())
    assert re.search(r"\d+ requests? faster in B, \d+ slower", told.inner_text())
    jobs = page.get_by_role("region", name="Jobs side by side")
    expect(jobs.locator("tbody tr")).to_have_count(9)
    expect(jobs).to_contain_text("report")
    told.get_by_role("button", name="all requests side by side").press("Enter")
    section = page.get_by_role("region", name="Requests side by side")
    section.wait_for()
    until(page, "location.hash.includes('who=requests')")
    ended = [
        {r["req_id"] for r in records(p) if r["event"] == "request_finished"} for p in (small_trace, smaller_trace)
    ]
    expect(section.locator("tbody tr")).to_have_count(len(ended[0] | ended[1]))
    section.get_by_role("button", name="TTFT A", exact=True).press("Enter")
    expect(section.get_by_role("columnheader", name="TTFT A")).to_have_attribute("aria-sort", "descending")
    first = section.locator("tbody button").first
    first.focus()
    page.keyboard.press("ArrowDown")
    expect(section.locator("tbody button").nth(1)).to_be_focused()
    second = section.locator("tbody button").nth(1).inner_text()
    page.keyboard.press("Enter")
    page.get_by_role("tab", name="Requests", selected=True).wait_for()
    expect(page.get_by_role("region", name="Request", exact=True)).to_contain_text(second)


def test_differences_are_those_of_what_is_shown(open_files: Opener, small_trace: Path, smaller_trace: Path) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    differences = list[float]()
    for row in page.get_by_role("region", name="Figures").locator("tbody tr").all():
        cells = [text.replace(",", "").split("\n")[0] for text in row.locator("td").all_inner_texts()]
        numbers = [re.match(r"[^\d]?(\d+(?:\.\d+)?) ?(\S*)", cell) for cell in cells[:3]]
        if any(found is None or "min" in cell for found, cell in zip(numbers, cells, strict=False)):
            continue
        a, b, difference = (float(found[1]) for found in numbers if found)
        assert abs(abs(b - a) - difference) < 1e-6, cells
        differences.append(difference)
    assert len(differences) > 10
    assert sum(each > 0 for each in differences) > 5


def test_after_the_choice_of_b_the_focus_is_in_compare(
    open_files: Opener, small_trace: Path, smaller_trace: Path
) -> None:
    page = open_files(small_trace, state="tab=compare")
    picker = page.locator("[role=tabpanel] [data-picker=files]")
    page.locator("[role=tabpanel] button").first.focus()
    picker.set_input_files(sorted(smaller_trace.iterdir()))
    page.locator(".parting").wait_for()
    until(page, "document.activeElement.classList.contains('compare')")
    expect(page.locator(".compare-head")).to_contain_text("a reload does not keep it")


def test_swap_and_close(open_files: Opener, small_trace: Path, smaller_trace: Path) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    before = page.locator(".compare-head strong").all_inner_texts()
    page.get_by_role("button", name="swap A and B").click()
    page.locator(".compare-head strong").first.get_by_text(before[1], exact=True).wait_for()
    assert page.locator(".compare-head strong").all_inner_texts() == before[::-1]
    page.get_by_role("button", name="close B").click()
    page.get_by_role("heading", name="Set a second trace beside").wait_for()
