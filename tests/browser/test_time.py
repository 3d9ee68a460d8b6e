"""Time first: the strip and its legend go by the clock, not by steps; a time can be gone to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]

STEPS = 20
LONG = range(12, 16)
"""Steps of a second each, held back for want of memory; the others take ten milliseconds and stop at max_num_seqs."""


def _lines() -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    now = 100.0
    for step in range(STEPS):
        reason, lasts = ("kv_blocks", 1.0) if step in LONG else ("max_num_seqs", 0.01)
        queues = {"running_req_ids": ["a_t0"], "waiting_req_ids": ["b_t0"]}
        lines += [
            {"event": "step_snapshot", "step": step, "ts": now, "num_running": 1, "num_waiting": 1, **queues},
            {"event": "step_decision", "step": step, "ts": now, "num_scheduled_tokens": {"a_t0": 1}}
            | {"scheduled_new_req_ids": [], "scheduled_resumed_req_ids": [], "scheduled_running_req_ids": ["a_t0"]},
            {"event": "admission_outcome", "step": step, "ts": now, "reason": reason, "req_id": "b_t0"}
            | {"num_requests": 1, "outcome": "stopped"},
        ]
        now += lasts
    return lines


@pytest.fixture
def page(open_files: Open, tmp_path: Path) -> Page:
    path = tmp_path / "sched_trace.uneven.steps.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in _lines()))
    return open_files(path)


def shares(page: Page) -> dict[str, float]:
    """What the legend says of each reason, in percent."""
    texts = page.get_by_role("list", name="Reasons in the run").get_by_role("button").all_inner_texts()
    found = (re.search(r"(\w+)\s+([\d.]+) %", text) for text in texts)
    return {match[1]: float(match[2]) for match in found if match}


def test_the_legend_goes_by_time_and_by_steps_if_asked(page: Page) -> None:
    by_time = shares(page)
    assert list(by_time) == ["kv_blocks", "max_num_seqs"]
    assert by_time["kv_blocks"] == pytest.approx(100 * 4 / 4.15, abs=0.2)
    page.get_by_role("combobox", name="axis").select_option("steps")
    by_steps = shares(page)
    assert by_steps == {"kv_blocks": pytest.approx(20), "max_num_seqs": pytest.approx(80)}
    expect(page).to_have_url(re.compile("axis=steps"))


def test_the_strip_tells_when_and_what(page: Page) -> None:
    box = page.locator(".strip-run").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    tip = page.locator(".strip-tip")
    expect(tip).to_contain_text("kv_blocks")
    step = int(re.search(r"step (\d+)", tip.inner_text())[1])  # type: ignore[index]
    assert step in LONG, "half the time is in the long steps, not half of the steps"


def test_a_time_can_be_gone_to(page: Page) -> None:
    page.keyboard.press("g")
    page.keyboard.type("2.5s")
    page.keyboard.press("Enter")
    expect(page.locator("aside h2")).to_have_text("Step 14")
    expect(page.locator("aside")).to_contain_text("The same in ")


def test_the_next_episode_skips_the_rest_of_this_one(page: Page) -> None:
    page.keyboard.press("g")
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="next episode").click()
    expect(page.locator("aside h2")).to_have_text("Step 16")
    page.keyboard.press("Shift+E")
    expect(page.locator("aside h2")).to_have_text("Step 0")
