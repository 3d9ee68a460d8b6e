"""What the page promises and no other module here asks: promises.toml lists every promise with its tests."""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import ARRIVED_MS, REPO, SMALL_STEPS, replay
from tests.integration.command import call

from tokenyard.explain.report.summary import summarize
from tokenyard.units import count, milliseconds
from viewer_sample import PRESSURE, crowded

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]


DEFINED = re.compile(r"^def (test_\w+)", re.MULTILINE)


def test_every_promise_has_tests() -> None:
    promises = tomllib.loads((Path(__file__).parent / "promises.toml").read_text())["promise"]
    assert len(promises) > 15
    there = [name for file in Path(__file__).parent.glob("test_*.py") for name in DEFINED.findall(file.read_text())]
    named = {name for promise in promises for name in promise["tests"]}
    assert [name for name in sorted(named) if not any(each.startswith(name) for each in there)] == []


def test_the_page_and_its_source_say_who_is_meant(viewer_html: Path) -> None:
    """Requests, clients, users: no riddles."""
    riddles = re.compile(r"\b(no|some|any)body\b|\bwho(m?so)?ever\b", re.IGNORECASE)
    files = [file for file in (REPO / "viewer" / "src").rglob("*") if file.suffix in {".ts", ".tsx", ".css"}]
    assert len(files) > 200
    assert [str(file) for file in [viewer_html, *files] if riddles.search(file.read_text())] == []


def steps_of(trace: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in next(trace.glob("*.steps.jsonl")).read_text().splitlines()]


