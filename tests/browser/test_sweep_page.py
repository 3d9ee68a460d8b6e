"""The page of a sweep: parts of axes by mouse and keyboard, sorting, and two traces that open side by side."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.command import call

from tokenyard.questions.sweeping.page import page as page_of
from tokenyard.questions.sweeping.rows import Row

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

ROWS = [
    Row(settings={"max_num_seqs": seats}, figures={"ttft_ms.p90": ttft, "throughput.output_tokens_per_s": tokens})
    for seats, ttft, tokens in ((1, 900.0, 10.0), (2, 500.0, 20.0), (4, 200.0, 18.0), (8, 100.0, 5.0))
]


@pytest.fixture
def opened(new_page: Callable[..., Page], tmp_path: Path) -> Page:
    """Four variants, from disk."""
    file = tmp_path / "sweep.html"
    file.write_text(page_of("chat", ROWS))
    page = new_page()
    page.goto(file.as_uri())
    return page


def shown(page: Page) -> list[str]:
    """max_num_seqs of the rows that are left, in their order."""
    return page.locator("tbody tr:visible td:nth-child(2)").all_inner_texts()


def axis(page: Page, name: str) -> Locator:
    return page.get_by_role("group", name=name)


def test_a_part_of_an_axis_is_marked_with_the_mouse(opened: Page) -> None:
    box = axis(opened, "TTFT p90, ms").locator(".grip").bounding_box()
    assert box is not None
    x, top, height = box["x"] + box["width"] / 2, box["y"], box["height"]
    opened.mouse.move(x, top - 1 + 2)
    opened.mouse.down()
    opened.mouse.move(x, top + height * 0.6)
    opened.mouse.up()
    assert shown(opened) == ["2", "4", "8"], "better is up: 100 to 580 ms"
    expect(opened.locator("#kept")).to_contain_text("3 of 4 variants: TTFT p90, ms from 10")
    expect(opened.locator("polyline.out")).to_have_count(1)
    opened.mouse.click(x, top + height / 2)
    assert shown(opened) == ["1", "2", "4", "8"]


def test_a_part_of_an_axis_is_marked_with_keys_and_rows_are_sorted(opened: Page) -> None:
    seats = axis(opened, "max_num_seqs")
    seats.focus()
    seats.press("ArrowDown")
    expect(opened.locator("#kept")).to_have_text("3 of 4 variants: max_num_seqs 1, 2, 4")
    seats.press("Shift+ArrowUp")
    assert shown(opened) == ["2", "4"]
    expect(seats).to_have_attribute("aria-label", "max_num_seqs 2, 4")
    tokens = axis(opened, "tokens, /s")
    tokens.focus()
    tokens.press("Enter")
    assert shown(opened) == ["4", "2"], "18 tokens a second, then 20"
    seats.press("Escape")
    assert shown(opened) == ["8", "1", "4", "2"]
    opened.get_by_label("only the front").check()
    assert shown(opened) == ["8", "4", "2"]
    opened.get_by_role("button", name="all variants").click()
    assert len(shown(opened)) == 4


def test_without_traces_nothing_is_to_be_compared(opened: Page) -> None:
    expect(opened.locator("tbody input")).to_have_count(0)
    assert not opened.locator("#pair").is_visible()


def test_a_narrow_page_scrolls_its_parts_alone(opened: Page) -> None:
    opened.set_viewport_size({"width": 390, "height": 800})
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that kept its traces."""
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("swept")
    words = ["sweep", "chat", "--limit", "4", "--rate-scale", "30", "--num-gpu-blocks-override", "900"]
    words += ["--max-model-len", "8192", "--set", "max_num_seqs=1,2,8", "--traces", "--output", "monday"]
    made = call(*words, "--processes", "1", "--html", "monday.html", cwd=folder)
    assert made.code == 0, made.stderr
    return folder


@pytest.fixture(scope="module")
def address(swept: Path, viewer_html: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "tokenyard.cli.main", "view", str(swept), "--no-browser", "--port", "0"]
    environment = os.environ | {"TOKENYARD_VIEWER_HTML": str(viewer_html)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
    assert found is not None
    yield found[0]
    server.terminate()
    server.communicate(timeout=10)


def test_two_variants_lead_from_the_list_to_compare(new_page: Callable[..., Page], address: str) -> None:
    page = new_page()
    page.goto(address)
    page.get_by_role("link", name="monday").click()
    expect(page.locator("h1")).to_have_text("Sweep: chat")
    for seats in (1, 2, 8):
        page.get_by_label(f"compare max_num_seqs={seats}").check()
    assert not page.get_by_label("compare max_num_seqs=1").is_checked(), "two at a time"
    page.locator("#pair").get_by_role("link", name="max_num_seqs=2 beside max_num_seqs=8").click()
    page.locator(".compare-head").wait_for()
    expect(page.locator(".compare")).to_contain_text("max_num_seqs")
    assert "tab=compare" in page.url


def test_a_page_on_disk_says_how_to_get_there(new_page: Callable[..., Page], swept: Path) -> None:
    page = new_page()
    page.goto((swept / "monday.html").as_uri())
    row = page.locator("tbody tr").first
    row.focus()
    row.press(" ")
    page.get_by_label("compare max_num_seqs=8").check()
    expect(page.locator("#pair")).to_contain_text(f"tokenyard view {swept / 'monday'}")
    expect(page.locator("#pair")).to_contain_text("tab=compare")
