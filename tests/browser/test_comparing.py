"""The Compare tab: two traces, what differs, and where they part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

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
