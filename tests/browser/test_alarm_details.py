"""What the first screen says holds wherever one looks: while a trace is read, in a selection, in every view of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import ARRIVED_MS, groups_shown, replay, until

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    Open = Callable[..., Page]

BEGIN = 10.0
"""When the long prompts come, in seconds."""
LONG = 24
STEPS = "sched_trace.fcfs.steps.jsonl"


@pytest.fixture(scope="module")
def flood(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small requests all the time, for a while long prompts of one tenant; ids tell nothing, and not all are listed."""
    folder = tmp_path_factory.mktemp("flood")
    lines: list[dict[str, Any]] = [
        {"arrival_time": round(i / 25, 3), "prompt_len": 300, "max_tokens": 150, "cache_salt": f"team-{i % 3}"}
        for i in range(1000)
    ]
    lines += [
        {"arrival_time": BEGIN + i / 4, "prompt_len": 9_000 + i, "max_tokens": 4, "cache_salt": "crawl"}
        for i in range(LONG)
    ]
    lines.sort(key=lambda line: line["arrival_time"])
    for i, line in enumerate(lines):
        line["request_id"] = f"cmpl{i * 7919 % 100_003:06d}x"
    (folder / "load.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = ("--vllm-version=0.33", "--advice=none", "--max-num-batched-tokens=1024")
    return replay(folder / "run", str(folder / "load.jsonl"), *flags)


def records(trace: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, (trace / STEPS).read_text().splitlines())


def crawler(trace: Path) -> str:
    """The tenant of the long prompts, as the trace names it."""
    arrived = [record for record in records(trace) if record["event"] == "request_arrived"]
    (tenant,) = {record["cache_salt_hash"] for record in arrived if record["num_prompt_tokens"] >= 9_000}
    return str(tenant)


def opened(open_files: Open, trace: Path, state: str = "", **options: Any) -> tuple[Locator, Page]:
    page = open_files(trace, state=f"tab=overview{state}", **options)
    page.locator(".overview[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    return page.get_by_role("status", name="Verdict"), page


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that takes longer to read than the page waits before it shows the beginning."""
    file = tmp_path_factory.mktemp("slow") / STEPS
    with file.open("w") as out:
        for step in range(400_000):
            waiting = 2 if step % 1000 < 200 else 0
            out.write(
                f'{{"event":"step_snapshot","step":{step},"ts":{step * 0.01:.2f},"num_running":3,'
                f'"num_waiting":{waiting},"free_blocks":{step % 500},"total_blocks":1000,"max_num_running_reqs":3}}\n'
            )
    return file


def test_a_link_to_a_time_waits_for_it(new_page: Callable[..., Page], viewer_html: Path, slow: Path) -> None:
    page = new_page()
    page.goto(viewer_html.as_uri() + "#tab=timeline&from=3000.001&to=3001.001")
    page.set_input_files("[data-picker=files]", [slow])
    page.locator(".selected").wait_for(timeout=6 * ARRIVED_MS)
    expect(page.locator(".selected")).to_contain_text("selected: 300,000\N{EN DASH}300,100 (101)")


def test_nothing_looks_like_a_verdict_while_the_trace_is_read(
    new_page: Callable[..., Page], viewer_html: Path, slow: Path
) -> None:
    page = new_page()
    page.goto(viewer_html.as_uri())
    page.evaluate(
        """() => {
            window.said = [];
            const look = () => {
                const line = document.querySelector(".verdict-line");
                if (!line) return;
                const reads = document.querySelector(".load-line") !== null;
                const strong = line.querySelector("strong");
                const weight = strong ? Number(getComputedStyle(strong).fontWeight) : 0;
                window.said.push([reads, line.innerText, weight]);
            };
            new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
        }"""
    )
    page.set_input_files("[data-picker=files]", [slow])
    page.locator(".overview[aria-busy=false]").wait_for(timeout=6 * ARRIVED_MS)
    until(page, "document.querySelector('.load-line') === null")
    said = page.evaluate("window.said")
    while_read = [(text, weight) for reads, text, weight in said if reads]
    assert while_read
    for text, weight in while_read:
        assert re.match(r"Reading(, \d+\.\d %)? …", text), text
        assert weight < 600
    expect(page.get_by_role("status", name="Verdict")).not_to_contain_text("Reading")


def test_tokens_of_requests_that_the_trace_does_not_name_are_a_rest(open_files: Open, flood: Path) -> None:
    steps = {record["step"]: record for record in records(flood) if record["event"] == "step_decision"}
    rests = {
        step: record["total_scheduled_tokens"] - sum(record["num_scheduled_tokens"].values())
        for step, record in steps.items()
    }
    step, rest = max(rests.items(), key=lambda each: each[1])
    assert rest > 0
    page = open_files(flood, state=f"tab=timeline&step={step}")
    who = page.get_by_role("region", name="Who got the tokens")
    total = steps[step]["total_scheduled_tokens"]
    expect(who.get_by_role("listitem").last).to_contain_text("not named in the trace")
    expect(who.get_by_role("listitem").last).to_contain_text(f"{rest:,} tokens")
    expect(who.get_by_role("listitem").last).to_contain_text(f"{100 * rest / total:.1f} %")


def test_one_since_in_every_view(open_files: Open, flood: Path) -> None:
    _, page = opened(open_files, flood)
    page.get_by_role("tab", name="Timeline").click()
    strip = page.get_by_role("list", name="Reasons in the run").locator(".blocked-item").first
    expect(strip).to_contain_text("since ")
    since = re.search(r"since ([\d:.]+(?: s)?)", strip.inner_text())
    assert since
    strip.click()
    panel = page.get_by_role("complementary", name="What is selected")
    expect(panel).to_contain_text(f"Requests are held back for it since {since[1]}")
    page.keyboard.press("n")
    page.keyboard.press("n")
    expect(panel).to_contain_text(f"Requests are held back for it since {since[1]}")


def test_counts_of_a_group_agree_between_views_and_follow_the_selection(open_files: Open, flood: Path) -> None:
    tenant = crawler(flood)
    page = open_files(flood, state="tab=requests&show=groups&group=tenant")
    page.locator(".group-table tbody tr").first.wait_for()
    assert groups_shown(page)[tenant]["requests"] == str(LONG)
    until_ts = BEGIN + 3
    ends = {r["req_id"]: r["ts"] for r in records(flood) if r["event"] == "request_finished"}
    arrived = [r for r in records(flood) if r["event"] == "request_arrived"]
    there = [r for r in arrived if r["arrival_time"] <= until_ts and ends.get(r["req_id"], 1e9) >= BEGIN]
    long = [r for r in there if r["num_prompt_tokens"] >= 9_000]
    assert 0 < len(long) < LONG
    page = open_files(flood, state=f"tab=requests&show=groups&group=tenant&from={BEGIN}&to={until_ts}")
    page.get_by_text("(there in the selection)").wait_for()
    shown = groups_shown(page)
    # A step may see those who came while the one before it ran.
    assert abs(int(shown[tenant]["requests"]) - len(long)) <= 1
    assert abs(sum(int(group["requests"]) for group in shown.values()) - len(there)) <= 4
    page.get_by_role("button", name="Table", exact=True).click()
    whole = sum(int(group["requests"]) for group in shown.values())
    expect(page.locator(".table-sum")).to_contain_text(f"{whole:,} requests")
    page.locator(".table-sum").get_by_role("button", name="whole run").click()
    expect(page.locator(".table-sum")).to_contain_text(f"{len(arrived):,} requests")


@pytest.mark.parametrize("width", [1024, 1280, 1440])
def test_tiles_keep_their_text_beside_the_panel(open_files: Open, flood: Path, width: int) -> None:
    _, page = opened(open_files, flood, "&step=40", viewport={"width": width, "height": 800})
    page.get_by_role("complementary", name="What is selected").wait_for()
    beyond = page.evaluate(
        """() => [...document.querySelectorAll(".tile")].flatMap((tile) => {
            const right = tile.getBoundingClientRect().right;
            const cut = [...tile.querySelectorAll(".tile-name, .tile-value, .tile-beside")].filter(
                (text) => text.getBoundingClientRect().right > right || text.scrollWidth > text.clientWidth + 1);
            return cut.map((text) => text.innerText);
        })"""
    )
    assert beyond == []
