"""A run in which two things went wrong, one after the other: the first screen names both, and each leads to its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import ANSWERS, ARRIVED_MS, FIRST, LONG, SECOND, replay, settled

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    Open = Callable[..., Page]


def records(trace: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, next(trace.glob("*.steps.jsonl")).read_text().splitlines())


def tenants(trace: Path) -> tuple[str, str]:
    """The tenants of the long prompts and of the long answers, as the trace names them."""
    arrived = [record for record in records(trace) if record["event"] == "request_arrived"]
    (etl,) = {record["cache_salt_hash"] for record in arrived if record["num_prompt_tokens"] >= 9_000}
    (writer,) = {record["cache_salt_hash"] for record in arrived if record["num_prompt_tokens"] == 200}
    return str(etl), str(writer)


def opened(open_files: Open, trace: Path, **options: Any) -> tuple[Locator, Page]:
    page = open_files(trace, state="tab=overview", **options)
    page.locator(".overview[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    return page.get_by_role("status", name="Verdict"), page


def there(trace: Path, begin: float, end: float) -> list[dict[str, Any]]:
    """Requests that had arrived by `end` and not ended before `begin`."""
    ends = {r["req_id"]: r["ts"] for r in records(trace) if r["event"] == "request_finished"}
    arrived = [r for r in records(trace) if r["event"] == "request_arrived"]
    return [r for r in arrived if r["arrival_time"] <= end and ends.get(r["req_id"], 1e9) >= begin]


def test_both_are_named_and_the_second_leads_to_its_own(open_files: Open, two: Path) -> None:
    etl, writer = tenants(two)
    said, page = opened(open_files, two)
    expect(said).to_contain_text(re.compile(r"max_num_seqs \(16 running\) held back up to"))
    expect(said).to_contain_text(re.compile(rf"the {ANSWERS} requests of tenant {writer} \(prompts of about .* were "))
    also = re.search(
        r"Also from ([\d.]+) s to ([\d.]+) s the token budget \(1,024 tokens a step\) held back up to (\d+) requests?: "
        rf"(the|\d+ of the) {LONG} requests of tenant {etl} \(prompts of about 9K tokens, answers of about \d+\) "
        r"took \d\d\.\d % of its ",
        said.inner_text(),
    )
    assert also, said.inner_text()
    begun, over = float(also[1]), float(also[2])
    held = {
        record["step"]: record["num_requests"]
        for record in records(two)
        if record["event"] == "admission_outcome" and record.get("reason") == "token_budget"
    }
    starts = {r["step"]: r["ts"] for r in records(two) if r["event"] == "step_snapshot"}
    assert int(also[3]) == max(number for step, number in held.items() if begun <= starts[step] <= over)
    assert FIRST <= begun < FIRST + 0.5
    assert over < SECOND
    said.get_by_role("button", name=f"{also[1]} s to {also[2]} s").click()
    expect(said).to_contain_text("Of the selection")
    expect(said).to_contain_text(re.compile(rf"the token budget .* requests of tenant {etl}"))
    expect(said).not_to_contain_text("Also from")
    expect(said).to_contain_text("limit tenant")
    page.go_back()
    expect(said).to_contain_text("Also from")


def test_two_incidents_stand_on_one_laptop_screen(open_files: Open, two: Path) -> None:
    said, page = opened(open_files, two)
    expect(said).to_contain_text("Also from")
    beyond = page.evaluate("(one => one.scrollHeight - one.clientHeight)(document.querySelector('.overview'))")
    assert beyond <= 0


def test_one_incident_is_not_told_as_two(open_files: Open, two: Path, tmp_path: Path) -> None:
    """The same run without the long prompts."""
    load = [json.loads(line) for line in (two.parent / "load.jsonl").read_text().splitlines()]
    short = [line for line in load if line["prompt_len"] < 9_000]
    (tmp_path / "load.jsonl").write_text("".join(json.dumps(line) + "\n" for line in short))
    flags = ("--vllm-version=0.33", "--advice=none", "--max-num-batched-tokens=1024", "--max-num-seqs=16")
    said, _ = opened(open_files, replay(tmp_path / "run", str(tmp_path / "load.jsonl"), *flags))
    expect(said).to_contain_text("max_num_seqs (16 running) held back up to")
    expect(said).not_to_contain_text("Also from")


@pytest.mark.parametrize("which", ["worst", "second"])
def test_who_held_others_back_leads_to_the_lanes_of_the_stretch(open_files: Open, two: Path, which: str) -> None:
    """The tenant's requests that were there then, as many lanes as lines."""
    etl, writer = tenants(two)
    tenant = writer if which == "worst" else etl
    said, page = opened(open_files, two)
    said.get_by_role("button", name=re.compile(rf"^(the|\d+ of the) \d+ requests of tenant {tenant}")).click()
    lanes = page.locator(".requests-bar [role=status]")
    expect(lanes).to_contain_text("there in the selection")
    settled(page, "document.querySelector('.requests-bar [role=status]').innerText")
    shown = re.match(r"(\d+) of (\d+) lanes", lanes.inner_text())
    assert shown
    all_of_it = LONG if which == "second" else ANSWERS
    assert 0 < int(shown[1]) <= all_of_it < int(shown[2])
    box = page.get_by_role("listbox")
    box.press("Home")
    box.press("ArrowRight")
    box.press("Enter")
    panel = page.get_by_role("complementary", name="What is selected")
    request = panel.locator(".request-id .id").inner_text()
    (arrival,) = [r for r in records(two) if r["event"] == "request_arrived" and r["req_id"] == request]
    assert arrival["cache_salt_hash"] == tenant
    page.get_by_role("button", name="Table", exact=True).click()
    expect(page.locator(".table-sum")).to_contain_text(f"{shown[1]} requests")
    page.get_by_role("button", name="Lanes", exact=True).click()
    lanes.get_by_role("button", name="whole run").click()
    expect(lanes).to_contain_text(f"{all_of_it} of {shown[2]} lanes")


