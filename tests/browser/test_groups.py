"""Requests in groups are what `tokenyard run --by` prints; a group leads to its requests; columns can be chosen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser.conftest import groups_shown, settled
from tests.integration.command import call

from tokenyard.units import count, duration, milliseconds, percent
from viewer_sample import PRESSURE, crowded

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Open = Callable[..., Page]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A trace, and what the terminal says of its classes."""
    folder = tmp_path_factory.mktemp("groups")
    (folder / "crowded.jsonl").write_text(crowded())
    asked = ["--no-async-scheduling", "--trace", str(folder / "run"), "--by=prompt_tokens", "--advice=none", "--json"]
    told = call("run", str(folder / "crowded.jsonl"), *PRESSURE, *asked, cwd=folder).stdout
    return folder / "run", json.loads(told)["classes"]


def test_groups_are_the_classes_of_the_terminal(open_files: Open, run: tuple[Path, list[dict[str, Any]]]) -> None:
    trace, classes = run
    page = open_files(trace, state="tab=requests&show=groups&group=prompt")
    page.locator(".group-table tbody tr").first.wait_for()
    shown = groups_shown(page)
    assert len(classes) > 1
    assert set(shown) == {each["name"].removeprefix("prompt_tokens ") for each in classes}
    for each in classes:
        group = shown[each["name"].removeprefix("prompt_tokens ")]
        assert group["requests"] == count(each["requests"])
        assert group["prompt tokens"] == count(each["prompt_tokens"])
        assert group["output tokens"] == count(each["output_tokens"])
        assert group["preempted"] == count(each["preemptions"])
        assert group["waited"] == duration(each["waited_s"])
        assert group["mostly for"].endswith(each["waited_for"])
        for head, figures in (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("E2E", "e2e_ms")):
            assert group[f"{head} p99"] == milliseconds(each[figures]["p99"])
            assert group[f"{head} p50"] == milliseconds(each[figures]["p50"])


def test_groups_have_their_share_within_bounds(open_files: Open, run: tuple[Path, list[dict[str, Any]]]) -> None:
    """What `report --by --slo` counts of each class; without bounds there is no such column."""
    trace, classes = run
    page = open_files(trace, state="tab=requests&show=groups&group=prompt")
    page.locator(".group-table tbody tr").first.wait_for()
    assert "good" not in next(iter(groups_shown(page).values()))
    bound = max(each["e2e_ms"]["p50"] for each in classes)
    asked = ["--by=prompt_tokens", f"--slo=e2e:{bound:g}", "--json"]
    told = json.loads(call("report", str(trace), *asked, cwd=trace.parent).stdout)["classes"]
    page = open_files(trace, state=f"tab=requests&show=groups&group=prompt&slo-e2e={bound:g}")
    page.locator(".group-table tbody tr").first.wait_for()
    shown = groups_shown(page)
    assert len({each["goodput"]["share"] for each in told}) > 1
    for each in told:
        assert shown[each["name"].removeprefix("prompt_tokens ")]["good"] == percent(each["goodput"]["share"])


