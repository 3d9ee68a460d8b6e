"""A page made by `tokenyard export --html`: it opens from disk with its trace in it, whatever the trace holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.conftest import ARRIVED_MS

from tokenyard.trace.export.page import embed
from tokenyard.trace.read.files import find_trace

if TYPE_CHECKING:
    from playwright.sync_api import Page


def made(trace: Path, viewer_html: Path, folder: Path) -> str:
    """The address of the page that holds ``trace``."""
    file = folder / "mailed.html"
    with file.open("wb") as out:
        embed(viewer_html.read_text(encoding="utf-8"), find_trace(trace), out)
    return file.as_uri()


def test_a_mailed_page_opens_its_trace(
    small_trace: Path, viewer_html: Path, new_page: Callable[..., Page], tmp_path: Path
) -> None:
    page = new_page()
    page.goto(made(small_trace, viewer_html, tmp_path))
    page.wait_for_selector(".run", timeout=ARRIVED_MS)
    about = page.get_by_role("list", name="About this run")
    assert "FCFS" in about.inner_text()
    # The requests file is in the page as well; it is read after the first picture.
    about.get_by_text("reqs").wait_for(timeout=ARRIVED_MS)


def test_markup_in_a_mailed_trace_stays_text(viewer_html: Path, new_page: Callable[..., Page], tmp_path: Path) -> None:
    hostile = '</script><img src=x onerror="document.title=1"><script>document.title=2</script>'
    line = {"event": "step_snapshot", "step": 0, "ts": 0.5, "policy": hostile, "num_running": 1, "num_waiting": 0}
    queues = {"running_req_ids": [hostile], "waiting_req_ids": [], "running_job_ids": [hostile], "free_blocks": 9}
    trace = tmp_path / "a.steps.jsonl"
    trace.write_text(json.dumps(line | queues) + "\n")
    page = new_page()
    page.goto(made(trace, viewer_html, tmp_path))
    page.wait_for_selector(".run", timeout=ARRIVED_MS)
    assert page.title() not in ("1", "2")
    assert page.locator("img").count() == 0