def test_lanes_that_are_left_out_move_none_of_the_others(open_files: Open, two: Path) -> None:
    """A drag over the lanes keeps the one that was at the top there, and so does the way back."""
    _, page = opened(open_files, two)
    page.keyboard.press("3")
    box = page.get_by_role("listbox")
    box.wait_for()
    box.evaluate("one => { one.scrollTop = 8000; }")
    canvas = page.locator(".lanes canvas").bounding_box()
    assert canvas is not None
    x, y = canvas["x"], canvas["y"] + 24 + 5
    tip = page.locator(".lane-tip strong")

    def top() -> str:
        page.mouse.move(x + 40, y + 1)
        page.mouse.move(x + 40, y)
        page.wait_for_timeout(100)
        return tip.inner_text()

    before = top()
    page.mouse.move(x + 600, y + 200)
    page.mouse.down()
    page.mouse.move(x + canvas["width"] - 20, y + 200, steps=4)
    page.mouse.up()
    status = page.locator(".requests-bar [role=status]")
    expect(status).to_contain_text("there in the selection")
    assert top() == before
    status.get_by_role("button", name="whole run").click()
    expect(status).not_to_contain_text("there in the selection")
    assert top() == before


def test_links_in_a_sentence_flow_with_its_words(open_files: Open, two: Path) -> None:
    """On a phone a link goes on in the next line where the words before it leave room, as text does."""
    said, page = opened(open_files, two, viewport={"width": 390, "height": 844})
    lines = """[...document.querySelectorAll('.verdict-line [role=button], .verdict-line button')]
        .map((one) => one.getClientRects().length)"""
    found = page.evaluate(lines)
    assert len(found) >= 5
    assert max(found) > 1
    link = said.get_by_role("button", name=re.compile("^Also|to")).first
    link.focus()
    page.keyboard.press("Enter")
    expect(said).to_contain_text("Of the selection")
