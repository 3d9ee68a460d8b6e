"""The ways into the page: the sample, picked and dropped files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_a_newcomer_can_open_the_sample(new_page: Callable[..., Page], viewer_html: Path) -> None:
    page = new_page()
    page.goto(viewer_html.as_uri())
    page.get_by_role("button", name="Open the sample").click()
    tokens = page.get_by_role("list", name="About this run")
    tokens.wait_for()
    for shown in ("FCFS", "L4", "(99)", "maxRun:6"):
        assert shown in tokens.inner_text()
    legend = page.get_by_role("list", name="Reasons in the run").inner_text()
    assert "kv_blocks" in legend
    assert "preempted_this_step" in legend
