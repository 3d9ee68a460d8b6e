"""What engineers found who saw the first screen for the first time: when the cause came, its kind, its figures."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import ARRIVED_MS, replay

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    Open = Callable[..., Page]

BEGIN = 64.0
"""When the pictures come, in seconds."""
SHOPS = 40
STEPS = "sched_trace.fcfs.steps.jsonl"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small requests of two tenants all the time; for a while prompts of several images each, by a third."""
    folder = tmp_path_factory.mktemp("pictures")
    lines: list[dict[str, Any]] = [
        {"arrival_time": round(i / 4, 3), "prompt_len": 200, "max_tokens": 30, "cache_salt": f"team-{i % 2}"}
        for i in range(500)
    ]
    lines += [
        {
            "arrival_time": BEGIN + i / 5,
            "prompt_len": 100 + 1200 * (4 + i % 3),
            "max_tokens": 20,
            "images": [1200] * (4 + i % 3),
            "cache_salt": "shop",
        }
        for i in range(SHOPS)
    ]
    lines.sort(key=lambda line: line["arrival_time"])
    for i, line in enumerate(lines):
        line["request_id"] = f"cmpl{i * 7919 % 100_003:06d}x"
    (folder / "load.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = (
        "--vllm-version=0.33",
        "--advice=none",
        "--model=qwen2.5-vl-7b",
        "--gpu=l40s",
        "--max-num-batched-tokens=2048",
    )
    return replay(folder / "run", str(folder / "load.jsonl"), *flags)


def records(trace: Path, event: str) -> Iterator[dict[str, Any]]:
    lines = map(json.loads, (trace / STEPS).read_text().splitlines())
    yield from (record for record in lines if record["event"] == event)


