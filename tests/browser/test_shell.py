"""The frame: tabs, filter, minimap, help, address, colours."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import SMALL_LAST, SMALL_STEPS, settled, until

from tokenyard.explain.report.summary import summarize
from tokenyard.trace.reader import TraceReader

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]


@pytest.fixture
def page(open_files: Open, small_trace: Path) -> Page:
    return open_files(small_trace)


def filter_by(page: Page, text: str, says: str) -> None:
    """Type a filter, and wait for what is said about it."""
    page.get_by_label("Filter", exact=True).fill(text)
    expect(page.locator("#filter-state")).to_contain_text(says)


def test_header_names_the_run(page: Page) -> None:
    tokens = page.get_by_role("list", name="About this run").inner_text()
    for shown in (
        "FCFS",
        "H100",
        "KV:186blk(0.4GB)",
        "9 jobs",
        f"({SMALL_STEPS})",
        "maxRun:5",
        " requests",
        " records",
    ):
        assert shown in tokens
    expect(page.locator(".token.source")).to_have_text("sched_trace.fcfs.steps.jsonl")


def test_filter_by_step_reason_and_job(page: Page, small_trace: Path) -> None:
    steps = list(TraceReader(small_trace).steps())
    budget = sum(step.outcome is not None and step.outcome.reason == "token_budget" for step in steps)
    present = sum(
        "agent_03" in {*(step.snapshot.running_job_ids or ()), *(step.snapshot.waiting_job_ids or ())}
        for step in steps
        if step.snapshot is not None
    )
    filter_by(page, "step:10..19", "10 steps")
    filter_by(page, "reason:token_budget", f"{budget} steps")
    filter_by(page, "job:agent_03", f"{present} steps")
    filter_by(page, "job:agent_03 step:..0", "0 steps")
    expect(page.get_by_text("No step passes the filter")).to_be_visible()
    page.get_by_label("Filter", exact=True).fill("step:x")
    expect(page.locator("#filter-note")).to_contain_text("is not understood")


def test_moving_keeps_to_what_passes_the_filter(page: Page) -> None:
    filter_by(page, "step:30..31", "2 steps")
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    page.keyboard.press(".")
    expect(page.locator("aside h2")).to_have_text("Step 30")
    page.keyboard.press(".")
    page.keyboard.press(".")
    expect(page.locator("aside h2")).to_have_text("Step 31")
    expect(page.locator(".announcement")).to_contain_text("No later step passes the filter")


def test_legend_leads_to_the_next_such_step(page: Page) -> None:
    legend = page.get_by_role("list", name="Reasons in the run")
    legend.get_by_role("button", name=re.compile(r"and \d+ others?")).click()
    legend.get_by_role("button", name="preempted_this_step").click()
    expect(page.locator(".reason-name strong")).to_have_text("preempted_this_step")


def test_legend_says_of_what_its_shares_are_and_opens_the_rest(page: Page) -> None:
    legend = page.get_by_role("list", name="Reasons in the run")
    expect(legend.locator(".legend-words")).to_have_text("% of the time; time lost")
    expect(legend.locator(".blocked-item").first).to_contain_text(re.compile(r"lost, (?:worst )?since [\d.]+ s$"))
    expect(legend).to_contain_text("recorded:")
    before = legend.locator(".legend-item").count()
    more = legend.get_by_role("button", name=re.compile(r"and \d+ others?"))
    others = int(re.search(r"\d+", more.inner_text())[0])  # type: ignore[index]
    more.focus()
    page.keyboard.press("Enter")
    expect(legend.locator(".legend-item")).to_have_count(before + others)
    expect(legend).to_contain_text("reconstructed:")
    legend.get_by_role("button", name="fewer").click()
    expect(legend.locator(".legend-item")).to_have_count(before)


def test_the_keys_select_a_range_of_steps(page: Page) -> None:
    page.keyboard.press("g")
    page.keyboard.type("20")
    page.keyboard.press("Enter")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowDown")
    expect(page.locator(".selected")).to_contain_text(re.compile(r"selected: 20\D23 \(4\)"))
    page.keyboard.press("Shift+ArrowUp")
    expect(page.locator(".selected")).to_contain_text(re.compile(r"selected: 20\D22 \(3\)"))
    expect(page.locator("aside h2")).to_have_text("Step 22")


def test_a_step_that_the_filter_hides_is_said_and_has_no_frame(page: Page) -> None:
    filter_by(page, "step:30..31", "2 steps")
    pixels = "document.querySelector('.stage canvas').toDataURL()"
    page.keyboard.press("Escape")
    page.mouse.move(5, 5)
    settled(page, pixels, 200)
    before = page.evaluate(pixels)
    page.keyboard.press("g")
    page.keyboard.type("50")
    page.keyboard.press("Enter")
    expect(page.locator(".hidden-step")).to_have_text("step 50 does not pass the filter")
    page.get_by_role("button", name="Close the panel").click()
    expect(page.locator(".hidden-step")).to_be_empty()
    settled(page, pixels, 200)
    assert page.evaluate(pixels) == before


def test_going_to_a_step_stays_in_the_lanes(page: Page) -> None:
    page.keyboard.press("3")
    page.locator(".requests canvas").first.wait_for()
    page.keyboard.press("g")
    page.keyboard.type("20")
    page.keyboard.press("Enter")
    expect(page.locator("aside h2")).to_have_text("Step 20")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Requests")
    page.get_by_role("button", name="Table").click()
    page.keyboard.press("g")
    page.keyboard.type("21")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Timeline")
    expect(page.locator(".announcement")).to_have_text(
        "The table of requests shows no single step: this is the Timeline"
    )


def test_a_drag_in_the_strip_selects_and_shows_even_with_the_whole_run_in_view(page: Page) -> None:
    page.get_by_role("combobox", name="axis").select_option("steps")
    page.keyboard.press("f")
    box = page.locator(".strip-run").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 20, steps=4)
    page.mouse.up()
    for label, share in (("Start", 0.5), ("End", 0.75)):
        at = round(share * SMALL_LAST)
        expect(page.get_by_label(label)).to_have_value(re.compile(f"^({at - 1}|{at}|{at + 1})$"))
    expect(page.locator(".selected")).to_contain_text("selected: 5")
    expect(page.get_by_role("list", name="Reasons in the selection")).to_be_visible()
    brush = page.get_by_role("slider", name="Steps in view")
    brush.focus()
    before = brush.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowLeft")
    expect(brush).not_to_have_attribute("aria-valuetext", before)


def test_what_frames_the_view_takes_at_most_a_seventh_of_the_screen(open_files: Open, small_trace: Path) -> None:
    """15 % of 900 pixels, on every tab, and of 1280 pixels in width as well."""
    for width in (1440, 1280):
        page = open_files(small_trace, viewport={"width": width, "height": 900})
        for key, view in enumerate((".overview", ".timeline", ".requests", ".statistics", ".compare"), 1):
            page.keyboard.press(str(key))
            page.locator(view).wait_for()
            box = page.locator(view).bounding_box()
            assert box is not None
            assert (width, view, box["y"] <= 135) == (width, view, True), box


def test_on_a_phone_controls_are_high_enough_for_fingers(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    low = """[...document.querySelectorAll('.run :is(button, input, select)')]
      .filter(one => one.offsetHeight > 0 && one.offsetHeight < 32).map(one => one.outerHTML)"""
    assert page.evaluate(low) == []
    cut = """[...document.querySelectorAll('.heads > div, .token')]
      .filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"""
    assert page.evaluate(cut) == []


def test_on_a_phone_a_finger_moves_the_rows_and_a_tap_opens_one(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    shown, box = page.get_by_role("slider", name="Steps in view"), page.locator(".stage").bounding_box()
    assert box is not None
    x, y = box["x"] + 100, box["y"] + box["height"] - 40
    before = shown.get_attribute("aria-valuetext")
    device = page.context.new_cdp_session(page)
    for kind, up in (("touchStart", 0), ("touchMove", 40), ("touchMove", 120), ("touchEnd", None)):
        points = [] if up is None else [{"x": x, "y": y - up}]
        device.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    expect(shown).not_to_have_attribute("aria-valuetext", before or "")
    until(page, "location.hash.includes('view=')")
    assert "sel=" not in page.url
    expect(page.locator("aside h2")).to_have_count(0)
    page.touchscreen.tap(x, y - 100)
    expect(page.locator("aside h2")).to_contain_text("Step")


def test_on_a_phone_the_legend_says_since_when_without_a_swipe_sideways(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    legend = page.get_by_role("list", name="Reasons in the run")
    assert legend.evaluate("one => one.scrollWidth <= one.clientWidth")
    first = legend.locator(".blocked-item .number").first
    expect(first).to_contain_text("since")
    expect(first).to_be_in_viewport(ratio=1)


def test_tabs_by_key_and_by_arrow(page: Page) -> None:
    page.keyboard.press("4")
    until(page, "document.activeElement.id === 'view'")  # Tab goes on from there
    selected = page.get_by_role("tab", selected=True)
    expect(selected).to_have_text("Statistics")
    selected.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Compare")
    page.keyboard.press("2")
    expect(page.get_by_role("grid", name="Steps of the run")).to_be_visible()


def test_help_opens_and_closes(page: Page) -> None:
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("next, previous step with the same reason")
    for word in ("skip-run", "cached:132b", "hit:11/30(37%)", "j0018, t3", "minNeed", "under-capacity", "Touch:"):
        expect(dialog).to_contain_text(word)
    dialog.evaluate("one => one.scrollTop = one.scrollHeight")
    expect(dialog.get_by_role("button", name="Close the help")).to_be_in_viewport()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")  # it vanishes a moment before the page knows that it closed
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Filter"


def test_keys_of_one_letter_can_be_turned_off(page: Page) -> None:
    """WCAG 2.1.4; the address keeps it, and keys with names go on."""
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_role("checkbox", name="Keys of one letter act").uncheck()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    until(page, "location.hash.includes('keys=off')")
    for key in ("4", "?", "/", "w"):
        page.keyboard.press(key)
    expect(page.get_by_role("tab", selected=True)).to_have_text("Timeline")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("grid", name="Steps of the run").focus()
    page.keyboard.press("Home")
    until(page, "location.hash.includes('step=0')")
    page.get_by_role("button", name="Help: keys and filter").click()
    page.get_by_role("dialog").get_by_role("checkbox", name="Keys of one letter act").check()
    until(page, "!location.hash.includes('keys=off')")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("4")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Statistics")


def test_the_address_holds_the_state(page: Page, open_files: Open, small_trace: Path) -> None:
    page.keyboard.press("g")
    page.keyboard.type("42")
    page.keyboard.press("Enter")
    page.get_by_role("toolbar", name="Running").locator("button").first.click()
    filter_by(page, "step:40..60", "21 steps")
    page.get_by_role("button", name="Dark colours").click()
    expect(page).to_have_url(re.compile(r"filter="))
    state = re.sub(r"^[^#]*#", "", page.url)
    again = open_files(small_trace, state=state)
    again.locator("aside h2", has_text="Step 42").wait_for()
    expect(again.get_by_role("region", name="Request")).to_be_visible()
    expect(again.get_by_label("Filter", exact=True)).to_have_value("step:40..60")
    assert "theme" not in state, "what one likes to look at is not the reader's"
    for part in ("step=42", "req=", "view="):
        assert part in state


def test_colours_follow_the_system_until_one_is_chosen(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, color_scheme="dark")
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "dark"
    page.get_by_role("button", name="Light colours").click()
    assert page.evaluate(theme) == "light"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(theme) == "light"
    page.reload()
    assert page.evaluate(theme) == "light", "it is kept"


def test_a_link_does_not_choose_the_colours_of_its_reader(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, state="step=42&theme=dark", color_scheme="light")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_an_unknown_key_names_the_known_ones(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace)
    tabs = page.get_by_role("tablist").bounding_box()
    page.get_by_role("searchbox", name="Filter").fill("bogus:1 step:10..12")
    problem = page.locator(".filter-note.problem")
    problem.wait_for()
    assert problem.inner_text().startswith("bogus is no key. Keys: job, req, reason,")
    assert page.get_by_role("tablist").bounding_box() == tabs


def test_going_beyond_the_end_says_where_it_is(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace)
    last = page.locator(".token.steps").inner_text().split("\N{EN DASH}")[1].split()[0]
    page.keyboard.press("g")
    page.get_by_label("Go to step").fill("99999999")
    page.keyboard.press("Enter")
    page.get_by_text(f"There is no step 99,999,999: the run ends at step {last}").wait_for()
    page.get_by_role("heading", name=f"Step {last}", exact=True).wait_for()


def test_an_interrupted_trace_is_called_partial(open_files: Open, small_trace: Path, tmp_path: Path) -> None:
    (steps,) = small_trace.glob("*.steps.jsonl")
    data = steps.read_bytes()
    (tmp_path / "killed.steps.jsonl").write_bytes(data[: len(data) // 2])
    token = open_files(tmp_path / "killed.steps.jsonl").get_by_text("partial", exact=True)
    expect(token).to_have_attribute("title", str(summarize(tmp_path).header.partial))
    expect(open_files(small_trace).get_by_text("partial", exact=True)).to_have_count(0)