def rewritten(trace: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The steps of a trace with other records of the same requests."""
    folder.mkdir()
    records = steps_of(trace)
    for record in records:
        change(record)
    (folder / "sched_trace.fcfs.steps.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def beside(open_files: Open, a: Path, b: Path) -> Page:
    page = open_files(a, state="tab=compare")
    page.locator("[role=tabpanel] [data-picker=files]").set_input_files(sorted(b.iterdir()))
    page.get_by_role("region", name="Who was faster").wait_for(timeout=ARRIVED_MS)
    return page


def test_other_requests_of_the_same_names_are_not_judged(open_files: Open, small_trace: Path, tmp_path: Path) -> None:
    def longer(record: dict[str, Any]) -> None:
        for name in ("num_prompt_tokens", "total_prompt_tokens"):
            if name in record:
                record[name] += 16

    page = beside(open_files, small_trace, rewritten(small_trace, tmp_path / "other", longer))
    told = page.get_by_role("region", name="Who was faster")
    expect(told).to_contain_text("These are different workloads")
    expect(told).not_to_contain_text(re.compile("[AB] is faster"))


def test_a_longer_tail_is_not_called_faster(open_files: Open, small_trace: Path, tmp_path: Path) -> None:
    """All are faster but one, which takes three times as long."""
    ended = [record for record in steps_of(small_trace) if record["event"] == "request_finished"]
    slowest = max(ended, key=lambda each: each["finished_time"] - each["arrival_time"])["req_id"]

    def change(record: dict[str, Any]) -> None:
        if record["event"] == "request_finished":
            for name in ("first_token_time", "finished_time"):
                since = record["arrival_time"]
                record[name] = since + (record[name] - since) * (3 if record["req_id"] == slowest else 0.8)

    page = beside(open_files, small_trace, rewritten(small_trace, tmp_path / "tail", change))
    told = page.get_by_role("region", name="Who was faster")
    expect(told).to_contain_text("B is faster in the middle, but its tail is slower")
    expect(told).to_contain_text(re.compile(r"E2E p99 \+\d"))
    page.get_by_role("tab", name="Overview").click()
    tiles = page.get_by_role("list", name="Figures")
    expect(tiles.get_by_role("button", name=re.compile("^E2E p99"))).to_contain_text(re.compile(r"\d+ % to B"))


def test_a_gzip_that_breaks_off_shows_the_same_each_time(open_files: Open, small_trace: Path, tmp_path: Path) -> None:
    whole = gzip.compress(next(small_trace.glob("*.steps.jsonl")).read_bytes())
    file = tmp_path / "sched_trace.fcfs.steps.jsonl.gz"
    file.write_bytes(whole[: len(whole) // 2])
    steps = summarize(tmp_path).steps
    assert 0 < steps < SMALL_STEPS
    for _ in range(3):
        page = open_files(file)
        expect(page.locator(".token.steps")).to_contain_text(f"({steps})")
        expect(page.locator(".token.partial")).to_be_visible()


def test_who_held_the_slots_who_ran_and_who_overtook(open_files: Open, pressed: Path) -> None:
    page = open_files(pressed, state="req=r3")
    held = page.get_by_role("region", name="Adapters that held the slots")
    expect(held).to_contain_text("It needs mail.")
    assert {line.split("\n")[0] for line in held.locator("li").all_inner_texts()} == {"sql", "legal"}
    page = open_files(pressed, state="req=late4")
    expect(page.get_by_role("region", name="Who ran meanwhile")).to_contain_text("late3")
    overtook = page.get_by_role("region", name="Admitted before it, though they came later")
    expect(overtook).to_contain_text("late7")
    expect(overtook).to_contain_text("priority 2")


def test_time_in_the_prefill_engine_is_not_the_front_ends(open_files: Open, tmp_path: Path) -> None:
    (tmp_path / "crowded.jsonl").write_text(crowded())
    made = call("split", "crowded.jsonl", "--trace=split", cwd=tmp_path)
    assert made.code == 0, made.stderr
    page = open_files(tmp_path / "split" / "decode", state="req=report_t0")
    why = page.get_by_role("region", name="Why did it wait?")
    expect(why).to_contain_text("prefill engine")
    expect(why).not_to_contain_text("front_end")


def test_times_jobs_and_bars_filter(open_files: Open, small_trace: Path) -> None:
    """``e2e:`` keeps requests, ``-job:`` takes out the steps in which the job is, a bar leads to its requests."""
    ended = [record for record in steps_of(small_trace) if record["event"] == "request_finished"]
    times = sorted(record["finished_time"] - record["arrival_time"] for record in ended)
    bound = round((times[-4] + times[-3]) / 2, 6)
    page = open_files(small_trace, state="tab=requests&show=table")
    field = page.get_by_label("Filter", exact=True)
    field.press_sequentially(f"e2e:{bound}s..")
    expect(page.locator(".table-sum")).to_contain_text("3 requests")
    present = {
        record["step"]
        for record in steps_of(small_trace)
        if record["event"] == "step_snapshot" and "report_t0" in str(record)
    }
    steps = {record["step"] for record in steps_of(small_trace) if record["event"] == "step_snapshot"}
    page = open_files(small_trace)
    page.get_by_label("Filter", exact=True).press_sequentially("-job:report")
    expect(page.get_by_text(re.compile(rf"\b{len(steps - present)} (?:of \d+ )?steps")).first).to_be_visible()
    page = open_files(small_trace, state="tab=statistics")
    page.get_by_role("figure", name="Requests by TTFT").get_by_role("button").last.click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value(re.compile("^ttft:"))


def test_what_an_address_names_in_vain_is_said(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, state="tab=timeline&step=99999999&req=nope")
    expect(page.get_by_text(re.compile("This trace has no .*99,?999,?999.* and no .*nope"))).to_be_visible()


def test_itl_the_largest_values_drafts_and_ends_are_those_of_the_report(
    open_files: Open, small_trace: Path, tmp_path: Path
) -> None:
    report = summarize(small_trace)
    page = open_files(small_trace, state="tab=statistics")
    page.locator(".statistics[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    lines = page.locator(".latency tbody tr")
    for name, figures in (("ITL", report.itl_ms), ("TTFT", report.ttft_ms)):
        assert figures.max is not None
        line = lines.filter(has_text=name)
        expect(line).to_contain_text(milliseconds(figures.p99))
        expect(line).to_contain_text(milliseconds(figures.max))
    shown = page.locator(".figures > div")
    expect(shown.filter(has_text=re.compile("^requests"))).to_contain_text(f"length {count(report.requests_finished)}")
    (tmp_path / "crowded.jsonl").write_text(crowded())
    trace = replay(tmp_path / "run", str(tmp_path / "crowded.jsonl"), *PRESSURE, "--num-speculative-tokens=3")
    drafts = summarize(trace).speculation
    assert drafts is not None
    page = open_files(trace, state="tab=statistics")
    told = page.locator(".figures > div").filter(has_text="speculation")
    expect(told).to_contain_text(f"{count(drafts.num_draft_tokens)} drafts", timeout=ARRIVED_MS)


def test_a_stretch_leads_to_its_figures(open_files: Open, small_trace: Path) -> None:
    page = open_files(small_trace, state="tab=overview")
    stretch = page.get_by_role("region", name="Worst stretches").get_by_role("button").first
    stretch.click()
    expect(page.get_by_role("status", name="Verdict")).to_contain_text("Of the selection")