def clock(seconds: float) -> str:
    """As the page writes a moment after the first minute."""
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def opened(open_files: Open, trace: Path, state: str = "", **options: Any) -> tuple[Locator, Page]:
    page = open_files(trace, state=f"tab=overview{state}", **options)
    page.locator(".overview[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    return page.get_by_role("status", name="Verdict"), page


LOST = r"(?:(\d+) min )?(\d+) s\n"


def _seconds(stretch: str) -> int:
    found = re.search(LOST, stretch)
    assert found, stretch
    return 60 * int(found[1] or 0) + int(found[2])


def test_a_stretch_has_the_same_figures_wherever_they_stand(open_files: Open, pictures: Path) -> None:
    said, page = opened(open_files, pictures)
    stretch = page.get_by_role("region", name="Worst stretches").get_by_role("listitem").first
    before = stretch.inner_text()
    stretch.get_by_role("button").click()
    expect(said).to_contain_text("Of the selection")
    page.locator(".overview[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    after = stretch.inner_text()
    assert re.sub(LOST, "", after) == re.sub(LOST, "", before)
    # A step that began before the selection still ran in it, and is not of it.
    assert _seconds(after) == pytest.approx(_seconds(before), rel=0.01)
    reasons = page.get_by_role("region", name="What requests waited for")
    lost = re.search(r"\n(\d+[^\n]*)\nup to", before)
    assert lost
    sums = [text.splitlines()[-2] for text in reasons.get_by_role("listitem").all_inner_texts()]
    assert sums


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing is wrong for so long that the first pictures show none of what is wrong at the end; Unix times."""
    file = tmp_path_factory.mktemp("late") / STEPS
    with file.open("w") as out:
        for step in range(300_000):
            waiting = 2 if step >= 280_000 else 0
            out.write(
                f'{{"event":"step_snapshot","step":{step},"ts":{NOON + step * 0.01:.2f},"num_running":3,'
                f'"num_waiting":{waiting},"free_blocks":{step % 500},"total_blocks":1000,"max_num_running_reqs":3}}\n'
            )
            if waiting:
                out.write(
                    f'{{"event":"admission_outcome","step":{step},"ts":{NOON + step * 0.01:.2f},"kind":"stopped",'
                    f'"reason":"max_num_seqs","num_requests":{waiting}}}\n'
                )
    return file


NOON = 1_796_040_000
"""2026-11-30, 12:00 in UTC."""


def test_the_wall_clock_is_the_one_format_where_the_trace_has_it(
    new_page: Callable[..., Page], viewer_html: Path, late: Path
) -> None:
    """In the headline, under the pointer, in the panel and where one types a time."""
    page = new_page(timezone_id="UTC")
    page.goto(viewer_html.as_uri())
    page.set_input_files("[data-picker=files]", [late])
    page.locator(".overview[aria-busy=false]").wait_for(timeout=6 * ARRIVED_MS)
    expect(page.get_by_role("region", name="Worst stretches")).to_contain_text("12:4")
    expect(page.locator(".tracks-foot")).to_contain_text("Times are of the day.")
    page.get_by_role("tab", name="Timeline").click()
    page.keyboard.press("g")
    page.keyboard.type("12:48:20")
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="What is selected")
    expect(panel.get_by_role("heading", level=2).first).to_have_text("Step 290,000")
    expect(panel).to_contain_text("12:48:20.000")
    box = page.locator(".strip-run").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    expect(page.locator(".strip-tip")).to_contain_text(re.compile(r"12:2[45]:\d\d\.\d{3} "))


def test_one_format_of_time_from_the_start(open_files: Open, pictures: Path) -> None:
    """The table had 227.5 s beside the 3:47 of everything else, and nothing said from when times count."""
    _, page = opened(open_files, pictures)
    expect(page.locator(".tracks-foot")).to_contain_text("Times count from the trace's start.")
    arrived = {record["req_id"]: record["arrival_time"] for record in records(pictures, "request_arrived")}
    page = open_files(pictures, state="tab=requests&show=table&sort=-arrived")
    page.locator(".request-table tbody tr").first.wait_for()
    heads = [head.split()[0] for head in page.locator(".request-table thead th").all_inner_texts()]
    last = page.locator(".request-table tbody tr").first
    assert last.locator("th, td").all_inner_texts()[heads.index("arrived")] == clock(max(arrived.values()))
    last.get_by_role("button").click()
    panel = page.get_by_role("complementary", name="What is selected")
    expect(panel.locator("dl.facts div", has_text="arrived").first).to_contain_text(clock(max(arrived.values())))
    step = panel.get_by_role("region", name="Step").locator("p").first.inner_text()
    assert re.match(r"\d:\d\d\.\d{3} \+\d", step), step


def test_what_a_tenant_is_stands_where_one_is_named(open_files: Open, pictures: Path) -> None:
    shop = {record["cache_salt_hash"] for record in records(pictures, "request_arrived") if record.get("mm_items")}
    known = hashlib.blake2s(b"shop", digest_size=8).hexdigest()
    assert shop == {known}
    page = open_files(pictures, state="tab=requests&show=groups&group=tenant")
    expect(page.locator(".group-table thead th").first).to_have_attribute("title", re.compile("hash of its cache_salt"))


def test_sums_and_peaks_say_of_what_they_are(open_files: Open, pictures: Path) -> None:
    """Four sums of waiting stood on one screen, and "to 81 held" reads as a range."""
    _, page = opened(open_files, pictures)
    reasons = page.get_by_role("region", name="What requests waited for")
    expect(reasons.get_by_role("heading")).to_have_text("What requests waited for whole run")
    stretches = page.get_by_role("region", name="Worst stretches")
    expect(stretches.get_by_role("heading")).to_have_text("Worst stretches most waiting first, for all reasons")
    expect(stretches.get_by_role("listitem").first).to_contain_text(re.compile(r"up to \d+ held"))
    stretches.get_by_role("button").first.click()
    expect(reasons.get_by_role("heading")).to_have_text("What requests waited for selection")


def test_a_drag_selects_and_opens_no_step(open_files: Open, pictures: Path) -> None:
    """What ends a drag was taken for a click: the panel of a step opened, and stayed when the selection was cleared."""
    _, page = opened(open_files, pictures)
    ground = page.locator(".tracks-ground")
    box = ground.bounding_box()
    assert box is not None
    ground.hover(position={"x": 0.4 * box["width"], "y": 60})  # once it does not move any more
    box = ground.bounding_box()
    assert box is not None
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 60, steps=5)
    page.mouse.up()
    expect(page.get_by_role("status", name="Verdict")).to_contain_text("Of the selection")
    panel = page.get_by_role("complementary", name="What is selected")
    expect(panel).to_have_count(0)
    ground.click(position={"x": 0.5 * box["width"], "y": 60})  # where it is then: the verdict may have moved it
    expect(panel).to_have_count(1)
    page.get_by_role("button", name="clear the selection").click()
    expect(panel).to_have_count(0)
