"""The ways into the page that need no server: the sample, picked and dropped files; and what cannot be opened."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import SMALL_STEPS

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]

DROP = """([where, files]) => {
    const transfer = new DataTransfer();
    for (const [name, text] of files) transfer.items.add(new File([text], name));
    const drop = new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true});
    document.querySelector(where).dispatchEvent(drop);
}"""


@pytest.fixture
def landing(new_page: Callable[..., Page], viewer_html: Path) -> Page:
    page = new_page()
    page.goto(viewer_html.as_uri())
    return page


def pick(page: Page, *files: Path) -> None:
    page.set_input_files("[data-picker=files]", files)


def tokens(page: Page) -> str:
    found = page.get_by_role("list", name="About this run")
    found.wait_for()
    return found.inner_text()


def test_a_newcomer_can_open_the_sample(landing: Page) -> None:
    landing.get_by_role("button", name="Open the sample").click()
    shown = tokens(landing)
    for token in ("FCFS", "L4", "(53)", "maxRun:5"):
        assert token in shown
    landing.get_by_role("tab", name="Timeline").click()
    legend = landing.get_by_role("list", name="Reasons in the run")
    expect(legend).to_contain_text("kv_blocks")
    expect(legend).to_contain_text("token_budget")


def test_the_landing_page_has_the_help_too(landing: Page) -> None:
    help_page = landing.get_by_role("dialog", name="Keys, filter, colours, short words")
    landing.keyboard.press("?")
    expect(help_page).to_be_visible()
    landing.keyboard.press("Escape")
    expect(help_page).to_have_count(0)
    landing.get_by_role("button", name="Help: keys and filter").click()
    expect(help_page).to_be_visible()


def test_the_landing_page_says_how_to_make_a_trace(landing: Page) -> None:
    expect(landing.locator("main")).to_contain_text("tokenyard run agentic --trace")


def test_steps_alone_are_enough(landing: Page, small_trace: Path) -> None:
    pick(landing, small_trace / "sched_trace.fcfs.steps.jsonl")
    assert f"({SMALL_STEPS})" in tokens(landing)
    assert "records" not in tokens(landing)


def test_a_gzipped_file_with_any_name_is_known_by_its_content(landing: Page, small_trace: Path, tmp_path: Path) -> None:
    packed = tmp_path / "whatever.bin"
    packed.write_bytes(gzip.compress((small_trace / "sched_trace.fcfs.steps.jsonl").read_bytes()))
    pick(landing, packed)
    assert f"({SMALL_STEPS})" in tokens(landing)


def test_files_may_be_dropped_anywhere(landing: Page, small_trace: Path) -> None:
    files = [[file.name, file.read_text()] for file in sorted(small_trace.iterdir())]
    landing.evaluate(DROP, ["body", files])
    expect(landing.get_by_role("list", name="About this run")).to_contain_text("records")


def test_several_traces_are_offered_for_choice(landing: Page, small_trace: Path, tmp_path: Path) -> None:
    steps = (small_trace / "sched_trace.fcfs.steps.jsonl").read_text()
    for name in ("one", "two"):
        (tmp_path / f"sched_trace.{name}.steps.jsonl").write_text(steps)
    pick(landing, *sorted(tmp_path.iterdir()))
    found = landing.get_by_role("region", name="Traces found")
    expect(found.get_by_role("button", name="Load")).to_have_count(2)
    found.get_by_role("button", name="Load").nth(1).click()
    tokens(landing)
    expect(landing.locator(".token.source")).to_contain_text("two")


def test_what_is_no_trace_is_refused_with_advice(landing: Page, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary\n")
    pick(landing, tmp_path / "notes.txt")
    alert = landing.get_by_role("alert")
    alert.wait_for()
    expect(alert).to_contain_text("notes.txt")
    expect(alert).to_contain_text("steps.jsonl")
    landing.get_by_role("button", name="Dismiss").click()
    expect(alert).to_have_count(0)


def test_bad_lines_are_counted_and_named(landing: Page, small_trace: Path, tmp_path: Path) -> None:
    lines = (small_trace / "sched_trace.fcfs.steps.jsonl").read_text().splitlines()
    damaged = tmp_path / "sched_trace.bad.steps.jsonl"
    damaged.write_text("\n".join([*lines[:40], "{broken", *lines[40:]]) + '\n{"event":"step_snap')
    pick(landing, damaged)
    assert f"({SMALL_STEPS})" in tokens(landing)
    notes = landing.locator(".notes")
    notes.locator("summary").click()
    expect(notes).to_contain_text("line 41")


def test_a_long_load_can_be_cancelled(landing: Page, long_trace: Path, tmp_path: Path) -> None:
    text = (long_trace / "sched_trace.fcfs.steps.jsonl").read_text()
    large = tmp_path / "sched_trace.large.steps.jsonl"
    large.write_text(text * 80)
    pick(landing, large)
    landing.get_by_role("button", name="Cancel").click()
    expect(landing.get_by_role("button", name="Cancel")).to_have_count(0)
    shown = landing.locator(".run").count()
    if shown:  # what was read until then is shown, and the page says that it is not all
        landing.locator(".notes summary").click()
        expect(landing.locator(".notes")).to_contain_text("cancelled")
    else:
        expect(landing.get_by_role("button", name="Open the sample")).to_be_visible()


def test_a_folder_can_be_picked(landing: Page, small_trace: Path) -> None:
    landing.set_input_files("[data-picker=folder]", small_trace)
    expect(landing.get_by_role("list", name="About this run")).to_contain_text("records")
    assert landing.locator(".token.source").get_attribute("title") is not None
    assert "small_h100/" in str(landing.locator(".token.source").get_attribute("title"))
