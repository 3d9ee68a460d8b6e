"""The site of the documents, opened as files, as `make site` says: it fits 1280 pixels and can be searched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

REPO = Path(__file__).resolve().parents[2]
WIDER_THAN_THEIR_PLACE = """() =>
    [...document.querySelectorAll(".md-typeset pre > code, .md-typeset table:not([class])")]
    .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.textContent.slice(0, 200))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocstrings", reason="`make site` installs the tools of the site")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=REPO, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return folder


@pytest.fixture
def page(browser: Browser) -> Page:
    return browser.new_page(viewport={"width": 1280, "height": 900})


def test_code_and_tables_fit(site: Path, page: Page) -> None:
    """Without the theme's scripts, which cost most: a table is as wide without the frame that they put around it."""
    page.route("**/*.js", lambda route: route.abort())
    pages = [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]
    assert len(pages) > 50
    for path in pages:
        page.goto(path.as_uri())
        assert page.evaluate(WIDER_THAN_THEIR_PLACE) == [], path.name


def test_the_front_page_says_what_it_is_and_asks_ten_questions(site: Path, page: Page) -> None:
    page.goto((site / "index.html").as_uri())
    expect(page.locator("article p").first).to_contain_text(
        "the scheduler and the KV-cache manager of an LLM serving engine"
    )
    expect(page.locator("article table").first.locator("tbody tr")).to_have_count(10)


def test_files_are_searched_without_a_server(site: Path, page: Page) -> None:
    elsewhere: list[str] = []
    page.on("request", lambda request: None if request.url.startswith("file:") else elsewhere.append(request.url))
    page.goto((site / "tasks" / "stuck.html").as_uri())
    field = page.locator("input.md-search__input")
    expect(field).to_be_visible(timeout=60_000)
    # Key by key, as people type: the page's script looks at the field when a key is released, not when a value is set.
    field.click()
    field.press_sequentially("watermark")
    expect(page.locator(".md-search-result__item").first).to_be_visible(timeout=60_000)
    assert elsewhere == []
