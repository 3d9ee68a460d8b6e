"""The first screen alone says who held others back, since when, for which reason and what to change; three causes."""

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

BEGIN = 2.0
"""When what causes the trouble comes, in seconds."""


def verdict(open_files: Open, folder: Path, lines: list[dict[str, Any]], *flags: str) -> tuple[Locator, Page]:
    """What the page says first of a replay."""
    workload = folder / "load.jsonl"
    workload.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = replay(folder / "run", str(workload), "--vllm-version=0.33", "--advice=none", *flags)
    page = open_files(trace, state="tab=overview")
    page.locator(".overview[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    return page.get_by_role("status", name="Verdict"), page


def chats(number: int = 80, **more: object) -> list[dict[str, Any]]:
    """Small requests all the time."""
    fields = {"prompt_len": 300, "max_tokens": 20, **more}
    return [{"request_id": f"chat-{i}", "arrival_time": round(i / 20, 3), **fields} for i in range(number)]


def seconds(text: str) -> float:
    minutes, _, rest = text.rpartition(":")
    return 60 * float(minutes or 0) + float(rest.removesuffix(" s"))


def begins(said: Locator) -> Iterator[float]:
    """The times that the verdict names."""
    text = said.inner_text()
    for found in re.finditer(r"(?:From|Since) ([\d:.]+(?: s)?)", text):
        yield seconds(found[1])


def all_of_it(page: Page) -> Page:
    """The lanes of the whole run, after those that were there in the stretch."""
    lanes = page.locator(".requests-bar [role=status]")
    expect(lanes).to_contain_text("there in the selection")
    lanes.get_by_role("button", name="whole run").click()
    return page


def records(trace: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, next(trace.glob("*.steps.jsonl")).read_text().splitlines())


def test_few_long_prompts_that_take_the_token_budget(open_files: Open, tmp_path: Path) -> None:
    long = [
        {"request_id": f"nightly-{i}", "arrival_time": BEGIN, "prompt_len": 20_000 + i, "max_tokens": 4}
        for i in range(4)
    ]
    said, page = verdict(open_files, tmp_path, chats() + long, "--max-num-batched-tokens=1024")
    expect(said).to_contain_text("the token budget (1,024 tokens a step) held back up to")
    expect(said).to_contain_text(
        re.compile(
            r"the \d requests of nightly- \(prompts of about 20K tokens, answers of about 4\) "
            r"took \d\d\.\d % of its tokens"
        )
    )
    expect(said).to_contain_text("limit requests named nightly-")
    expect(said).to_contain_text("set scheduling_policy to priority, with a later priority for them (now fcfs)")
    assert BEGIN <= min(begins(said)) < BEGIN + 0.5
    said.get_by_role("button", name=re.compile("requests of nightly-")).click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value('req:"nightly-"')


def test_a_tenant_is_named_where_ids_tell_nothing(open_files: Open, tmp_path: Path) -> None:
    """Ids as a server's front end makes them, and more running requests than a step of the trace names."""
    lines = [{**line, "cache_salt": f"team-{i % 3}", "max_tokens": 200} for i, line in enumerate(chats(200))]
    lines += [
        {"request_id": "", "arrival_time": BEGIN + i / 10, "prompt_len": 9_000, "max_tokens": 4, "cache_salt": "crawl"}
        for i in range(24)
    ]
    for i, line in enumerate(lines):
        line["request_id"] = f"chatcmpl-{hashlib.sha256(str(i).encode()).hexdigest()[:32]}"
    said, page = verdict(open_files, tmp_path, lines, "--max-num-batched-tokens=1024")
    arrived = [record for record in records(tmp_path / "run") if record["event"] == "request_arrived"]
    (tenant,) = {record["cache_salt_hash"] for record in arrived if record["num_prompt_tokens"] == 9_000}
    expect(said).to_contain_text("the token budget (1,024 tokens a step) held back up to")
    expect(said).to_contain_text(
        re.compile(
            rf"the \d+ requests of tenant {tenant} \(prompts of about 9K tokens, answers of about 4\) "
            r"took [5-9]\d\.\d % of its tokens"
        )
    )
    assert any(record.get("scheduled_running_req_ids_omitted") for record in records(tmp_path / "run"))
    culprits = page.get_by_role("region", name="Who held others back")
    expect(culprits.get_by_role("listitem").first).to_contain_text("tenant")
    said.get_by_role("button", name=re.compile(r"the \d+ requests of tenant")).click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value(f'tenant:"{tenant}"')
    all_of_it(page).get_by_text("24 of 224 lanes").wait_for()


def test_long_prompts_are_named_where_nothing_else_is_known(open_files: Open, tmp_path: Path) -> None:
    lines = chats(120)
    lines += [{"arrival_time": BEGIN + i / 20, "prompt_len": 6_000 + i, "max_tokens": 4} for i in range(30)]
    for i, line in enumerate(lines):
        line["request_id"] = f"cmpl{hashlib.sha256(str(i).encode()).hexdigest()[:24]}"
    said, page = verdict(open_files, tmp_path, lines, "--max-num-batched-tokens=1024")
    expect(said).to_contain_text(
        re.compile(r"the \d+ requests with prompts of 4,096 tokens or more \(prompts of about 6K")
    )
    said.get_by_role("button", name=re.compile("requests with prompts")).click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value("prompt:4096..")
    all_of_it(page).get_by_text("30 of 150 lanes").wait_for()


def test_long_answers_are_named_where_nothing_else_is_known_of_those_who_run(open_files: Open, tmp_path: Path) -> None:
    lines = chats(200)
    lines += [{"arrival_time": BEGIN + i / 10, "prompt_len": 200, "max_tokens": 700 + i} for i in range(24)]
    for i, line in enumerate(lines):
        line["request_id"] = f"cmpl{hashlib.sha256(str(i).encode()).hexdigest()[:24]}"
    said, page = verdict(open_files, tmp_path, lines, "--max-num-seqs=8")
    expect(said).to_contain_text(
        re.compile(r"the 24 requests with answers of 256 tokens or more .* were 9\d\.\d % of the running")
    )
    said.get_by_role("button", name=re.compile("requests with answers")).click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value("output:256..")
    all_of_it(page).get_by_text("24 of 224 lanes").wait_for()


def test_requests_that_always_come_are_not_blamed_for_a_rush(open_files: Open, tmp_path: Path) -> None:
    """All who run have a seat: those are named of whom more run than ever."""
    lines = chats(200, max_tokens=60)
    lines += [
        {"request_id": f"promo-{i}", "arrival_time": round(BEGIN + i / 40, 3), "prompt_len": 200, "max_tokens": 60}
        for i in range(60)
    ]
    said, _ = verdict(open_files, tmp_path, lines, "--max-num-seqs=8")
    expect(said).to_contain_text("max_num_seqs (8 running) held back up to")
    expect(said).not_to_contain_text(re.compile("requests of chat- held"))
    expect(said).to_contain_text(
        re.compile(r"the waiting was by requests of \w+- \(\d\d\.\d %\) and \w+- \(\d\d\.\d %\)")
    )
    value = re.search(
        r"raise max_num_seqs to (\d+) \(now 8\)\. Why: .* At the worst (\d+) ran and (\d+) waited for a seat",
        said.inner_text(),
    )
    assert value
    steps = {record["step"]: record for record in records(tmp_path / "run") if record["event"] == "step_snapshot"}
    held = [
        (steps[record["step"]]["num_running"], record["num_requests"])
        for record in records(tmp_path / "run")
        if record["event"] == "admission_outcome" and record.get("reason") == "max_num_seqs"
    ]
    ran, waited = max(held, key=sum)
    assert tuple(map(int, value.groups())) == (ran + waited, ran, waited)


def test_long_answers_that_hold_the_kv_blocks(open_files: Open, tmp_path: Path) -> None:
    long = [
        {"request_id": f"story-{i}", "arrival_time": BEGIN, "prompt_len": 300 + i, "max_tokens": 900} for i in range(14)
    ]
    flags = ("--num-gpu-blocks-override=420", "--no-scheduler-reserve-full-isl")
    said, page = verdict(open_files, tmp_path, chats(240) + long, *flags)
    expect(said).to_contain_text("missing KV blocks (kv_blocks) held back up to")
    expect(said).to_contain_text(
        re.compile(
            r"the \d+ requests of story- \(prompts of about 3\d\d tokens, answers of about \d+\) "
            r"held \d\d\.\d % of the KV in use"
        )
    )
    blocks = re.search(r"raise num_gpu_blocks_override to (\d+) \(now 420\)", said.inner_text())
    assert blocks
    assert int(blocks[1]) > 420
    assert min(begins(said)) >= BEGIN
    lost = sum(len(record.get("preempted_req_ids") or ()) for record in records(tmp_path / "run"))
    assert lost > 0
    tiles = page.get_by_role("list", name="Figures")
    expect(tiles.get_by_role("button", name=re.compile("^Preemptions"))).to_contain_text(str(lost))


def test_a_better_priority_that_keeps_others_waiting(open_files: Open, tmp_path: Path) -> None:
    """The request first by priority, those that waited for it, until when; and another priority, and more seats."""
    lines = [{**line, "priority": 5, "cache_salt": "shop"} for line in chats(240)]
    lines += [
        {"request_id": f"eval-{i}", "arrival_time": BEGIN + i / 50, "prompt_len": 200, "max_tokens": 120, "priority": 0}
        for i in range(60)
    ]
    said, page = verdict(open_files, tmp_path, lines, "--max-num-seqs=16", "--scheduling-policy=priority")
    expect(said).to_contain_text("let in first by their priority (0 before 5)")
    expect(said).to_contain_text(re.compile(r"of the waiting was by requests of (tenant|chat-)"))
    expect(said).to_contain_text(
        re.compile(r"set priority of .* to 5 or more \(now 0\)\..*or raise max_num_seqs to \d+")
    )
    spoken = said.inner_text()
    begun, over = re.search(r"From ([\d:.]+(?: s)?) to ([\d:.]+(?: s)?), worst", spoken).groups()  # type: ignore[union-attr]
    waits = [
        (record["first_scheduled_time"] - record["arrival_time"], record["first_scheduled_time"])
        for record in records(tmp_path / "run")
        if record["event"] == "request_finished"
    ]
    last = max(left for waited, left in waits if waited > 0.2)
    assert BEGIN <= seconds(begun) < BEGIN + 0.5
    assert abs(seconds(over) - last) < 0.5
    most = re.search(r"raise max_num_seqs to (\d+)", spoken)
    assert most
    assert int(most[1]) > 16
    said.get_by_role("button", name=re.compile("^requests of")).click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value(re.compile("^(tenant|req):"))


def test_the_check_is_credited_with_its_own_part(open_files: Open, tmp_path: Path) -> None:
    """Adapters without a slot and, at the same time, too few seats: the figure is of the one that is named."""
    lines = chats(120, max_tokens=40)
    lines += [
        {
            "request_id": f"t{i}",
            "arrival_time": BEGIN + i / 40,
            "prompt_len": 300,
            "max_tokens": 200,
            "lora_name": f"a{i % 5}",
        }
        for i in range(60)
    ]
    said, page = verdict(open_files, tmp_path, lines, "--enable-lora", "--max-loras=2", "--max-num-seqs=16")
    found = re.search(
        r"\(([\dhmins. ]+) of waiting(?: in the worst)?, of ([\dhmins. ]+) for all reasons", said.inner_text()
    )
    assert found
    assert found[1] != found[2]
    stretch = page.get_by_role("region", name="Worst stretches").get_by_role("listitem").first
    expect(stretch).to_contain_text(found[2])


def test_adapters_that_hold_the_slots(open_files: Open, tmp_path: Path) -> None:
    """Three adapters, two slots, and trouble in so small a part of the run that the whole run's advice names none."""
    lines = chats(1200, max_tokens=8)
    asked = ("sql", "legal", "mail")
    lines += [
        {"request_id": f"tuned-{i}", "arrival_time": BEGIN, "prompt_len": 200, "max_tokens": 250, "lora_name": asked[i]}
        for i in range(3)
    ]
    said, page = verdict(open_files, tmp_path, lines, "--enable-lora", "--max-loras=2")
    expect(said).to_contain_text("the 2 slots for LoRA adapters (max_loras) held back up to 1 request")
    expect(said).to_contain_text(re.compile(r"sql \(\d\d\.\d %\), legal \(\d\d\.\d %\) had them"))
    expect(said).to_contain_text("Requests of one moment asked for up to 3 adapters.")
    expect(said).to_contain_text("raise max_loras to 3 (now 2)")
    assert BEGIN - 0.05 <= min(begins(said)) < BEGIN + 0.5, "from the step that ran then"
    page.get_by_role("region", name="Who held others back").get_by_role("button", name="sql").click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value('lora:"sql"')


def test_adapters_that_came_for_a_while_beside_those_that_are_always_asked_for(
    open_files: Open, tmp_path: Path
) -> None:
    """The holders of slots change every moment: of four adapters for two slots the two that were new are named."""
    asked = ("de", "fr", "ja", "ko")
    lines: list[dict[str, Any]] = [
        {
            "request_id": f"r{i}-{name}",
            "arrival_time": (BEGIN if name in asked[2:] else 0.0) + i / 4,
            "prompt_len": 200,
            "max_tokens": 20,
            "lora_name": name,
        }
        for name in asked
        for i in range(8 if name in asked[2:] else 40)
    ]
    lines.sort(key=lambda line: line["arrival_time"])
    said, page = verdict(open_files, tmp_path, lines, "--enable-lora", "--max-loras=2")
    expect(said).to_contain_text(
        re.compile(r"adapters ja and ko \(16 requests\) were asked for from 2\.00 s to 3\.75 s alone, beside others")
    )
    expect(said).to_contain_text("raise max_loras to 4 (now 2)")
    said.get_by_role("button", name=re.compile("adapters ja and ko")).click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value('lora:"ja" lora:"ko"')


def test_memory_is_to_be_raised_to_so_many_blocks(open_files: Open, tmp_path: Path) -> None:
    """A share of the GPU's memory is no number that a trace gives: the blocks that all needed at the worst are."""
    lines = chats(200, prompt_len=3_000, max_tokens=400)
    said, page = verdict(
        open_files, tmp_path, lines, "--gpu=a10", "--model=meta-llama/Llama-3.1-8B-Instruct", "--max-model-len=8192"
    )
    found = re.search(
        r"raise gpu_memory_utilization to what gives ([\d,]+) KV blocks \(now 0\.\d+\)"
        r".* At the worst (\d+) ran and (\d+) waited: all of them would need"
        r" about ([\d,]+) blocks, ([\d.]+) times the ([\d,]+) that are there",
        said.inner_text(),
    )
    assert found
    steps = {record["step"]: record for record in records(tmp_path / "run") if record["event"] == "step_snapshot"}
    held = [
        (steps[record["step"]], record["num_requests"])
        for record in records(tmp_path / "run")
        if record["event"] == "admission_outcome" and str(record.get("reason")).startswith("kv_")
    ]
    worst, waited = max(held, key=lambda each: each[0]["num_running"] + each[1])
    used, running = worst["total_blocks"] - worst["free_blocks"], worst["num_running"]
    needed = -(-used * (running + waited) // running)
    told = [int(each.replace(",", "")) for each in (found[1], found[2], found[3], found[4], found[6])]
    assert told == [needed, running, waited, needed, worst["total_blocks"]]
    assert found[5] == f"{needed / worst['total_blocks']:.1f}"
    page.get_by_role("tab", name="Statistics").click()
    expect(page.locator("section.advice li").first).to_contain_text(f"to what gives {found[1]} KV blocks")


def test_the_panel_says_which_since_it_means(open_files: Open, tmp_path: Path) -> None:
    """The same check twice: the strip says when it was worst, the panel of a step of the other time says both."""
    rush = [
        {"request_id": f"{name}-{i}", "arrival_time": begin + i / 50, "prompt_len": 200, "max_tokens": 80}
        for name, begin, number in (("first", BEGIN, 20), ("second", 12.0, 60))
        for i in range(number)
    ]
    _, page = verdict(open_files, tmp_path, chats(400) + rush, "--max-num-seqs=8")
    page.get_by_role("tab", name="Timeline").click()
    strip = page.get_by_role("list", name="Reasons in the run").locator(".blocked-item").first
    expect(strip).to_contain_text("worst since")
    told = re.search(r"worst since ([\d:.]+(?: s)?)", strip.inner_text())
    assert told
    assert seconds(told[1]) > 11
    early = next(each["step"] for each in records(tmp_path / "run") if (each.get("num_requests") or 0) > 5)
    page.goto(page.url.split("#")[0] + f"#tab=timeline&step={early}")
    panel = page.get_by_role("complementary", name="What is selected")
    expect(panel).to_contain_text(
        re.compile(rf"held back for it since 2\.\d+ s, step [\d,]+; elsewhere, where it was worst, since {told[1]}")
    )
    panel.get_by_role("button", name="Close the panel").click()
    strip.click()
    expect(panel).to_contain_text(f"held back for it since {told[1]}, step")
    expect(panel).not_to_contain_text("elsewhere")
