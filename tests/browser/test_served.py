"""What the page gets from `tokenyard view`: the list, a path, requests on demand, steps as they are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from tests.browser.conftest import SMALL_LAST, SMALL_STEPS, settled

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

STEPS = "sched_trace.fcfs.steps.jsonl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, small_trace: Path, long_trace: Path) -> Path:
    """Two traces of unlike GPUs, and half of a third one."""
    root = tmp_path_factory.mktemp("served")
    shutil.copytree(small_trace, root / "beta_h100")
    shutil.copytree(long_trace, root / "alpha_a100")
    return root


@pytest.fixture(scope="module")
def address(folder: Path, viewer_html: Path) -> Iterator[str]:
    """A server of its own, on a free port."""
    command = [sys.executable, "-m", "tokenyard.cli.main", "view", str(folder), "--no-browser", "--port", "0"]
    environment = {"TOKENYARD_VIEWER_HTML": str(viewer_html)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    assert server.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
    assert found is not None
    yield found[0]
    server.terminate()
    server.communicate(timeout=10)


@pytest.fixture
def landing(new_page: Callable[..., Page], address: str) -> Page:
    page = new_page()
    page.goto(address)
    page.get_by_role("button", name="Read the list again").wait_for()
    return page


def names(page: Page) -> list[str]:
    return page.locator(".browse tbody th").all_inner_texts()


def test_the_list_can_be_sorted_and_filtered(landing: Page) -> None:
    expect(landing.locator(".browse tbody tr")).to_have_count(2)
    landing.get_by_role("button", name="Name").click()
    assert [name.split("_")[0] for name in names(landing)] == ["alpha", "beta"]
    landing.get_by_role("button", name="Name").click()
    assert [name.split("_")[0] for name in names(landing)] == ["beta", "alpha"]
    landing.get_by_role("button", name="GPU").click()
    expect(landing.get_by_role("button", name="GPU")).to_have_attribute("aria-pressed", "true")
    landing.get_by_label("Filter by name").fill("ALPHA")
    expect(landing.locator(".browse tbody tr")).to_have_count(1)


def test_the_list_says_which_trace_is_partial(landing: Page, folder: Path) -> None:
    rows = landing.locator(".browse tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.get_by_text("partial")).to_have_count(0)
    whole = (folder / "beta_h100" / STEPS).read_bytes()
    killed = folder / "killed" / STEPS
    killed.parent.mkdir()
    killed.write_bytes(whole[: whole.index(b"\n", len(whole) // 2) + 1])
    try:
        landing.get_by_role("button", name="Read the list again").click()
        expect(rows).to_have_count(3)
        expect(rows.filter(has_text="killed").get_by_text("partial", exact=True)).to_be_visible()
        expect(rows.get_by_text("partial")).to_have_count(1)
    finally:
        shutil.rmtree(killed.parent)


def test_the_words_of_a_button_are_in_its_name(landing: Page) -> None:
    """A user who speaks the visible label reaches the control (WCAG 2.5.3)."""
    buttons = landing.locator(".browse tbody .buttons button").all()
    assert len(buttons) >= 3
    for button in buttons:
        assert button.inner_text().lower() in (button.get_attribute("aria-label") or "").lower()


def test_load_reads_the_steps_and_reqs_the_requests_too(landing: Page) -> None:
    tokens = landing.get_by_role("list", name="About this run")
    landing.get_by_role("button", name="Load beta_h100", exact=True).click()
    expect(tokens).to_contain_text(f"({SMALL_STEPS})")
    expect(tokens).not_to_contain_text("records")
    expect(landing.locator(".token.source")).to_have_attribute("title", re.compile("beta_h100/" + STEPS))
    landing.get_by_role("tab", name="Timeline").click()
    landing.get_by_role("button", name="Load another").click()
    landing.get_by_role("button", name="Load beta_h100 with its requests").click()
    expect(tokens).to_contain_text("records")
    expect(landing).to_have_url(re.compile(r"#trace=.*reqs=1"))


def test_its_name_opens_a_trace_with_all_that_there_is_of_it(landing: Page) -> None:
    landing.get_by_role("button", name="beta_h100", exact=True).click()
    expect(landing.get_by_role("list", name="About this run")).to_contain_text("records")


def test_a_path_opens_and_the_address_is_enough_to_come_back(
    landing: Page, new_page: Callable[..., Page], folder: Path
) -> None:
    landing.get_by_label("Path of a trace file").fill(str(folder / "beta_h100" / STEPS))
    landing.get_by_role("button", name="Open", exact=True).click()
    expect(landing.get_by_role("list", name="About this run")).to_contain_text("records")
    landing.keyboard.press("g")
    landing.keyboard.type("30")
    landing.keyboard.press("Enter")
    expect(landing).to_have_url(re.compile(r"step=30"))
    again = new_page()
    again.goto(landing.url)
    expect(again.locator("aside h2").first).to_have_text("Step 30")


def test_a_second_trace_that_is_on_its_way_stays_in_the_address(
    new_page: Callable[..., Page], address: str, folder: Path
) -> None:
    """A reload while it is loading does not lose it."""
    page = new_page()
    held: list[Route] = []
    page.route(re.compile(r"/api/file\?.*alpha"), lambda route: held.append(route))  # noqa: PLW0108 - a builtin is no handler
    first, second = (quote(str(folder / name / STEPS)) for name in ("beta_h100", "alpha_a100"))
    page.goto(f"{address}#trace={first}&with={second}&tab=compare")
    expect(page.get_by_role("list", name="About this run")).to_contain_text(f"({SMALL_STEPS})")
    settled(page)
    assert "alpha" in page.url
    for route in held:
        route.continue_()
    expect(page.get_by_role("button", name="close B")).to_be_visible(timeout=15_000)
    assert "alpha" in page.url


def test_a_path_outside_of_the_folders_is_refused_with_advice(landing: Page) -> None:
    landing.get_by_label("Path of a trace file").fill("/etc/passwd")
    landing.once("console", lambda _: None)
    landing.get_by_role("button", name="Open", exact=True).click()
    alert = landing.get_by_role("alert")
    alert.wait_for()
    expect(landing.get_by_role("button", name="Open the sample")).to_be_visible()


def test_steps_appear_while_they_are_written(new_page: Callable[..., Page], address: str, folder: Path) -> None:
    lines = (folder / "beta_h100" / STEPS).read_text().splitlines(keepends=True)
    growing = folder / "growing_h100"
    growing.mkdir()
    path = growing / STEPS
    cut = next(at for at, line in enumerate(lines) if '"step_snapshot","step":60' in line)
    path.write_text("".join(lines[:cut]))
    page = new_page()
    page.goto(f"{address}#trace={quote(str(path))}&live=1&tab=timeline")
    tokens = page.get_by_role("list", name="About this run")
    expect(tokens).to_contain_text("(60)")
    expect(page.locator(".live")).to_contain_text("following")
    page.keyboard.press("f")
    with path.open("a") as file:
        file.write("".join(lines[cut:]))
    expect(tokens).to_contain_text(f"({SMALL_STEPS})", timeout=15_000)
    expect(page.get_by_label("End", exact=True)).to_have_value(str(SMALL_LAST))
    expect(page.get_by_role("slider", name="Steps in view")).to_have_attribute("aria-valuemax", str(SMALL_LAST))


def rising(folder: Path, source: Path, until: int) -> tuple[Path, list[str], list[str]]:
    """A trace that is written up to a step; what is still to come of its steps and of its request records."""
    folder.mkdir()
    rest: list[list[str]] = []
    for kind, mark in (("steps", f'"step_snapshot","step":{until}'), ("requests", f'"step":{until},')):
        name = f"sched_trace.fcfs.{kind}.jsonl"
        lines = (source / name).read_text().splitlines(keepends=True)
        cut = next(at for at, line in enumerate(lines) if mark in line)
        (folder / name).write_text("".join(lines[:cut]))
        rest.append(lines[cut:])
    return folder / STEPS, rest[0], rest[1]


def add(path: Path, lines: list[str]) -> None:
    with path.open("a") as file:
        file.write("".join(lines))


def test_the_end_stays_in_view_until_one_scrolls_away(
    new_page: Callable[..., Page], address: str, folder: Path
) -> None:
    path, steps, requests = rising(folder / "rising_h100", folder / "beta_h100", 60)
    page = new_page()
    page.goto(f"{address}#trace={quote(str(path))}&reqs=1&live=1&tab=timeline")
    end, sticks = page.get_by_label("End", exact=True), page.get_by_label("keep the end in view")
    expect(end).to_have_value("59")
    expect(sticks).to_be_checked()
    half = next(at for at, line in enumerate(steps) if '"step_snapshot","step":90' in line)
    add(path.with_name(path.name.replace("steps", "requests")), requests)
    add(path, steps[:half])
    expect(end).to_have_value("89", timeout=15_000)
    expect(page.get_by_role("list", name="About this run")).to_contain_text("records")
    page.keyboard.press("End")
    expect(sticks).to_be_checked()
    expect(page.locator("aside h2")).to_have_count(0)  # it would be of a step that is not the last for long
    page.keyboard.press(".")
    page.get_by_role("button", name="rows of this step").click()
    page.get_by_role("toolbar", name="Running").locator("button").first.click()
    expect(page.get_by_role("region", name="Request", exact=True)).to_contain_text("num_computed_tokens")
    page.keyboard.press("Home")
    expect(sticks).not_to_be_checked()
    add(path, steps[half:])
    expect(page.get_by_role("list", name="About this run")).to_contain_text(f"({SMALL_STEPS})", timeout=15_000)
    expect(page.get_by_label("Start", exact=True)).to_have_value("0")
    sticks.check()
    expect(end).to_have_value(str(SMALL_LAST))


def test_a_trace_that_is_still_written_can_be_followed_from_its_page(
    new_page: Callable[..., Page], address: str, folder: Path
) -> None:
    path, steps, requests = rising(folder / "later_h100", folder / "beta_h100", 60)
    page = new_page()
    page.goto(f"{address}#trace={quote(str(path))}&tab=timeline")
    page.get_by_role("button", name="follow", exact=True).click()
    expect(page.locator(".live")).to_contain_text("following")
    expect(page).to_have_url(re.compile("live=1"))
    add(path.with_name(path.name.replace("steps", "requests")), requests)
    add(path, steps)
    expect(page.get_by_label("End", exact=True)).to_have_value(str(SMALL_LAST), timeout=15_000)
    expect(page.get_by_role("button", name="follow", exact=True)).to_have_count(0)


def test_a_watched_run_counts_its_end_and_says_when_it_fell_silent(
    new_page: Callable[..., Page], address: str, folder: Path
) -> None:
    """As `tokenyard watch` opens it: live, on the Overview, its last seconds; the address follows."""
    path, _, _ = rising(folder / "watched_h100", folder / "beta_h100", 60)
    page = new_page()
    page.goto(f"{address}#trace={quote(str(path))}&live=1&tab=overview&last=1")
    verdict = page.get_by_role("status", name="Verdict")
    expect(verdict).to_contain_text("Of the last 1", timeout=15_000)
    expect(page.locator(".live-silent")).to_contain_text(re.compile(r"last step \d+ s ago"), timeout=15_000)
    page.get_by_role("tab", name="Statistics").click()
    expect(page).to_have_url(re.compile("(?=.*live=1)(?=.*tab=statistics)(?=.*last=1)"))
    page.get_by_role("tab", name="Overview").click()
    verdict.get_by_role("button", name="whole run").click()
    expect(verdict).not_to_contain_text("Of the last")


def test_an_empty_file_is_waited_for(new_page: Callable[..., Page], address: str, folder: Path) -> None:
    coming = folder / "coming_h100"
    coming.mkdir()
    path = coming / STEPS
    path.write_text("")
    page = new_page()
    page.goto(f"{address}#trace={quote(str(path))}&live=1&tab=timeline")
    expect(page.get_by_role("status", name="Loading")).to_contain_text("waiting for the first one")
    path.write_text((folder / "beta_h100" / STEPS).read_text())
    expect(page.get_by_role("list", name="About this run")).to_contain_text(f"({SMALL_STEPS})", timeout=15_000)
    expect(page.locator(".live")).to_contain_text("following")


def test_a_reload_and_back_show_the_same_page(landing: Page) -> None:
    landing.get_by_role("button", name="Load beta_h100 with its requests").click()
    expect(landing.get_by_role("list", name="About this run")).to_contain_text("records")
    landing.keyboard.press("w")
    landing.keyboard.press("d")
    landing.keyboard.press("g")
    landing.keyboard.type("40")
    landing.keyboard.press("Enter")
    expect(landing).to_have_url(re.compile("step=40"))
    settled(landing)
    for _ in range(2):
        before = landing.url
        landing.reload()
        expect(landing.locator("aside h2").first).to_have_text("Step 40")
        settled(landing)
        assert landing.url == before
    landing.go_back()
    expect(landing.locator("aside h2")).to_have_count(0)
    landing.go_back()
    expect(landing.get_by_role("button", name="Read the list again")).to_be_visible()
