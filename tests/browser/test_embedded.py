"""A page made by `tokenyard export --html`: it opens from disk with its trace in it, whatever the trace holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest
from tests.browser.conftest import ARRIVED_MS

from tokenyard.trace.export.page import EMBEDDED_ID, embed
from tokenyard.trace.reader import find_trace

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

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
    expect(about).to_contain_text("FCFS")
    # The requests file is in the page as well; it is read after the first picture.
    about.get_by_text("records").wait_for(timeout=ARRIVED_MS)


ALL_STEPS = "steps 0\u201339999 (40,000)"
WATCH_STEPS = """
window.told = [];
new MutationObserver(() => {
  const steps = document.querySelector(".token.steps")?.textContent;
  if (steps && steps !== window.told.at(-1)) window.told.push(steps);
}).observe(document, { subtree: true, childList: true, characterData: true });
"""
"""Keeps what the header says of the steps, one after the other."""


@pytest.fixture(scope="module")
def large_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40,000 steps in 24 MB of lines: more than the page unpacks before it begins to read."""
    trace = tmp_path_factory.mktemp("large") / "a.steps.jsonl"
    waiting = [f"request_{number:020}" for number in range(20)]
    more = {"event": "step_snapshot", "num_running": 0, "num_waiting": 20, "free_blocks": 9, "running_req_ids": []}
    lines = (json.dumps(more | {"step": n, "ts": n / 10, "waiting_req_ids": waiting}) + "\n" for n in range(40_000))
    trace.write_text("".join(lines))
    return trace


@pytest.fixture(scope="module")
def large_page(large_trace: Path, viewer_html: Path) -> str:
    """The address of the page that holds it."""
    return made(large_trace, viewer_html, large_trace.parent)


def test_a_large_page_is_drawn_while_the_rest_is_unpacked(large_page: str, new_page: Callable[..., Page]) -> None:
    page = new_page()
    page.add_init_script(WATCH_STEPS)
    page.goto(large_page)
    page.get_by_text(ALL_STEPS).wait_for(timeout=ARRIVED_MS)
    page.wait_for_selector(".load-line", state="detached", timeout=ARRIVED_MS)
    told = page.evaluate("window.told")
    begun, whole = told[0], told[-1]
    assert begun != whole, "it was drawn once, when all was read"
    assert whole == ALL_STEPS
    assert page.evaluate(f"document.getElementById('{EMBEDDED_ID}').textContent") == "", "its text is given up"


def test_a_link_into_a_large_page_waits_for_its_step(large_page: str, new_page: Callable[..., Page]) -> None:
    page = new_page()
    page.add_init_script(WATCH_STEPS)
    page.goto(f"{large_page}#step=39000")
    page.wait_for_selector(".run", timeout=ARRIVED_MS)
    page.wait_for_selector(".load-line", state="detached", timeout=ARRIVED_MS)
    assert page.evaluate("window.told") == [ALL_STEPS]
    assert "step=39000" in page.url


def test_a_large_page_that_is_damaged_shows_its_beginning(
    large_page: str, new_page: Callable[..., Page], tmp_path: Path
) -> None:
    text = Path(unquote(urlsplit(large_page).path)).read_text(encoding="utf-8")
    head, tag, end = text.rpartition("</script>\n</body>")
    (tmp_path / "damaged.html").write_text(head[: -(4 * 2_000)] + tag + end, encoding="utf-8")
    page = new_page()
    page.goto((tmp_path / "damaged.html").as_uri())
    page.get_by_text("the rest of the steps could not be unpacked").wait_for(state="attached", timeout=ARRIVED_MS)
    title = page.get_by_text("partial", exact=True).get_attribute("title") or ""
    assert "its last line is cut off" in title


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
    expect(page.locator("img")).to_have_count(0)
