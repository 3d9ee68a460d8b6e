"""The frame stands whole at every width: figures of a selection, all tabs and fields on a phone, one axis."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    Open = Callable[..., Page]

PHONE = {"viewport": {"width": 390, "height": 844}}


def box_of(locator: Locator) -> dict[str, float]:
    box = locator.bounding_box()
    assert box is not None
    return {"x": box["x"], "y": box["y"], "width": box["width"], "height": box["height"]}


@pytest.mark.parametrize("width", [1440, 1280, 1024, 720])
def test_figures_of_a_selection_are_not_cut(open_files: Open, small_trace: Path, width: int) -> None:
    """Since when, and how much was lost: the end of the line was what was clipped."""
    height = 450 if width == 720 else 800
    page = open_files(small_trace, state="tab=requests&sel=20..90", viewport={"width": width, "height": height})
    expect(page.locator(".selected")).to_be_visible()
    page.locator(".blocked-item").get_by_text("since").first.wait_for()
    cut = page.evaluate(
        """() => {
            const boxes = [...document.querySelectorAll(".legend > li")].map((item) => item.getBoundingClientRect());
            const found = boxes.slice(1).filter((box, at) => box.left < boxes[at].right - 1).map(String);
            for (const figures of document.querySelectorAll(".legend .number, .legend .selected")) {
                const { right } = figures.closest("li").getBoundingClientRect();
                const own = figures.getBoundingClientRect();
                if (own.right > right + 1 || figures.scrollWidth > figures.clientWidth + 1 && figures.clientWidth > 0)
                    found.push(figures.textContent);
            }
            return found;
        }"""
    )
    assert cut == []
    assert page.evaluate("document.querySelector('.legend').getBoundingClientRect().right") <= width


def test_a_phone_has_all_tabs_and_the_field_for_a_step(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, state="tab=requests", **PHONE)
    tabs = page.get_by_role("tablist", name="Views")
    assert tabs.evaluate("one => one.scrollWidth - one.clientWidth") <= 0
    last = box_of(page.get_by_role("tab", name="Compare"))
    assert last["x"] + last["width"] <= 390
    expect(page.get_by_label("Go to step")).to_be_visible()
    legend = page.get_by_role("list", name="Reasons in the run")
    assert legend.evaluate("one => one.scrollHeight - one.clientHeight") <= 0, "a line is cut through"
    assert box_of(page.locator("#view"))["y"] <= 270
    page.get_by_role("tab", name="Overview").click()
    foot = page.locator(".tracks-foot")
    expect(foot).to_contain_text("Times count from")
    expect(foot.get_by_text(re.compile("W A S D"))).to_be_hidden()


def test_the_strip_and_what_is_below_it_have_one_axis(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, state="tab=requests")
    canvas = box_of(page.locator(".lanes canvas"))
    strip = box_of(page.locator(".strip-run"))
    assert abs(strip["x"] - (canvas["x"] + 270)) <= 1
    assert abs(strip["x"] + strip["width"] - (canvas["x"] + canvas["width"])) <= 1
    page.get_by_role("tab", name="Timeline").click()
    page.get_by_role("button", name="Fit").click()
    picture = box_of(page.locator(".tracks-ground"))
    strip = box_of(page.locator(".strip-run"))
    assert abs(strip["x"] - (picture["x"] + 136)) <= 1
    assert abs(strip["x"] + strip["width"] - (picture["x"] + picture["width"] - 12)) <= 1


def test_what_is_no_link_does_not_look_like_one(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace)
    colours = page.evaluate(
        "[...document.querySelectorAll('.token:is(.policy, .gpu, .model)')].map((one) => getComputedStyle(one).color)"
    )
    assert len(colours) == 3
    assert len(set(colours)) == 1


def test_names_end_with_a_mark_where_they_are_cut(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, state="tab=timeline&step=40")
    names = page.locator(".stood-before .id")
    names.first.wait_for()
    assert set(names.evaluate_all("all => all.map((one) => getComputedStyle(one).display)")) == {"block"}
