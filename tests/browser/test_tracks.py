"""The Timeline from left to right, moments that a user marked, and places that are kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import SMALL_LAST, settled, until

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]


def test_the_timeline_opens_on_the_whole_run_and_a_double_click_on_its_rows(
    open_files: Open, small_trace: Path
) -> None:
    page = open_files(small_trace, state="tab=timeline")
    ground = page.locator(".tracks-in-view .tracks-ground")
    ground.wait_for()
    expect(page.get_by_label("Start")).to_have_value("0")
    expect(page.get_by_label("End")).to_have_value(str(SMALL_LAST))
    box = ground.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 40)
    expect(page.locator(".tracks-foot output")).to_contain_text("tokens/s")
    page.mouse.click(box["x"] + 0.7 * box["width"], box["y"] + 40)
    chosen = page.locator(".side-head").inner_text()
    page.get_by_role("button", name="rows of this step").click()
    expect(page.locator(".tracks-in-view")).to_have_count(0)
    expect(page.locator(".focused-row")).to_be_visible()
    expect(page.locator(".side-head")).to_have_text(chosen, use_inner_text=True)
    page.keyboard.press("f")
    ground.wait_for()
    box = ground.bounding_box()
    assert box is not None
    page.mouse.dblclick(box["x"] + 0.3 * box["width"], box["y"] + 40)
    expect(page.locator(".focused-row")).to_be_visible()
    expect(page.locator(".side-head")).not_to_have_text(chosen)


def test_a_drag_selects_from_left_to_right_and_a_filter_marks_what_it_keeps(
    open_files: Open, small_trace: Path
) -> None:
    page = open_files(small_trace, state="tab=timeline")
    box = page.locator(".tracks-ground").bounding_box()
    assert box is not None
    y = box["y"] + 60
    page.mouse.move(box["x"] + 0.5 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], y, steps=4)
    page.mouse.up()
    expect(page.locator(".selected")).to_contain_text("selected:")
    page.get_by_role("button", name="clear the selection", exact=True).click()
    expect(page.locator(".selected")).to_have_count(0)


def test_a_trace_without_times_is_drawn_by_its_steps(open_files: Open, tmp_path: Path) -> None:
    file = tmp_path / "sched_trace.fcfs.steps.jsonl"
    rows = ({"event": "step_snapshot", "step": n, "num_running": n % 5, "num_waiting": 0} for n in range(400))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = open_files(file, state="tab=timeline")
    page.locator(".tracks-ground").hover(position={"x": 600, "y": 60})
    expect(page.locator(".tracks-foot output")).to_contain_text("tokens/step")
    expect(page.locator(".tracks-foot output")).to_contain_text("step ")


PICTURE = "document.querySelector('.tracks canvas').toDataURL()"


def test_moments_come_from_a_file_beside_the_trace_and_from_one_that_is_dropped_later(
    open_files: Open, small_trace: Path, tmp_path: Path
) -> None:
    """The picture is another with them; what is no moment is counted, and files of moments alone are no new trace."""
    marks = tmp_path / "markers.jsonl"
    marks.write_text('{"time": 0.3, "text": "deploy"}\n{"time": 0.5, "end": 0.8, "text": "incident"}\n{"text": 7}\n')
    plain = open_files(small_trace, state="tab=overview")
    plain.wait_for_selector(".overview[aria-busy=false]")
    settled(plain, PICTURE)
    without = plain.evaluate(PICTURE)
    transfer = "async (text) => {const it = new DataTransfer(); it.items.add(new File([text], 'markers.jsonl'));"
    transfer += " window.dispatchEvent(new DragEvent('drop', {dataTransfer: it, bubbles: true, cancelable: true}));}"
    plain.evaluate(transfer, marks.read_text())
    expect(plain.locator(".announcement")).to_have_text('2 moments are marked; 1 lines say no "time" and "text"')
    until(plain, f"{PICTURE} !== '{without}'")
    dropped = plain.evaluate(PICTURE)
    beside = open_files(*sorted(small_trace.iterdir()), marks, state="tab=overview")
    beside.wait_for_selector(".overview[aria-busy=false]")
    until(beside, f"{PICTURE} === '{dropped}'")


def test_moments_stand_in_the_charts_of_the_statistics(open_files: Open, small_trace: Path) -> None:
    """Each in its own colour, which nothing else in a chart has."""
    red = """() => [...document.querySelectorAll('.statistics .plot canvas')].map((canvas) => {
        const style = getComputedStyle(document.documentElement).getPropertyValue('--hot').trim();
        const [r, g, b] = [1, 3, 5].map((at) => parseInt(style.slice(at, at + 2), 16));
        const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let i = 0; i < data.length; i += 4) found += data[i] === r && data[i + 1] === g && data[i + 2] === b;
        return found;
    })"""
    plain, marked = (
        open_files(small_trace, state=f"tab=statistics{marks}") for marks in ("", "&marks=0.3:deploy,0.6:alert")
    )
    for page in (plain, marked):
        page.wait_for_selector(".statistics[aria-busy=false]")
        page.get_by_role("heading", name="Over time").wait_for()
    until(marked, f"({red})().length > 5 && ({red})().every((pixels) => pixels > 50)")
    assert max(plain.evaluate(red)) == 0


def test_every_tab_is_found_again_where_it_was_left(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, state="tab=statistics")
    page.wait_for_selector(".statistics[aria-busy=false]")
    page.locator(".statistics").hover()
    page.mouse.wheel(0, 700)
    place = "document.querySelector('.statistics').scrollTop"
    until(page, f"{place} > 300")
    settled(page, place)
    before = page.evaluate(place)
    page.locator("#tab-overview").click()
    page.locator(".tracks").wait_for()
    page.locator("#tab-statistics").click()
    until(page, f"Math.abs({place} - {before}) < 3")


@pytest.mark.parametrize("tab", ["overview", "timeline", "requests", "statistics", "compare"])
def test_another_trace_can_be_loaded_from_every_tab(open_files: Open, small_trace: Path, tab: str) -> None:
    page = open_files(small_trace, state=f"tab={tab}")
    page.get_by_role("button", name="Load another").click()
    page.get_by_role("button", name="Open the sample").wait_for()
    page.get_by_role("button", name="Back to").click()
    expect(page.locator(f"#tab-{tab}")).to_have_attribute("aria-selected", "true")
