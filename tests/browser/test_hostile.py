"""Traces that mean harm: no script of theirs runs, nothing breaks, and the page says what it left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser.conftest import SMALL_LAST
from tests.integration.command import call

from tokenyard.questions.sweeping.page import page as page_of
from tokenyard.questions.sweeping.rows import Row

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


# ---------------------------------------------------------------------------------------------------------------------
# Pages and pictures that are mailed, opened from disk.

NAMES = (
    *IDS[:5],
    *IDS[7:10],
    "</style><script>" + EVIL + "</script>",
    "-->" + IDS[0],
    "]]>" + IDS[0],
    "'\"`${" + EVIL + "}",
)


def _is_unharmed(page: Page) -> None:
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.querySelectorAll('img, iframe, object, embed, base').length") == 0
    assert (
        page.evaluate(
            "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames()).filter(n => /^on/.test(n))"
        )
        == []
    )
    assert page.evaluate("[...document.querySelectorAll('a')].every(a => !/^javascript:/i.test(a.href))")


@pytest.mark.parametrize("words", [(), ("--with-prompts",)])
def test_an_exported_page_runs_no_script_of_its_trace(
    new_page: Callable[..., Page], evil_trace: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "mailed.html"
    trace = evil_trace / "sched_trace.evil.steps.jsonl"
    done = call("export", str(trace), "--html", str(file), *words, cwd=tmp_path)
    assert done.code == 0, done.stderr
    page = new_page()
    page.goto(file.as_uri())
    page.wait_for_selector(".run")
    for tab in ("1", "2", "3", "4", "5"):
        page.keyboard.press(tab)
        page.wait_for_timeout(150)
        _is_unharmed(page)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_page_of_a_sweep_runs_no_script_of_its_names(new_page: Callable[..., Page], tmp_path: Path) -> None:
    rows = [
        Row(settings={name: value, "max_num_seqs": at}, figures={"ttft_ms.p90": at * 100.0, name: 1.0})
        for at, (name, value) in enumerate(zip(NAMES, reversed(NAMES), strict=True), 1)
    ]
    rows += [Row(settings={"max_num_seqs": 99}, problem=name) for name in NAMES]
    for name in (*NAMES, "x" * 20_000):
        file = tmp_path / "sweep.html"
        file.write_text(page_of(name, rows), encoding="utf-8")
        page = new_page()
        page.goto(file.as_uri())
        assert page.locator("tbody tr").count() >= len(NAMES)
        assert page.evaluate("document.querySelector('h1').scrollWidth <= window.innerWidth")
        _is_unharmed(page)
        page.close()


def test_a_picture_of_a_report_runs_no_script(new_page: Callable[..., Page], evil_trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.svg"
    done = call("report", str(evil_trace / "sched_trace.evil.steps.jsonl"), "--svg", str(file), cwd=tmp_path)
    assert done.code == 0, done.stderr
    page = new_page()
    page.goto(file.as_uri())
    assert page.evaluate("document.documentElement.tagName") == "svg"
    _is_unharmed(page)
    assert page.evaluate("document.querySelectorAll('script, foreignObject').length") == 0
