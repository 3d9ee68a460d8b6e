"""A trace of a million steps: every tab shows something, and none takes the page with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

STEPS = 1_000_000
READ_MS = 300_000
"""On a busy machine; a free one takes a twentieth."""


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One request each time, and now and then one that waits: short records, for the steps are what counts."""
    file = tmp_path_factory.mktemp("million") / "sched_trace.fcfs.steps.jsonl"
    with file.open("w") as out:
        for step in range(STEPS):
            waiting = ',"num_waiting":2' if step % 1000 < 200 else ',"num_waiting":0'
            out.write(
                f'{{"event":"step_snapshot","step":{step},"ts":{step * 0.01:.2f},"num_running":3{waiting},'
                f'"free_blocks":{step % 500},"total_blocks":1000,"max_num_running_reqs":3}}\n'
            )
    return file


def test_every_tab_of_a_million_steps(new_page: Callable[..., Page], viewer_html: Path, million: Path) -> None:
    page = new_page()
    page.goto(viewer_html.as_uri() + "#tab=timeline")
    page.set_input_files("[data-picker=files]", [million])
    page.wait_for_selector(".run", timeout=READ_MS)
    page.wait_for_selector(".load-line", state="detached", timeout=READ_MS)
    expect(page.locator(".header")).to_contain_text("(1,000,000)")
    for key, found in (
        ("4", ".occupancy"),
        ("3", ".requests"),
        ("2", ".timeline"),
        ("1", ".tracks"),
        ("5", ".compare"),
    ):
        page.keyboard.press(key)
        page.wait_for_selector(found, timeout=READ_MS)
        expect(page.locator(".guarded")).to_have_count(0)
    page.keyboard.press("4")
    page.wait_for_selector(".statistics[aria-busy=false]", timeout=READ_MS)
    expect(page.get_by_text("1000 blocks, at most").or_(page.get_by_text("1,000 blocks, at most"))).to_have_count(1)
