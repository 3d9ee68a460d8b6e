"""Ways out of the page: picture, table, lines, annotations."""

from __future__ import annotations

import csv
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

Opener = Callable[..., "Page"]


def save(page: Page, item: str, folder: Path) -> Path:
    """Choose ``item`` in the export menu; the downloaded file."""
    if page.get_by_role("dialog", name="Export").count() == 0:
        page.get_by_role("button", name="Export").click()
    with page.expect_download() as downloading:
        page.get_by_role("dialog", name="Export").get_by_role("button", name=item).click()
    file = folder / downloading.value.suggested_filename
    downloading.value.save_as(file)
    return file


def filtered(page: Page, text: str, steps: int) -> None:
    page.get_by_role("searchbox", name="Filter").fill(text)
    page.get_by_text(f"{steps} steps", exact=True).wait_for()


def test_a_table_of_the_filtered_steps(open_files: Opener, small_trace: Path, tmp_path: Path) -> None:
    page = open_files(small_trace)
    filtered(page, "step:10..14", 5)
    table = save(page, "Steps (CSV)", tmp_path)
    assert table.name.endswith(".filtered-10-14.csv")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [10, 11, 12, 13, 14]
    lines = [json.loads(line) for line in next(small_trace.glob("*.steps.jsonl")).read_text().splitlines()]
    free = {line["step"]: line["free_blocks"] for line in lines if line["event"] == "step_snapshot"}
    assert [int(row["free_blocks"]) for row in rows] == [free[step] for step in range(10, 15)]


def test_the_lines_of_the_filtered_steps_as_they_are(open_files: Opener, small_trace: Path, tmp_path: Path) -> None:
    page = open_files(small_trace)
    filtered(page, "step:10..14", 5)
    saved = save(page, "Trace (JSONL)", tmp_path).read_text().splitlines()
    original = next(small_trace.glob("*.steps.jsonl")).read_text().splitlines()
    assert set(saved) <= set(original)
    steps = [json.loads(line) for line in saved]
    assert {line["step"] for line in steps if line["event"] == "step_snapshot"} == set(range(10, 15))


@pytest.mark.parametrize("tab", ["timeline", "requests", "statistics"])
def test_a_picture_of_each_view(open_files: Opener, small_trace: Path, tmp_path: Path, tab: str) -> None:
    page = open_files(small_trace, state=f"tab={tab}")
    page.locator("[role=tabpanel] canvas").first.wait_for()
    data = save(page, "Picture", tmp_path).read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width == 2 * page.locator("[role=tabpanel]").evaluate("panel => panel.clientWidth")
    assert height > 800


def test_annotations_are_kept_in_a_side_file(open_files: Opener, small_trace: Path, tmp_path: Path) -> None:
    note = "the pool fills up <b>here</b>"
    page = open_files(small_trace, state="step=12")
    page.get_by_label("Note on step 12").fill(note)
    page.get_by_role("button", name="add", exact=True).click()
    page.get_by_text(note).wait_for()
    file = save(page, "save file", tmp_path)
    assert file.name.endswith(".annotations.json")
    assert [(one["step"], one["text"]) for one in json.loads(file.read_text())["annotations"]] == [(12, note)]

    other = open_files(small_trace, state="step=12")
    other.get_by_role("button", name="Export").click()
    other.get_by_label("open file").set_input_files(file)
    other.get_by_role("region", name="Annotations of step 12").get_by_text(note).wait_for()
    other.get_by_role("button", name="Remove the annotation").click()
    other.get_by_text(note).wait_for(state="detached")


def test_a_file_that_holds_no_annotations_is_named(open_files: Opener, small_trace: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[1, 2")
    page = open_files(small_trace)
    page.get_by_role("button", name="Export").click()
    page.get_by_label("open file").set_input_files(wrong)
    page.get_by_role("alert").get_by_text("not JSON").wait_for()


def test_the_menu_by_keyboard(open_files: Opener, small_trace: Path) -> None:
    page = open_files(small_trace)
    page.on("filechooser", lambda _: None)  # takes a moment until the browser knows: before it is waited for
    page.get_by_role("button", name="Export").focus()
    page.keyboard.press("Enter")
    menu = page.get_by_role("dialog", name="Export")
    for name in ("Picture", "Steps", "Trace", "open file", "Picture"):
        page.keyboard.press("ArrowDown")
        assert menu.locator(":focus").evaluate("one => one.innerText").startswith(name)
    page.keyboard.press("ArrowUp")
    expect(menu.locator("button:focus")).to_have_text("open file")
    with page.expect_file_chooser():
        page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    menu.wait_for(state="detached")
    assert page.get_by_role("button", name="Export").evaluate("one => one === document.activeElement")
    page.keyboard.press("Enter")
    menu.wait_for()
    page.keyboard.press("Escape")  # the focus is still on the button that opened it
    menu.wait_for(state="detached")


def test_what_only_the_server_can_make_says_so(open_files: Opener, small_trace: Path) -> None:
    page = open_files(small_trace)
    page.get_by_role("button", name="Export").click()
    for kind in ("html", "perfetto"):
        item = page.get_by_role("button", name=re.compile(rf"\({kind}\)", re.IGNORECASE))
        assert item.is_disabled()
        expect(item).to_contain_text(f"tokenyard export TRACE --{kind} FILE")
        assert item.evaluate("one => one.scrollWidth <= one.clientWidth"), "the explanation runs out of the menu"


PICTURED = """() => new Promise(done => {
  const made = XMLSerializer.prototype.serializeToString;
  XMLSerializer.prototype.serializeToString = function (node) {
    done(node.children[1].textContent);
    return made.call(this, node);
  };
})"""
"""What stands above the next picture."""


def test_a_picture_says_which_steps_it_shows_and_by_what_filter(open_files: Opener, small_trace: Path) -> None:
    page = open_files(small_trace)
    filtered(page, "step:10..14", 5)
    page.evaluate(f"window.titled = ({PICTURED})(); 0")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("button", name="Picture").click()
    title = page.evaluate("window.titled")
    assert "rows of steps 10-14 · filter: step:10..14" in title
    page.get_by_role("dialog", name="Export").wait_for(state="detached")  # it closes once the picture is saved
    page.keyboard.press("4")
    page.get_by_role("button", name="Export").click()
    expect(page.get_by_role("button", name="Picture")).to_contain_text("also what is scrolled out of view")
