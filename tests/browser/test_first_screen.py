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


def test_when_the_cause_came_and_of_what_kind_it_was(open_files: Open, pictures: Path) -> None:
    """The headline said since when requests waited, which is later, and nothing of the images."""
    shop = [record for record in records(pictures, "request_arrived") if record.get("mm_items")]
    assert len(shop) == SHOPS
    sent = [record["arrival_time"] for record in shop]
    said, page = opened(open_files, pictures)
    expect(said).to_contain_text(f"all {SHOPS} were sent from {clock(min(sent))} to {clock(max(sent))}")
    named = re.search(
        r"requests of tenant \w+ \(prompts of about (\d\.\d)K tokens, (\d\d\.\d) % of them images or clips: "
        r"([\d.]+) each; answers of about 20\) took \d\d\.\d % of its tokens",
        said.inner_text(),
    )
    assert named
    assert abs(float(named[1]) - 6.1) <= 0.3
    assert 97 <= float(named[2]) < 100
    assert abs(float(named[3]) - 5) <= 0.3
    expect(said).not_to_contain_text("few long prompts")
    said.locator(".verdict-next").get_by_role("button").first.click()
    line = page.locator(".statistics > p", has_text="What to change: limit tenant")
    line.get_by_role("button", name="other ideas, and why").wait_for()


def test_a_stretch_has_the_same_figures_wherever_they_stand(open_files: Open, pictures: Path) -> None:
    said, page = opened(open_files, pictures)
    stretch = page.get_by_role("region", name="Worst stretches").get_by_role("listitem").first
    before = stretch.inner_text()
    figures = re.compile(r"\(([\d\w. ]+) of waiting.*? took (\d\d\.\d %) of its tokens", re.DOTALL)
    lost = figures.search(said.inner_text())
    assert lost
    assert lost[1] in before
    stretch.get_by_role("button").click()
    expect(said).to_contain_text("Of the selection")
    page.locator(".overview[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    inside = figures.search(said.inner_text())
    assert inside
    assert (inside.groups(), stretch.inner_text()) == (lost.groups(), before)
    held = re.search(r"up to (\d+) held", before)
    assert held
    expect(said).to_contain_text(f"held back up to {held[1]} requests")
    reasons = page.get_by_role("region", name="What requests waited for")
    expect(reasons.get_by_role("listitem").first).to_contain_text(lost[1])


def test_who_waited_are_those_of_the_stretch(open_files: Open, pictures: Path) -> None:
    """The link opened every request of the run, from its beginning on."""
    said, page = opened(open_files, pictures)
    said.get_by_role("button", name=re.compile(r"^requests of tenant")).click()
    expect(page.locator(".selected")).to_be_visible()
    expect(page.get_by_role("combobox", name="sort by")).to_have_value("wait")
    shown = page.locator(".requests-bar").get_by_role("status")
    expect(shown).to_contain_text(re.compile(r"\d+ of \d+ lanes"))
    waited = re.search(r"(\d+) of (\d+) lanes", shown.inner_text())
    assert waited
    assert 10 <= int(waited[1]) < int(waited[2]) / 2


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


def test_no_news_while_a_trace_is_read_is_not_called_good(
    new_page: Callable[..., Page], viewer_html: Path, late: Path
) -> None:
    page = new_page()
    page.goto(viewer_html.as_uri())
    page.evaluate(
        """() => {
            window.said = [];
            const look = () => {
                const line = document.querySelector(".verdict-line");
                if (line && document.querySelector(".load-line")) window.said.push(line.innerText);
            };
            new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
        }"""
    )
    page.set_input_files("[data-picker=files]", [late])
    page.locator(".overview[aria-busy=false]").wait_for(timeout=6 * ARRIVED_MS)
    said = page.evaluate("window.said")
    assert not [text for text in said if "Nothing held requests back" in text]
    estimates = [re.search(r"Nothing yet in the first ([\w .]+) of about (\d+) min", text) for text in said]
    known = [int(found[2]) for found in estimates if found]
    assert known
    assert all(abs(minutes - 50) <= 3 for minutes in known), known


def test_the_wall_clock_is_the_one_format_where_the_trace_has_it(
    new_page: Callable[..., Page], viewer_html: Path, late: Path
) -> None:
    """In the headline, under the pointer, in the panel and where one types a time."""
    page = new_page(timezone_id="UTC")
    page.goto(viewer_html.as_uri())
    page.set_input_files("[data-picker=files]", [late])
    page.locator(".overview[aria-busy=false]").wait_for(timeout=6 * ARRIVED_MS)
    said = page.get_by_role("status", name="Verdict")
    expect(said).to_contain_text(re.compile(r"From 12:46:(39|40) to 12:(49:59|50:00)"))
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
    said, page = opened(open_files, pictures)
    expect(said).to_contain_text(f"tenant {known}")
    expect(said).to_contain_text(
        "A tenant is a hash of its cache_salt: hashlib.blake2s(b'SALT', digest_size=8).hexdigest()"
    )
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
    culprits = page.get_by_role("region", name="Who held others back")
    expect(culprits.get_by_role("heading")).to_have_text("Who held others back in the worst their part")
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