def test_models_are_adapters_and_the_base_model(open_files: Open, tmp_path: Path) -> None:
    """A request that names no adapter asks for the run's model; `model:` in the filter means the same requests."""
    asked = [("base", None), ("sql", "sql"), ("sql2", "sql"), ("legal", "legal"), ("base2", None), ("base3", None)]
    lines = [
        {"request_id": name, "prompt_len": 300 + 10 * at, "max_tokens": 6} | ({"lora_name": lora} if lora else {})
        for at, (name, lora) in enumerate(asked)
    ]
    (tmp_path / "three.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    slots = ["--enable-lora", "--max-loras=1", "--no-async-scheduling", "--trace=run"]
    made = call("run", "three.jsonl", *slots, "--by=lora_name", "--advice=none", "--json", cwd=tmp_path)
    classes = {each["name"].removeprefix("lora_name "): each for each in json.loads(made.stdout)["classes"]}
    page = open_files(tmp_path / "run", state="tab=requests&show=groups&group=model")
    rows = page.locator(".group-table tbody tr")
    expect(rows).to_have_count(3)
    groups = groups_shown(page)
    for model, name in {"llama-3.1-8b": "(none)", "sql": "sql", "legal": "legal"}.items():
        shown = groups[model]
        assert shown["requests"] == count(classes[name]["requests"])
        assert shown["prompt tokens"] == count(classes[name]["prompt_tokens"])
        assert shown["TTFT p99"] == milliseconds(classes[name]["ttft_ms"]["p99"])
        assert shown["waited"] == duration(classes[name]["waited_s"])
    page.get_by_role("button", name="sql", exact=True).click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value("model:sql")
    expect(page.locator(".table-sum")).to_contain_text("2 requests")
    field = page.get_by_label("Filter", exact=True)
    for key in ("End", *["Backspace"] * len("sql")):
        field.press(key)
    field.press_sequentially("llama")
    expect(page.locator(".table-sum")).to_contain_text("3 requests")


def test_users_are_the_classes_that_policies_are_fair_to(open_files: Open, tmp_path: Path) -> None:
    """What stands before the slash in a job, as VTC has it; `user:` in the filter means the same requests."""
    jobs = ["ada/first", "ada/second", "bo/first", "bo/first", "bo/first"]
    lines = [
        {"request_id": f"r{at}", "arrival_time": at / 10, "prompt_len": 200 + at, "max_tokens": 8, "job_id": job}
        for at, job in enumerate(jobs)
    ]
    (tmp_path / "users.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    fair = ["--scheduling-policy=vtc", "--no-async-scheduling", "--trace=run"]
    made = call("run", "users.jsonl", *fair, "--by=user", "--advice=none", "--json", cwd=tmp_path)
    classes = {each["name"].removeprefix("user "): each for each in json.loads(made.stdout)["classes"]}
    assert set(classes) == {"ada", "bo"}
    page = open_files(tmp_path / "run", state="tab=requests&show=groups&group=user")
    expect(page.locator(".group-table tbody tr")).to_have_count(2)
    for name, group in groups_shown(page).items():
        assert group["requests"] == count(classes[name]["requests"])
        assert group["TTFT p99"] == milliseconds(classes[name]["ttft_ms"]["p99"])
    page.get_by_role("button", name="ada", exact=True).click()
    expect(page.get_by_label("Filter", exact=True)).to_have_value("user:ada")
    expect(page.locator(".table-sum")).to_contain_text("2 requests")


def test_a_group_leads_to_its_requests(open_files: Open, run: tuple[Path, list[dict[str, Any]]]) -> None:
    trace, classes = run
    page = open_files(trace, state="tab=requests&show=groups&group=prompt")
    page.get_by_role("columnheader", name="requests", exact=True).get_by_role("button").click()
    first = page.locator(".group-table tbody tr").first
    expect(first.locator("td.number").first).to_have_text(count(max(each["requests"] for each in classes)))
    name = first.locator("th").inner_text()
    requests = first.locator("td.number").first.inner_text()
    first.get_by_role("button", name=name).click()
    expect(page.locator(".table-sum")).to_contain_text(f"{requests} requests")
    assert page.get_by_label("Filter", exact=True).input_value().startswith("prompt:")


def test_columns_can_be_chosen_and_the_address_keeps_them(
    open_files: Open, run: tuple[Path, list[dict[str, Any]]]
) -> None:
    page = open_files(run[0], state="tab=requests&show=table")
    page.get_by_text("Columns (").click()
    page.get_by_label("job", exact=True).check()
    page.get_by_label("E2E", exact=True).uncheck()
    expect(page.get_by_role("columnheader", name="job")).to_be_visible()
    expect(page.get_by_role("columnheader", name="E2E")).to_have_count(0)
    settled(page)
    state = page.evaluate("location.hash").removeprefix("#")
    again = open_files(run[0], state=state)
    expect(again.get_by_role("columnheader", name="job")).to_be_visible()
    expect(again.get_by_role("columnheader", name="E2E")).to_have_count(0)
    again.get_by_text("Columns (").click()
    again.get_by_label("for token_budget").check()
    again.get_by_role("columnheader", name="for token_budget").get_by_role("button").click()
    expect(again.get_by_role("columnheader", name="for token_budget")).to_have_attribute("aria-sort", "descending")


def test_heads_of_numbers_end_where_the_numbers_do(open_files: Open, run: tuple[Path, list[dict[str, Any]]]) -> None:
    page = open_files(run[0], state="tab=requests&show=groups")
    page.locator(".group-table tbody tr").first.wait_for()
    off = page.evaluate(
        """() => {
            const right = (one) => {
                const range = document.createRange();
                range.selectNodeContents(one);
                return Math.max(...[...range.getClientRects()].map((box) => box.right));
            };
            const [line] = document.querySelectorAll(".group-table tbody tr");
            return [...document.querySelectorAll(".group-table thead th")].flatMap((head, at) => {
                if (!head.matches(".number") || head.innerText.includes("\u2193")) return [];
                const words = head.querySelector("button").firstChild;
                return Math.abs(right(words) - right(line.children[at])) > 2 ? [head.innerText] : [];
            });
        }"""
    )
    assert off == []
