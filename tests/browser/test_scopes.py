"""The scope of a verdict: the whole run or the selection, never both; and by what the worst was chosen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import ANSWERS, ARRIVED_MS, FIRST, LONG, SECOND

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    Open = Callable[..., Page]


def records(trace: Path) -> Iterator[dict[str, Any]]:
    file = trace if trace.is_file() else next(trace.glob("*.steps.jsonl"))
    yield from map(json.loads, file.read_text().splitlines())


def opened(open_files: Open, trace: Path, state: str = "", **options: Any) -> tuple[Locator, Page]:
    page = open_files(trace, state=f"tab=overview{state}", **options)
    page.locator(".overview[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    return page.get_by_role("status", name="Verdict"), page


def starts(trace: Path) -> dict[int, float]:
    return {record["step"]: record["ts"] for record in records(trace) if record["event"] == "step_snapshot"}


def held(trace: Path, reason: str) -> dict[int, int]:
    """Step -> requests that it held back."""
    return {
        record["step"]: record["num_requests"]
        for record in records(trace)
        if record["event"] == "admission_outcome" and record.get("reason") == reason
    }


def seconds(text: str) -> float:
    minutes, _, rest = text.rpartition(":")
    return 60 * float(minutes or 0) + float(rest.removesuffix(" s"))


def test_the_verdict_of_a_selection_is_of_it_alone(open_files: Open, two: Path) -> None:
    """It told from when to when the whole incident was, and how many were held at most in all of it."""
    moments = starts(two)
    waiting = [step for step, number in held(two, "max_num_seqs").items() if number > 0 and moments[step] > SECOND]
    first, last = waiting[len(waiting) * 3 // 4], waiting[len(waiting) * 9 // 10]
    said, page = opened(open_files, two, state=f"&sel={first}..{last}")
    expect(said).to_contain_text("Of the selection")
    text = said.inner_text()
    span = re.search(r"From ([\d:.]+(?: s)?) to ([\d:.]+(?: s)?)", text)
    assert span, text
    assert moments[first] - 0.06 <= seconds(span[1]) <= seconds(span[2]) <= moments[last + 1] + 0.06
    most = re.search(r"held back up to (\d+) request", text)
    assert most
    within = {step: number for step, number in held(two, "max_num_seqs").items() if first <= step <= last}
    assert int(most[1]) == max(within.values()) < max(held(two, "max_num_seqs").values())
    expect(said).to_contain_text(f"all {ANSWERS} of the run were sent from")
    idea = said.locator(".ideas [role=button]").first.inner_text()
    page.get_by_role("tab", name="Statistics").click()
    advice = page.locator("section.advice")
    expect(advice.get_by_role("heading", name="What to change")).to_contain_text("in the selection")
    expect(advice.locator("h4").first).to_contain_text(idea)


def test_ideas_of_a_selection_are_computed_from_it(open_files: Open, two: Path) -> None:
    """The first idea spoke of the whole incident, the second one of the selection."""
    arrivals = sorted(
        (record["arrival_time"], record["num_prompt_tokens"])
        for record in records(two)
        if record["event"] == "request_arrived" and record["num_prompt_tokens"] >= 9_000
    )
    moments = starts(two)
    first = min(step for step, ts in moments.items() if ts > arrivals[3][0])
    last = max(step for step, ts in moments.items() if ts < FIRST + 5)
    arrivals = [(ts, tokens) for ts, tokens in arrivals if ts >= moments[first]]
    _, page = opened(open_files, two, state=f"&sel={first}..{last}")
    page.get_by_role("tab", name="Statistics").click()
    advice = page.locator("section.advice")
    said = re.compile(r"(\d+) requests of theirs brought ([\d,]+) prompt tokens a second")
    expect(advice).to_contain_text(said)
    found = said.search(advice.inner_text())
    assert found
    assert int(found[1]) == len(arrivals) < LONG
    rate = sum(tokens for _, tokens in arrivals) / (arrivals[-1][0] - arrivals[0][0])
    assert 0.9 * rate <= int(found[2].replace(",", "")) <= rate
    spans = re.findall(r"from ([\d.]+) s to ([\d.]+) s", advice.inner_text())
    assert spans
    assert all(float(begin) >= moments[first] - 0.06 for begin, _ in spans)
    assert all(float(end) <= moments[last + 1] + 0.06 for _, end in spans)


@pytest.mark.parametrize("width", [390, 1280, 1900])
def test_how_many_were_held_depends_on_no_width(open_files: Open, two: Path, width: int) -> None:
    said, _ = opened(open_files, two, viewport={"width": width, "height": 900})
    most = re.search(r"max_num_seqs \(16 running\) held back up to (\d+) request", said.inner_text())
    assert most
    assert int(most[1]) == max(held(two, "max_num_seqs").values())


STEP = 0.05
MANY, LATE = (20, 60), (100, 125)
"""When many wait for a moment each, and when a few wait long, in seconds."""


def two_kinds(file: Path, late: float) -> Path:
    """Thirty requests wait all the time, each 1.5 s; later five wait `late` seconds each."""
    lines: list[dict[str, Any]] = []
    for step in range(3_000):
        ts = round(step * STEP, 3)
        many = MANY[0] <= ts < MANY[1]
        few = LATE[0] <= ts < LATE[0] + late
        lines.append(
            {"event": "step_snapshot", "step": step, "ts": ts, "num_running": 3, "num_waiting": 30 * many + 5 * few}
            | {"free_blocks": 500, "total_blocks": 1000, "max_num_running_reqs": 3, "max_num_scheduled_tokens": 512}
        )
        outcome = {"event": "admission_outcome", "step": step, "ts": ts, "kind": "stopped"}
        if many:
            lines.append(outcome | {"reason": "max_num_seqs", "num_requests": 30})
        if few:
            lines.append(outcome | {"reason": "token_budget", "num_requests": 5})
    requests = [(MANY[0] + i / 10, 1.5) for i in range(385)] + [(LATE[0], late)] * 5
    for number, (arrival, ttft) in enumerate(requests):
        lines.append(
            {"event": "request_arrived", "step": int(arrival / STEP), "ts": arrival, "req_id": f"r{number}"}
            | {"arrival_time": arrival, "num_prompt_tokens": 100}
        )
        end = arrival + ttft
        lines.append(
            {"event": "request_finished", "step": int(end / STEP), "ts": end, "req_id": f"r{number}"}
            | {"status": "RequestStatus.FINISHED_STOPPED", "finish_reason": "stop", "arrival_time": arrival}
            | {"first_scheduled_time": end - 0.1, "first_token_time": end, "finished_time": end}
            | {"num_prompt_tokens": 100, "num_output_tokens": 1, "num_preemptions": 0}
        )
    order = ("request_arrived", "step_snapshot", "admission_outcome", "request_finished")
    lines.sort(key=lambda line: (line["step"], order.index(line["event"])))
    file.write_text("".join(json.dumps(line | {"policy": "fcfs"}) + "\n" for line in lines))
    return file


def test_the_stretch_of_the_slowest_first_tokens_wins(open_files: Open, tmp_path: Path) -> None:
    """Where many waited a moment more was waited in all; the alarm is about the few who waited long."""
    said, page = opened(open_files, two_kinds(tmp_path / "sched_trace.fcfs.steps.jsonl", late=20))
    expect(said.locator("strong").first).to_contain_text("the token budget (512 tokens a step) held back up to 5")
    expect(said).to_contain_text("the slowest 1 % of first tokens were waited for here")
    expect(said).to_contain_text("max_num_seqs (3 running) held back up to 30 requests")
    heading = page.get_by_role("region", name="Worst stretches").get_by_role("heading")
    expect(heading).to_contain_text("slowest first tokens first")
    items = page.get_by_role("region", name="Worst stretches").get_by_role("listitem")
    expect(items.first).to_contain_text("up to 5 held")
    expect(items.nth(1)).to_contain_text("up to 30 held")


def test_most_waiting_decides_where_first_tokens_do_not(open_files: Open, tmp_path: Path) -> None:
    said, page = opened(open_files, two_kinds(tmp_path / "sched_trace.fcfs.steps.jsonl", late=1.8))
    expect(said.locator("strong").first).to_contain_text("max_num_seqs (3 running) held back up to 30 requests")
    expect(said).not_to_contain_text("slowest 1 %")
    heading = page.get_by_role("region", name="Worst stretches").get_by_role("heading")
    expect(heading).to_contain_text("most waiting first")
