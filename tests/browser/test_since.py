"""Since when a check holds requests back, where it does so twice: the strip and the panel of a step agree."""

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
    from playwright.sync_api import Page

    Open = Callable[..., Page]

BEGIN = 2.0
"""When what causes the trouble comes, in seconds."""


def shown(open_files: Open, folder: Path, lines: list[dict[str, Any]], *flags: str) -> Page:
    """The page on a replay."""
    workload = folder / "load.jsonl"
    workload.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = replay(folder / "run", str(workload), "--vllm-version=0.33", "--advice=none", *flags)
    page = open_files(trace, state="tab=overview")
    page.locator(".overview[aria-busy=false]").wait_for(timeout=ARRIVED_MS)
    return page


def chats(number: int = 80, **more: object) -> list[dict[str, Any]]:
    """Small requests all the time."""
    fields = {"prompt_len": 300, "max_tokens": 20, **more}
    return [{"request_id": f"chat-{i}", "arrival_time": round(i / 20, 3), **fields} for i in range(number)]


def seconds(text: str) -> float:
    minutes, _, rest = text.rpartition(":")
    return 60 * float(minutes or 0) + float(rest.removesuffix(" s"))


def records(trace: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, next(trace.glob("*.steps.jsonl")).read_text().splitlines())


def test_the_panel_says_which_since_it_means(open_files: Open, tmp_path: Path) -> None:
    """The same check twice: the strip says when it was worst, the panel of a step of the other time says both."""
    rush = [
        {"request_id": f"{name}-{i}", "arrival_time": begin + i / 50, "prompt_len": 200, "max_tokens": 80}
        for name, begin, number in (("first", BEGIN, 20), ("second", 12.0, 60))
        for i in range(number)
    ]
    page = shown(open_files, tmp_path, chats(400) + rush, "--max-num-seqs=8")
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
