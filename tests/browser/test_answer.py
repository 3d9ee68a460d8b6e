"""What is wrong, on the page: the words of the terminal, asked of the server or held by a page that was exported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from tests.browser.conftest import ARRIVED_MS, faults
from tests.support.bare import Engine, Turn, write_bare
from tests.unit.explain.test_bare import chat

import tokenyard as ty
from tokenyard.explain.export import answer_within
from tokenyard.trace.export.page import embed
from tokenyard.trace.reader import find_trace

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

FLOOD = [Turn(20 + i / 8, f"zeta_{i:04}", 5000, 8) for i in range(80)]


@pytest.fixture(scope="module")
def flood(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of another emitter, without reasons, in which one user floods the engine for a while."""
    folder = tmp_path_factory.mktemp("flood")
    write_bare(folder, Engine(), chat(3, until=60) + FLOOD, 60)
    return next(folder.iterdir())


@pytest.fixture(scope="module")
def address(flood: Path, viewer_html: Path) -> Iterator[str]:
    """A server of its own, on a free port."""
    command = [sys.executable, "-m", "tokenyard.cli.main", "view", str(flood.parent), "--no-browser", "--port", "0"]
    environment = {"TOKENYARD_VIEWER_HTML": str(viewer_html)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)
    assert server.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())
    assert found is not None
    yield found[0]
    server.terminate()
    server.communicate(timeout=10)


def verdict(page: Page) -> Locator:
    return page.get_by_role("status", name="Verdict")


@pytest.fixture
def served(new_page: Callable[..., Page], address: str, flood: Path) -> Page:
    page = new_page()
    page.goto(f"{address}#trace={quote(str(flood), safe='')}&tab=overview")
    page.locator(".overview[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    return page


def test_the_served_page_says_what_the_terminal_says(served: Page, flood: Path) -> None:
    answer = ty.answer(flood)
    assert "Jobs zeta... took" in answer.sentence
    expect(verdict(served).locator("strong").first).to_have_text(answer.sentence)
    remedies = served.get_by_role("list", name="What would help").get_by_role("listitem")
    assert [text.partition(" (not tried)")[0] for text in remedies.all_inner_texts()] == [
        each.title for each in answer.remedies
    ]


def test_a_cause_leads_to_its_steps_and_they_are_asked_about(served: Page, flood: Path) -> None:
    with served.expect_request(re.compile("/api/answer.*from=")) as asked:
        verdict(served).get_by_role("button", name="held back: its steps").click()
    expect(verdict(served)).to_contain_text("Of the selection: Requests waited")
    query = parse_qs(urlsplit(asked.value.url).query)
    first, last = int(query["from"][0]), int(query["to"][0])
    whole, part = ty.answer(flood), ty.answer(flood, first_step=first, last_step=last)
    moments = {each["step"]: each["ts"] for each in map(json.loads, flood.read_text("utf-8").splitlines())}
    assert (moments[first], moments[last]) == pytest.approx((whole.since_ts, whole.until_ts), abs=0.2)
    expect(verdict(served).locator("strong").first).to_have_text(part.sentence)


def test_axe_finds_nothing_in_it(served: Page, axe: str) -> None:
    assert faults(served, axe, ("light", "dark")) == []


def test_a_cause_leads_to_the_requests_that_it_names(served: Page) -> None:
    verdict(served).get_by_role("button", name="its requests").click()
    expect(served.get_by_role("searchbox")).to_have_value('user:"zeta"')


def test_a_page_to_mail_holds_it(new_page: Callable[..., Page], viewer_html: Path, flood: Path, tmp_path: Path) -> None:
    files = find_trace(flood)
    with (tmp_path / "mailed.html").open("wb") as out:
        embed(viewer_html.read_text("utf-8"), files, out, state="tab=overview", answer=answer_within(files))
    page = new_page()
    page.goto((tmp_path / "mailed.html").as_uri())
    expect(verdict(page).locator("strong").first).to_have_text(ty.answer(flood).sentence, timeout=ARRIVED_MS)


def test_a_file_that_is_dropped_alone_says_how_to_get_it(open_files: Callable[..., Page], flood: Path) -> None:
    page = open_files(flood, state="tab=overview")
    expect(verdict(page)).to_contain_text("tokenyard report TRACE, or open it with tokenyard view")
    expect(page.get_by_role("heading", name="What requests waited for")).to_be_visible()
