"""The first screen alone says who held others back, since when, for which reason and what to change; three causes."""

from __future__ import annotations

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
    for found in re.finditer(r"(?:From|since) ([\d:.]+(?: s)?)", text):
        yield seconds(found[1])


def records(trace: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, next(trace.glob("*.steps.jsonl")).read_text().splitlines())


def test_few_long_prompts_that_take_the_token_budget(open_files: Open, tmp_path: Path) -> None:
    long = [
        {"request_id": f"nightly-{i}", "arrival_time": BEGIN, "prompt_len": 20_000 + i, "max_tokens": 4}
        for i in range(4)
    ]
    said, page = verdict(open_files, tmp_path, chats() + long, "--max-num-batched-tokens=1024")
    expect(said).to_contain_text("the token budget (1,024 tokens a step) held back up to")
    expect(said).to_contain_text(re.compile(r"the \d requests of nightly- took \d\d\.\d % of its tokens"))
    expect(said).to_contain_text("let them wait instead: scheduling_policy priority (now fcfs)")
    assert BEGIN <= min(begins(said)) < BEGIN + 0.5
    said.get_by_role("button", name=re.compile("requests of nightly-")).click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value('req:"nightly-"')


def test_long_answers_that_hold_the_kv_blocks(open_files: Open, tmp_path: Path) -> None:
    long = [
        {"request_id": f"story-{i}", "arrival_time": BEGIN, "prompt_len": 300 + i, "max_tokens": 900} for i in range(14)
    ]
    flags = ("--num-gpu-blocks-override=420", "--no-scheduler-reserve-full-isl")
    said, page = verdict(open_files, tmp_path, chats(240) + long, *flags)
    expect(said).to_contain_text("missing KV blocks (kv_blocks) held back up to")
    expect(said).to_contain_text(re.compile(r"the \d+ requests of story- held \d\d\.\d % of the KV in use"))
    expect(said).to_contain_text("raise num_gpu_blocks_override (now 420)")
    assert min(begins(said)) >= BEGIN
    lost = sum(len(record.get("preempted_req_ids") or ()) for record in records(tmp_path / "run"))
    assert lost > 0
    tiles = page.get_by_role("list", name="Figures")
    expect(tiles.get_by_role("button", name=re.compile("^Preemptions"))).to_contain_text(str(lost))


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
    expect(said).to_contain_text("sql, legal had them")
    expect(said).to_contain_text("raise max_loras (now 2)")
    assert BEGIN <= min(begins(said)) < BEGIN + 0.5
    page.get_by_role("region", name="Who held others back").get_by_role("button", name="sql").click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value('lora:"sql"')
