"""The Compare tab: two traces, what differs, and where they part."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import replay, until

from tokenyard.explain.report.summary import summarize
from viewer_sample import crowded

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
    assert "They part at step" in page.locator(".parting").inner_text()
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


def test_runs_that_did_not_finish_the_same_are_not_judged_alike(
    open_files: Opener, small_trace: Path, tmp_path: Path
) -> None:
    lines = next(small_trace.glob("*.steps.jsonl")).read_text().splitlines(keepends=True)
    part = tmp_path / "part"
    part.mkdir()
    (part / "part.steps.jsonl").write_text("".join(lines[: len(lines) // 2]))
    page = open_both(open_files, small_trace, part)
    assert "They never part as far as both go" in page.locator(".parting").inner_text()
    figures = page.get_by_role("region", name="Figures")
    finished = [summarize(path).requests_finished or 0 for path in (small_trace, part)]
    assert finished[1] > 0
    assert f"A {finished[0]:,}, B {finished[1]:,}, of which {finished[1]:,}" in figures.inner_text()
    rows = {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in figures.locator("tbody tr").all()
    }
    assert rows["Time"][3] == ""
    assert rows["End to end, mean"][0] == rows["End to end, mean"][1]


def test_a_run_never_parts_from_itself(open_files: Opener, small_trace: Path) -> None:
    page = open_both(open_files, small_trace, small_trace)
    assert "They never part" in page.locator(".parting").inner_text()
    assert page.locator(".sides td.apart").count() == 0


def test_step_by_step(open_files: Opener, small_trace: Path, smaller_trace: Path) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    sides = page.locator(".sides")
    assert sides.locator("tbody tr").count() == 18
    page.get_by_role("button", name="next difference").click()
    chosen = sides.locator("tr.chosen")
    chosen.wait_for()
    assert chosen.locator(".sign").inner_text() != "="
    step = chosen.get_by_role("button").first
    number = step.inner_text()
    step.click()
    page.get_by_role("heading", name=f"Step {number}", exact=True).wait_for()


@pytest.mark.parametrize("alignment", ["time", "job"])
def test_other_alignments(open_files: Opener, small_trace: Path, smaller_trace: Path, alignment: str) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    page.get_by_label("align by").select_option(alignment)
    title = "Jobs" if alignment == "job" else "Step by step"
    section = page.get_by_role("region", name=title)
    section.wait_for()
    if alignment == "job":
        assert section.locator("tbody tr").count() == 9
        assert "report" in section.inner_text()
    until(page, f"location.hash.includes('align={alignment}')")


def test_swap_and_close(open_files: Opener, small_trace: Path, smaller_trace: Path) -> None:
    page = open_both(open_files, small_trace, smaller_trace)
    before = page.locator(".compare-head strong").all_inner_texts()
    page.get_by_role("button", name="swap A and B").click()
    page.locator(".compare-head strong").first.get_by_text(before[1], exact=True).wait_for()
    assert page.locator(".compare-head strong").all_inner_texts() == before[::-1]
    page.get_by_role("button", name="close B").click()
    page.get_by_role("heading", name="Set a second trace beside").wait_for()
