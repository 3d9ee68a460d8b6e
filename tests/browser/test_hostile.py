"""Traces that mean harm: no script of theirs runs, nothing breaks, and the page says what it left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import SMALL_LAST

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]

EVIL = "window.hacked=1"
IDS = (
    f'<img src=x onerror="{EVIL}">_t1',
    f"</script><script>{EVIL}</script>",
    f'"><svg onload={EVIL}>',
    f"javascript:{EVIL}//_t2",
    "a\u202eltr.exe\u202c\u200f_t3",
    "\u0000\u0007\u001b[31mred",
    "x" * 1_000_000,
    "{{constructor.constructor('" + EVIL + "')()}}",
    "__proto__",
    "constructor",
    "",
    "👾" * 50,
)


def _line(**fields: object) -> str:
    return json.dumps(fields) + "\n"


@pytest.fixture(scope="module")
def evil_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten steps in which everybody waits or runs under an id that means harm."""
    folder = tmp_path_factory.mktemp("evil")
    steps, records = [], []
    for step in range(10):
        running, waiting = list(IDS[: step % 4 + 1]), list(IDS[step % 4 + 1 :])
        steps.append(
            _line(
                event="step_snapshot",
                step=step,
                ts=float(step),
                policy=f"<b onmouseover={EVIL}>fcfs</b>",
                free_blocks=10,
                total_blocks=100,
                num_running=len(running),
                num_waiting=len(waiting),
                running_req_ids=running,
                waiting_req_ids=waiting,
                running_job_ids=[f"</title><script>{EVIL}</script>" for _ in running],
                waiting_job_ids=["__proto__" for _ in waiting],
                max_num_scheduled_tokens=10,
            )
        )
        decision = {"scheduled_running_req_ids": running, "num_scheduled_tokens": dict.fromkeys(running, 2)}
        steps.append(_line(event="step_decision", step=step, ts=step + 0.5, **decision))
        outcome = {"kind": "stopped", "reason": f"<script>{EVIL}</script>", "num_requests": len(waiting)}
        refusals = [{"reason": "__proto__", "req_id": waiting[0]}]
        steps.append(_line(event="admission_outcome", step=step, req_id=waiting[0], skipped=refusals, **outcome))
        records += [
            _line(step=step, req_id=name, queue="running", status=f"<i>{EVIL}</i>", prompt_prefix_text=f"</pre>{name}")
            for name in running
        ]
    steps.append('{"event":"step_snapshot","step":"ten"}\n{"event":["x"]}\nnull\n[1]\n"</script>"\n\ufeff{}\n')
    steps.append(_line(event=f"<img src=x onerror={EVIL}>", step=3))
    (folder / "sched_trace.evil.steps.jsonl").write_text("".join(steps))
    (folder / "sched_trace.evil.requests.jsonl").write_text("".join(records))
    return folder


def test_no_script_of_a_trace_runs(open_files: Open, evil_trace: Path) -> None:
    page = open_files(evil_trace)
    page.keyboard.press("g")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    pills = page.get_by_role("toolbar", name="Running").locator("button")
    expect(pills).to_have_count(3)
    for at in range(3):
        pills.nth(at).click()
        page.get_by_role("region", name="Request").get_by_text("At step 2").wait_for()
    page.get_by_text("Records of this step, as in the file").click()
    page.locator(".raw pre").first.wait_for()
    for tab in ("1", "3", "4", "5", "2"):
        page.keyboard.press(tab)
        page.wait_for_timeout(150)
    page.locator(".notes summary").click()
    expect(page.locator(".notes")).to_contain_text("unknown kind")
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.querySelectorAll('#app script, #app img, #app iframe').length") == 0
    assert page.evaluate("({}).polluted === undefined && Object.keys(Object.prototype).length === 0")


def test_marks_that_turn_lines_round_are_blots(open_files: Open, evil_trace: Path) -> None:
    page = open_files(evil_trace, state="step=0")
    cell = page.get_by_role("toolbar", name="Waiting")
    cell.locator("button").first.wait_for()
    shown = cell.inner_text()
    assert not {"\u202e", "\u200f", "\u0000"} & set(shown)
    assert len(shown) < 5_000
    assert "_t3" in shown
    assert "👾" in shown


def test_a_megabyte_in_the_address_and_odd_states_do_no_harm(open_files: Open, small_trace: Path) -> None:
    odd = "step=99999999&req=%3Cimg%3E&filter=%3Cscript%3E&tab=evil&view=1..2..3&sel=x"
    page = open_files(small_trace, state=f"{odd}&job={'x' * 1_000_000}")
    expect(page.get_by_role("tab", selected=True)).to_have_text("Timeline")
    expect(page.locator("aside h2").first).to_have_text(f"Step {SMALL_LAST}")
    assert page.evaluate("window.hacked") is None
