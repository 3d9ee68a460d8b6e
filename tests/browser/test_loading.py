"""Every way a trace can lie on disk loads into the same picture; damage is said; loading can be stopped."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import ARRIVED_MS
from tests.integration.command import call

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]

STEPS, REQUESTS = "sched_trace.fcfs.steps.jsonl", "sched_trace.fcfs.requests.jsonl"


def tokens(page: Page, *, requests: bool = True) -> list[str]:
    """The header's tokens, once everything is loaded; the file's name is not among them."""
    if requests:
        page.wait_for_selector("header .token.records", timeout=ARRIVED_MS)
    return page.locator("header li.token").all_inner_texts()


@pytest.fixture(scope="module")
def plain(small_trace: Path) -> Path:
    """A folder with the trace's two files."""
    return small_trace


@pytest.mark.parametrize("form", ["gzip", "parquet", "renamed"])
def test_other_forms_show_the_same(open_files: Open, plain: Path, tmp_path: Path, form: str) -> None:
    wanted = tokens(open_files(plain / STEPS, plain / REQUESTS))
    if form == "gzip":
        for name in (STEPS, REQUESTS):
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress((plain / name).read_bytes()))
    elif form == "parquet":
        assert call("convert", plain, "--output", tmp_path, cwd=tmp_path).code == 0
    else:  # the contents tell which is which
        (tmp_path / "a.txt").write_bytes((plain / REQUESTS).read_bytes())
        (tmp_path / "b.log").write_bytes((plain / STEPS).read_bytes())
    assert tokens(open_files(tmp_path)) == wanted


def test_a_large_requests_file_is_read_in_two_parts(open_files: Open, plain: Path, tmp_path: Path) -> None:
    """Two workers, one file: no record is lost or doubled at the seam."""
    lines = (plain / REQUESTS).read_text().splitlines()
    padding = "x" * (9 * 2**20 // len(lines))
    padded = [json.dumps(json.loads(line) | {"padding": padding}) for line in lines]
    (tmp_path / REQUESTS).write_text("\n".join(padded) + "\n")
    (tmp_path / STEPS).write_bytes((plain / STEPS).read_bytes())
    assert tokens(open_files(tmp_path)) == tokens(open_files(plain / STEPS, plain / REQUESTS))


def test_steps_alone(open_files: Open, plain: Path) -> None:
    found = tokens(open_files(plain / STEPS), requests=False)
    assert not any("records" in token for token in found)


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_ends_early_is_shown_as_far_as_it_goes(
    open_files: Open, plain: Path, tmp_path: Path, packed: bool
) -> None:
    whole = (plain / STEPS).read_bytes()
    file = tmp_path / (STEPS + ".gz" if packed else STEPS)
    # In the middle of a line, or of the compressed bytes.
    file.write_bytes(gzip.compress(whole)[:-100] if packed else whole[: whole.index(b"\n", len(whole) // 2) + 10])
    page = open_files(file)
    steps = next(token for token in tokens(page, requests=False) if token.startswith("steps"))
    assert steps.startswith("steps 0")
    expect(page.locator(".run")).to_contain_text(
        "its compressed data break off" if packed else "1 line could not be read"
    )


def test_what_is_no_trace_says_so(new_page: Callable[..., Page], viewer_html: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing to see\n")
    page = new_page()
    page.goto(viewer_html.as_uri())
    page.set_input_files("[data-picker=files]", [tmp_path / "notes.txt"])
    expect(page.locator("body")).to_contain_text("none of its first lines is a step")
