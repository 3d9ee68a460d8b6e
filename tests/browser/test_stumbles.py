"""What those stumbled over who saw the page for the first time: filters, lists, lanes, and what jumped or was cut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import ARRIVED_MS, SCREENS, SECOND, faults, settled

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]

TABS = ("Overview", "Timeline", "Requests", "Statistics", "Compare")


def records(trace: Path, event: str) -> Iterator[dict[str, Any]]:
    lines = map(json.loads, next(trace.glob("*.steps.jsonl")).read_text().splitlines())
    yield from (record for record in lines if record["event"] == event)


def opened(open_files: Open, trace: Path, state: str = "", **options: Any) -> Page:
    page = open_files(trace, state=f"tab=overview{state}", **options)
    page.locator(".overview[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    return page


def test_a_filter_that_is_not_applied_says_so(open_files: Open, two: Path) -> None:
    """A link with a filter opened on figures of all requests, under a filter that was set."""
    page = opened(open_files, two, state="&filter=output:256..")
    for tab in ("Overview", "Statistics", "Compare"):
        page.get_by_label("Filter", exact=True).fill("output:256..")
        page.get_by_role("tab", name=tab).click()
        says_so(page, tab)


def says_so(page: Page, tab: str) -> None:
    """On a tab whose figures are of all requests: where the filter is applied, and how it is removed."""
    note = page.locator(".filter-note")
    expect(note).to_contain_text("The filter is not applied here: figures are of all requests of the run")
    note.get_by_role("button", name="its requests").click()
    expect(page.get_by_role("tab", selected=True)).to_have_text("Requests")
    expect(page.locator(".requests-bar [role=status]")).to_contain_text(re.compile(r"\d+ of \d+ lanes"))
    expect(note).not_to_contain_text("not applied")
    page.get_by_role("tab", name=tab).click()
    note.get_by_role("button", name="its steps").click()
    expect(page.get_by_role("tab", selected=True)).to_have_text("Timeline")
    page.get_by_role("tab", name=tab).click()
    note.get_by_role("button", name="remove it").click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value("")
    expect(note).to_have_text("")


def test_who_waited_are_those_who_waited_in_the_stretch(open_files: Open, two: Path) -> None:
    """Requests were among them that had waited for the same before the stretch, and ran in it."""
    moments = {record["step"]: record["ts"] for record in records(two, "step_snapshot")}
    ends = [
        (record["first_scheduled_time"], record["finished_time"], record["arrival_time"])
        for record in records(two, "request_finished")
        if record["arrival_time"] > SECOND
    ]
    # A step from which on nobody new waits, and in which many run who had waited.
    waited = sorted(scheduled for scheduled, _, arrived in ends if scheduled - arrived > 0.5)
    middle = waited[len(waited) // 2]
    first = min(step for step, ts in moments.items() if ts > middle)
    page = open_files(two, state=f"tab=requests&sel={first}..{first}&filter=reason:max_num_seqs")
    status = page.locator(".requests-bar [role=status]")
    expect(status).to_contain_text("held back in the selection")
    settled(page, "document.querySelector('.requests-bar [role=status]').innerText")
    shown = re.match(r"(\d+) of", status.inner_text())
    assert shown
    held = [r for r in records(two, "admission_outcome") if r["step"] == first]
    assert int(shown[1]) == held[0]["num_requests"]
    had = sum(1 for scheduled, end, arrived in ends if scheduled - arrived > 0.5 and arrived < moments[first] < end)
    assert int(shown[1]) < had


def test_a_link_to_requests_shows_their_first(open_files: Open, two: Path) -> None:
    """The table opened where it had been left, which is the middle of another list."""
    page = opened(open_files, two)
    page.get_by_role("tab", name="Requests").click()
    page.get_by_role("button", name="Table", exact=True).click()
    table = page.locator(".request-table")
    table.locator("tbody tr").first.wait_for()
    page.mouse.move(600, 500)
    page.mouse.wheel(0, 4_000)
    page.wait_for_timeout(300)
    assert table.evaluate("one => one.scrollTop") > 1_000
    page.get_by_role("button", name="Groups", exact=True).click()
    page.get_by_label("group by").select_option("tenant")
    page.locator(".group-table tbody button").first.click()
    table.locator("tbody tr").first.wait_for()
    settled(page, "document.querySelector('.request-table tbody tr').ariaRowIndex", quiet=600)
    assert table.evaluate("one => one.scrollTop") == 0
    assert table.locator("tbody tr").first.get_attribute("aria-rowindex") == "2"


def test_lanes_say_what_the_filter_is_about(open_files: Open, pressed: Path) -> None:
    """A lane had an id and a time: not whose it was."""
    drawn = """() => {
        window.drawn = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
            window.drawn.push(text);
            return write.call(this, text, ...rest);
        };
    }"""
    page = open_files(pressed, state="tab=requests")
    page.get_by_role("listbox").wait_for()
    page.evaluate(drawn)
    field = page.get_by_label("Filter", exact=True)
    for text, head, seen in (
        ("", "request · adapter · waited", r"^sql · "),
        ("prompt:100..", "request · prompt · waited", r"^200 tok · "),
        ("priority:3", "request · priority · waited", r"^priority 3 · "),
    ):
        page.evaluate("window.drawn = []")
        field.fill(f"{text} ")
        page.wait_for_timeout(700)
        page.mouse.move(300, 400)
        page.mouse.move(310, 410)
        page.wait_for_timeout(200)
        words = page.evaluate("window.drawn")
        assert head in words, (text, set(words))
        assert [word for word in words if re.search(seen, word)], (text, set(words))
    canvas = page.locator(".lanes canvas").bounding_box()
    assert canvas is not None
    page.mouse.move(canvas["x"] + 20, canvas["y"] + 35)
    expect(page.locator(".lane-tip")).to_contain_text("prompt 300, answer 40")
    expect(page.locator(".requests-bar [role=status]")).to_contain_text("one per request")


def test_the_tabs_stay_where_they_are(open_files: Open, two: Path) -> None:
    """They went down by 70 pixels when one left the Overview."""
    page = opened(open_files, two)
    tabs = page.get_by_role("tablist")
    places = []
    for name in TABS:
        page.get_by_role("tab", name=name).click()
        places.append(tabs.bounding_box())
    assert all(place == places[0] for place in places)


@pytest.mark.parametrize("width", [390, 1280])
def test_no_placeholder_is_cut(open_files: Open, two: Path, width: int) -> None:
    page = opened(open_files, two, viewport={"width": width, "height": 800})
    cut = page.evaluate(
        """() => [...document.querySelectorAll("input[placeholder]")].filter((one) => {
            const pen = document.createElement("canvas").getContext("2d");
            const style = getComputedStyle(one);
            pen.font = style.font;
            const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
            return pen.measureText(one.placeholder).width > room;
        }).map((one) => one.placeholder)"""
    )
    assert cut == []


def test_the_strip_keeps_its_label_with_a_selection(open_files: Open, two: Path) -> None:
    page = open_files(two, state="tab=timeline&sel=100..400")
    words = page.locator(".legend-words")
    expect(words).to_have_text("in the selection")
    expect(words).to_be_visible()
    page.get_by_role("button", name="Clear the selection", exact=True).click()
    expect(words).to_contain_text("% of the time")


def test_an_axis_on_a_phone_has_several_marks(open_files: Open, two: Path) -> None:
    page = open_files(two, state="tab=overview", viewport={"width": 390, "height": 844})
    page.locator(".overview[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    page.evaluate(
        """() => {
            window.marks = new Set();
            const write = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
                if (/^[0-9:.]+ ?s?$/.test(text)) window.marks.add(text);
                return write.call(this, text, ...rest);
            };
        }"""
    )
    page.get_by_role("button", name="Dark colours").click()
    page.wait_for_timeout(300)
    marks = page.evaluate("[...window.marks]")
    assert len([mark for mark in marks if mark.endswith("s") or ":" in mark]) >= 3, marks


def test_the_table_of_compare_scrolls_with_the_page(open_files: Open, two: Path, tmp_path: Path) -> None:
    """It was a box that scrolled by itself within a page that scrolls."""
    page = opened(open_files, two)
    page.get_by_role("tab", name="Compare").click()
    source = next(two.glob("*.steps.jsonl"))
    (tmp_path / source.name).write_bytes(source.read_bytes())
    page.set_input_files("#view [data-picker=files]", [tmp_path / source.name])
    table = page.get_by_role("region", name="side by side").locator("table")
    lines = table.locator("tbody tr")
    expect(lines).to_have_count(20, timeout=ARRIVED_MS)
    page.get_by_role("button", name="180 more").click()
    expect(lines).to_have_count(200)
    inner = "one => [...one.querySelectorAll('*'), one].filter((each) => each.scrollHeight > each.clientHeight + 2"
    inner += " && /auto|scroll/.test(getComputedStyle(each).overflowY)).length"
    assert page.get_by_role("region", name="side by side").evaluate(inner) == 0
    lines.nth(100).scroll_into_view_if_needed()
    expect(table.locator("thead th").first).to_be_in_viewport()


@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_beside_a_filter_and_a_selection(open_files: Open, two: Path, axe: str, screen: str) -> None:
    fits = "document.documentElement.scrollWidth <= innerWidth"
    page = opened(open_files, two, state="&filter=output:256..&sel=100..900", **SCREENS[screen])
    for name in TABS:
        page.get_by_role("tab", name=name).click()
        settled(page, "document.getElementById('view').innerText.length")
        assert (name, faults(page, axe), page.evaluate(fits)) == (name, [], True)


def test_a_picture_that_is_moved_computes_no_verdict_anew(open_files: Open, two: Path) -> None:
    page = opened(open_files, two)
    for _ in range(3):
        page.keyboard.press("w")
    page.wait_for_timeout(500)
    page.evaluate(
        """() => {
            window.busy = 0;
            const watch = new MutationObserver(() => window.busy += 1);
            watch.observe(document.querySelector(".overview"), {attributes: true, attributeFilter: ["aria-busy"]});
        }"""
    )
    before = page.url
    for key in "dddaaa":
        page.keyboard.press(key)
        page.wait_for_timeout(150)
    settled(page)
    assert page.url != before or page.evaluate("location.hash.includes('zoom=')")
    assert page.evaluate("window.busy") == 0
