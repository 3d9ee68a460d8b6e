"""The engines of one run, ranks or prefill and decode: on one screen, along one clock."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import ARRIVED_MS, groups_shown
from tests.integration.command import call

from tokenyard.explain.report.summary import summarize
from tokenyard.units import count, milliseconds
from viewer_sample import PRESSURE, crowded

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks, and one of a prefill and a decode engine."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "crowded.jsonl").write_text(crowded())
    ranks = ("run", "crowded.jsonl", *PRESSURE, "--data-parallel-size=2", "--advice=none", "--trace=ranks")
    split = ("split", "crowded.jsonl", "--trace=split")
    for words in (ranks, split):
        made = call(*words, cwd=folder)
        assert made.code == 0, made.stderr
    return folder


def opened(new_page: Callable[..., Page], viewer_html: Path, folder: Path) -> Page:
    page = new_page()
    page.goto(f"{viewer_html.as_uri()}#tab=overview")
    page.set_input_files("[data-picker=folder]", folder)
    page.wait_for_selector(".overview[aria-busy=false]", timeout=ARRIVED_MS)
    return page


def test_requests_are_grouped_by_rank(new_page: Callable[..., Page], viewer_html: Path, runs: Path) -> None:
    """Each rank with the figures of its own report; a filter holds for all; a click shows the rank."""
    page = opened(new_page, viewer_html, runs / "ranks")
    header = page.get_by_role("list", name="About this run")
    expect(header).to_contain_text(f"{requests_of(runs / 'ranks' / 'rank-0')} requests")
    page.get_by_role("tab", name="Requests").click()
    page.get_by_role("button", name="Groups", exact=True).click()
    page.get_by_label("group by").select_option("rank")
    rows = page.locator(".group-table tbody tr")
    expect(rows).to_have_count(2)
    groups = groups_shown(page)
    for rank in ("rank-0", "rank-1"):
        report = summarize(runs / "ranks" / rank)
        shown = groups[rank]
        assert shown["requests"] == count(requests_of(runs / "ranks" / rank))
        assert shown["TTFT p99"] == milliseconds(report.ttft_ms.p99)
        assert shown["preempted"] == count(report.preemptions)
    prompts = [prompts_of(runs / "ranks" / rank) for rank in ("rank-0", "rank-1")]
    least = max(min(each) for each in prompts) + 1
    kept = [sum(tokens >= least for tokens in each) for each in prompts]
    assert 0 < kept[0] + kept[1] < sum(map(len, prompts))
    page.get_by_label("Filter", exact=True).press_sequentially(f"prompt:{least}..")
    expect(page.locator(".table-sum")).to_contain_text(re.compile(rf"of {sum(kept)} requests?\b"))
    for term, wanted in (("rank:1", "rank-1"), ("-rank:1", "rank-0")):
        page.get_by_label("Filter", exact=True).fill(term)
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text(wanted)
        expect(page.locator(".table-sum")).to_contain_text(f"of {requests_of(runs / 'ranks' / wanted)} requests")
    page.get_by_label("Filter", exact=True).fill("")
    page.get_by_role("button", name="rank-1", exact=True).click()
    expect(header).to_contain_text(f"{requests_of(runs / 'ranks' / 'rank-1')} requests")
    expect(page.locator(".table-sum")).to_contain_text(f"{requests_of(runs / 'ranks' / 'rank-1')} requests")


def prompts_of(folder: Path) -> list[int]:
    """Tokens of the prompts."""
    lines = map(json.loads, next(folder.glob("*.steps.jsonl")).read_text().splitlines())
    return [line["num_prompt_tokens"] for line in lines if line["event"] == "request_arrived"]


def requests_of(folder: Path) -> int:
    lines = next(folder.glob("*.steps.jsonl")).read_text().splitlines()
    return sum(json.loads(line)["event"] == "request_arrived" for line in lines)


@pytest.mark.parametrize(
    ("run", "shown", "beside"), [("ranks", "rank-0", "rank-1"), ("split", "decode", "prefill")], ids=["ranks", "split"]
)
def test_engines_of_a_run_stand_below_each_other_and_change_places(
    new_page: Callable[..., Page], viewer_html: Path, runs: Path, run: str, shown: str, beside: str
) -> None:
    page = opened(new_page, viewer_html, runs / run)
    header = page.get_by_role("list", name="About this run")
    foot = page.locator(".tracks-foot")
    height = "document.querySelector('.tracks canvas').clientHeight"
    expect(foot.get_by_role("button", name=beside, exact=True)).to_be_visible(timeout=ARRIVED_MS)
    expect(header).to_contain_text(f"{requests_of(runs / run / shown)} requests")
    with_both = page.evaluate(height)
    foot.get_by_role("button", name=beside, exact=True).click()
    expect(foot.get_by_role("button", name=shown, exact=True)).to_be_visible(timeout=ARRIVED_MS)
    expect(header).to_contain_text(f"{requests_of(runs / run / beside)} requests")
    page.get_by_role("tab", name="Timeline").click()
    page.keyboard.press("f")
    expect(foot.get_by_role("button", name=shown, exact=True)).to_be_visible(timeout=ARRIVED_MS)
    page.get_by_role("tab", name="Overview").click()
    page.locator(".overview[aria-busy=false] .tracks canvas").wait_for()
    box = page.locator(".tracks canvas").bounding_box()
    assert box is not None
    # A click on the track of the other engine shows it as well: it lies above the axis, which stands above the lanes.
    alone = opened(new_page, viewer_html, runs / run / shown)
    expect(alone.locator(".tracks-foot").get_by_role("button")).to_have_count(0)
    assert with_both - alone.evaluate(height) == 48, "a track more than without it"
