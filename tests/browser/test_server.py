"""The page and its server fit together: the printed address, every packing, notes, Ctrl-C."""

from __future__ import annotations

import gzip
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from tests.browser.conftest import ARRIVED_MS, until
from tests.integration.command import environment

from tokenyard.explain.report.summary import summarize
from tokenyard.trace.convert import convert

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

NewPage = Callable[..., "Page"]


HIDDEN = "import sys; sys.modules |= dict.fromkeys({!r}); from tokenyard.cli.main import main; sys.exit(main())"


@contextmanager
def served(path: Path, viewer_html: Path, hidden: tuple[str, ...] = ()) -> Iterator[str]:
    """The address that `tokenyard view` prints; `hidden`: packages that this Python has not."""
    start = ["-c", HIDDEN.format(hidden)] if hidden else ["-m", "tokenyard.cli.main"]
    process = subprocess.Popen(
        [sys.executable, *start, "view", str(path), "--port=0", "--no-browser"],
        env=environment({"PYTHONUNBUFFERED": "1", "TOKENYARD_VIEWER_HTML": str(viewer_html)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        match = re.search(r"http://\S+", process.stdout.readline())
        assert match is not None
        yield match[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


def steps_of(folder: Path) -> Path:
    (path,) = folder.glob("*.steps.jsonl")
    return path


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory, small_trace: Path) -> Path:
    """The folder of the server that all but one test share: the trace, packed and not, and a run of two engines."""
    folder = tmp_path_factory.mktemp("shelf")
    shutil.copytree(small_trace, folder / "run")
    for rank in range(2):
        (folder / "moon" / f"rank-{rank}").mkdir(parents=True)
        shutil.copy(steps_of(small_trace), folder / "moon" / f"rank-{rank}" / "t.steps.jsonl")
    (folder / "packed").mkdir()
    return folder


@pytest.fixture(scope="module")
def address(shelf: Path, viewer_html: Path) -> Iterator[str]:
    with served(shelf, viewer_html) as found:
        yield found


def opened(new_page: NewPage, address: str, trace: Path) -> Page:
    """A page that shows a trace by its path."""
    page = new_page()
    page.goto(f"{address}#trace={quote(str(trace))}")
    page.wait_for_selector(".run", timeout=ARRIVED_MS)
    page.wait_for_selector(".load-line", state="detached", timeout=ARRIVED_MS)
    return page


def test_a_trace_by_its_address(new_page: NewPage, viewer_html: Path, small_trace: Path) -> None:
    with served(small_trace, viewer_html) as address:
        page = new_page()
        page.goto(address)
        page.wait_for_selector(".run", timeout=ARRIVED_MS)
        assert "FCFS" in page.inner_text(".run")


@pytest.mark.parametrize("packing", [".jsonl.gz", ".jsonl.zst", ".parquet"])
def test_every_packing(new_page: NewPage, address: str, shelf: Path, packing: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra: analysis)")
    source, target = steps_of(shelf / "run"), shelf / "packed" / f"t.steps{packing}"
    if packing == ".parquet":
        convert(source, target, "steps")
    elif packing == ".jsonl.gz":
        target.write_bytes(gzip.compress(source.read_bytes()))
    else:
        target.write_bytes(pa.Codec("zstd").compress(source.read_bytes(), asbytes=True))
    assert "FCFS" in opened(new_page, address, target).inner_text(".run")


def test_notes_are_saved_beside_the_trace(new_page: NewPage, address: str, shelf: Path) -> None:
    """What the page sends is what the server takes: the headers, the origin, the tag."""
    trace = shelf / "moon" / "rank-1" / "t.steps.jsonl"
    status = opened(new_page, address, trace).evaluate(
        """async (path) => (await fetch(`/api/annotations?path=${encodeURIComponent(path)}`, {
            method: "PUT", body: "{}",
            headers: {"Content-Type": "application/json", "Tokenyard-Annotations": "1"}})).status""",
        str(trace),
    )
    assert status == 200
    assert trace.with_name("t.steps.jsonl.annotations.json").read_text() == "{}"


def test_the_engines_of_one_run_are_one_entry(new_page: NewPage, address: str) -> None:
    page = new_page()
    page.goto(address)
    page.get_by_label("Filter by name").fill("moon")
    expect(page.locator("section.browse tbody tr")).to_have_count(1, timeout=ARRIVED_MS)
    engine = page.get_by_label("Engine of moon")
    assert engine.locator("option").all_inner_texts() == ["rank 0", "rank 1"]
    engine.select_option("rank 1")
    page.get_by_role("button", name="Load moon", exact=True).click()
    page.wait_for_selector(".run", timeout=ARRIVED_MS)
    assert "rank-1" in (page.locator(".token.source").get_attribute("title") or "")


def test_a_page_to_mail_from_the_menu(new_page: NewPage, address: str, shelf: Path, tmp_path: Path) -> None:
    mailed = tmp_path / "mailed.html"
    page = opened(new_page, address, steps_of(shelf / "run"))
    page.keyboard.press("g")
    page.keyboard.type("40")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Step 40", exact=True).wait_for()
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as downloading:
        page.get_by_role("button", name=re.compile(r"\(HTML\)")).click()
    assert downloading.value.suggested_filename.endswith(".html")
    downloading.value.save_as(mailed)
    steps = page.locator(".token.steps").inner_text()
    other = new_page()
    other.goto(mailed.as_uri())
    other.wait_for_selector(".run", timeout=ARRIVED_MS)
    expect(other.locator(".token.steps")).to_have_text(steps)
    other.get_by_role("heading", name="Step 40", exact=True).wait_for()
    until(other, "location.hash.includes('step=40')")
    assert "trace=" not in other.url, "where it lay on the other machine is of no use"


def test_a_question_in_sql(new_page: NewPage, address: str, shelf: Path) -> None:
    pytest.importorskip("duckdb")
    page = opened(new_page, address, steps_of(shelf / "run"))
    page.get_by_role("tab", name="Statistics").click()
    section = page.get_by_role("region", name="Ask in SQL")
    section.get_by_label("SQL").fill("SELECT count(*) AS finished FROM finishes")
    section.get_by_role("button", name="ask").click()
    finished = str(summarize(shelf / "run").requests_finished)
    expect(section.locator("td")).to_have_text(finished, timeout=ARRIVED_MS)


def test_what_the_server_lacks_is_grey_and_says_what_to_install(
    new_page: NewPage, shelf: Path, viewer_html: Path
) -> None:
    """Without the extras: no button that would only fail."""
    with served(shelf, viewer_html, ("duckdb", "perfetto")) as lacking:
        page = opened(new_page, lacking, steps_of(shelf / "run"))
        page.get_by_role("button", name="Export").click()
        perfetto = page.get_by_role("button", name=re.compile(r"\(Perfetto\)"))
        expect(perfetto).to_be_disabled()
        expect(perfetto).to_contain_text("pip install 'tokenyard[perfetto]'")
        expect(page.get_by_role("button", name=re.compile(r"\(HTML\)"))).to_be_enabled()
        page.keyboard.press("Escape")
        page.get_by_role("tab", name="Statistics").click()
        section = page.get_by_role("region", name="Ask in SQL")
        expect(section).to_contain_text("pip install 'tokenyard[analysis]'")
        expect(section.get_by_role("button", name="ask")).to_be_disabled()
