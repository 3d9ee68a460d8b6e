"""Hold figures of the viewer against the raw lines of a trace: `python scripts/check_viewer_figures.py [DIR]`.

DIR is a trace with recorded reasons; without one, a replay under pressure is made. The page is opened in Chromium and
read as a person reads it; beside it every figure is added up anew from the JSON lines, by this file alone: it imports
nothing of the package. Prints one line per figure and fails if one differs by more than its last digit.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["differences", "main"]

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "src" / "tokenyard" / "web" / "static" / "viewer.html"
WORKLOAD = ["chat", "--limit", "60", "--rate-scale", "10", "--gpu", "a10", "--max-model-len", "16384"]
WORKLOAD += ["--skip-refused", "--advice", "none", "--num-gpu-blocks-override", "1100"]
FIGURES = """() => Object.fromEntries([...document.querySelectorAll(".figures > div")].map((one) =>
    [one.querySelector("dt").textContent, [...one.querySelectorAll(".parts > *")].map((part) => part.textContent)]))"""
LATENCIES = """() => [...document.querySelectorAll(".latency tbody tr")].map((line) => [
    line.querySelector("th").firstChild.textContent.trim(),
    ...[...line.querySelectorAll("td")].map((one) => one.textContent)])"""
REASONS = """() => [...document.querySelectorAll(".bar-list li, .bar-list tr")]
    .map((line) => line.innerText.split(/[\\n\\t]+/))"""
TILES = """() => Object.fromEntries([...document.querySelectorAll(".tile")].map((one) =>
    [one.querySelector(".tile-name").textContent, one.querySelector(".tile-value").textContent]))"""
SELF = "self_preempted"
STEPS = ("mean", "p50", "p90", "p95", "p99", "max")


class Figure(NamedTuple):
    """One figure: as the page shows it, and as the lines add up."""

    name: str
    shown: str
    raw: float


# ---------------------------------------------------------------------------------------------------------------------
# From the lines.


def lines_of(trace: Path) -> dict[str, list[dict[str, Any]]]:
    """The records by event."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    (file,) = trace.glob("*.steps.jsonl")
    with file.open() as text:
        for line in text:
            record = json.loads(line)
            found[record["event"]].append(record)
    return found


def spread(values: Iterable[float]) -> dict[str, float]:
    column = np.array(list(values))
    percentiles = {name: float(np.percentile(column, int(name[1:]))) for name in ("p50", "p90", "p95", "p99")}
    return {"mean": float(column.mean()), **percentiles, "max": float(column.max())}


def latencies(ends: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    whole = [end for end in ends if end["finish_reason"] not in ("abort", "error")]
    several = [end for end in whole if end["num_output_tokens"] > 1]
    return {
        "queue": spread(end["first_scheduled_time"] - end["arrival_time"] for end in whole),
        "TTFT": spread(end["first_token_time"] - end["arrival_time"] for end in whole),
        "TPOT": spread(
            (end["finished_time"] - end["first_token_time"]) / (end["num_output_tokens"] - 1) for end in several
        ),
        "E2E": spread(end["finished_time"] - end["arrival_time"] for end in whole),
    }


def reasons(trace: dict[str, list[dict[str, Any]]], lengths: dict[int, float]) -> dict[str, list[float]]:
    """Steps, requests held back and seconds lost, by reason. A request that gave its own blocks up has its own."""
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0])

    def add(reason: str, held: int, step: int) -> None:
        if held:
            found[reason] = [sum(both) for both in zip(found[reason], (1, held, held * lengths[step]), strict=True)]

    for outcome in trace["admission_outcome"]:
        own = sum(each["reason"] == SELF for each in outcome.get("not_scheduled", ()))
        add(outcome.get("reason", ""), outcome.get("num_requests", 0) - own, outcome["step"])
        add(SELF, own, outcome["step"])
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Both beside each other.


def figures(page: Page, trace: dict[str, list[dict[str, Any]]]) -> Iterator[Figure]:
    """Every figure that is compared; the page has the trace open."""
    snapshots, ends = trace["step_snapshot"], trace["request_finished"]
    ts = np.array([snapshot["ts"] for snapshot in snapshots])
    last = max(trace["step_completed"][-1]["ts"], ts[-1])
    length = np.append(np.diff(ts), last - ts[-1])
    times = latencies(ends)
    page.keyboard.press("1")
    page.wait_for_selector(".overview[aria-busy=false]")
    tiles = page.evaluate(TILES)
    for name in ("TTFT", "TPOT", "E2E"):
        yield Figure(f"Overview, {name} p99", tiles[f"{name} p99"], times[name]["p99"])
    yield Figure("Overview, errors", tiles["Errors"], sum(end["finish_reason"] in ("abort", "error") for end in ends))
    page.keyboard.press("4")
    page.wait_for_selector(".statistics[aria-busy=false] .latency")
    for name, *cells in page.evaluate(LATENCIES):
        for step, text in zip(STEPS, cells, strict=True):
            if name in times:
                yield Figure(f"{name} {step}", text, times[name][step])
    yield from totals(page.evaluate(FIGURES), trace, length, last - ts[0])
    lengths = {snapshot["step"]: float(each) for snapshot, each in zip(snapshots, length, strict=True)}
    held = reasons(trace, lengths)
    for cells in page.evaluate(REASONS):
        reason = next((cell for cell in cells if cell in held), None)
        if reason is not None and len(cells) >= 4:
            for what, text, raw in zip(("steps", "held", "time lost"), cells[-3:], held.pop(reason), strict=True):
                yield Figure(f"{reason}, {what}", text, raw)


def totals(
    shown: dict[str, list[str]],
    trace: dict[str, list[dict[str, Any]]],
    length: np.ndarray[Any, np.dtype[np.float64]],
    seconds: float,
) -> Iterator[Figure]:
    """The section of figures. ``length``: of each step, in seconds."""
    snapshots, ends, lookups = (trace[name] for name in ("step_snapshot", "request_finished", "prefix_cache_lookup"))

    def part(figure: str, words: str) -> str:
        # What is left out stands for none: the lines have to say so as well.
        return next((text.replace(words, "") for text in shown[figure] if words in text), "0")

    yield Figure("steps", shown["steps"][0], len(snapshots))
    for name, key in (("running", "num_running"), ("waiting", "num_waiting")):
        values = np.array([snapshot[key] for snapshot in snapshots])
        over_time = float((values * length).sum() / length.sum())
        yield Figure(f"{name}, mean over time", part(name, "mean over time"), over_time)
        yield Figure(f"{name}, mean over steps", part(name, "mean over steps"), float(values.mean()))
        yield Figure(f"{name}, p50", part(name, "p50"), float(np.percentile(values, 50)))
        yield Figure(f"{name}, p95", part(name, "p95"), float(np.percentile(values, 95)))
        yield Figure(f"{name}, max", part(name, "max"), int(values.max()))
    used = max(1 - snapshot["free_blocks"] / snapshot["total_blocks"] for snapshot in snapshots)
    yield Figure("peak KV use", shown["peak KV use"][0], used)
    preempted = sum(len(decision["preempted_req_ids"]) for decision in trace["step_decision"])
    yield Figure("preemptions", shown["preemptions"][0], preempted)
    again = sum(end["recomputed_tokens"] for end in ends)
    yield Figure("tokens computed again", part("preemptions", "tokens computed again"), again)
    prompt = sum(lookup["total_prompt_tokens"] for lookup in lookups)
    hits = sum(lookup["local_hit_tokens"] for lookup in lookups) / prompt
    yield Figure("prefix hits, local", part("prefix hits", "local"), hits)
    fates = {name: number for number, name in (each.split(" ") for each in shown["requests"][0].split(", "))}
    yield Figure("arrived", fates["arrived"], len(trace["request_arrived"]))
    served = sum(end["finish_reason"] not in ("abort", "error", "refused") for end in ends)
    yield Figure("served", fates["served"], served)
    sampled = sum(completed["num_sampled_tokens"] for completed in trace["step_completed"])
    yield Figure("output tokens/s", part("throughput", "output tokens/s"), sampled / seconds)
    yield Figure("requests/s", part("throughput", "requests/s"), len(ends) / seconds)


NUMBER = r"([\d,]+(?:\.(\d+))?)"


def agrees(shown: str, raw: float) -> bool:
    """What is shown is the raw figure, rounded to its last digit."""
    text = shown.strip()
    if found := re.fullmatch(r"([\d,]+) h (\d+) min", text):
        return abs(int(found[1].replace(",", "")) * 3600 + int(found[2]) * 60 - raw) <= 60
    if found := re.fullmatch(r"(\d+) min (\d+) s", text):
        return abs(int(found[1]) * 60 + int(found[2]) - raw) <= 0.5001
    found = re.fullmatch(NUMBER + r" ?(ms|s|%)?", text)
    if found is None:
        return False
    scale = {"ms": 1e-3, "%": 1e-2}.get(found[3] or "", 1.0)
    digit = 10.0 ** -len(found[2] or "")
    return abs(float(found[1].replace(",", "")) * scale - raw) <= 0.5001 * digit * scale


def differences(page: Page, trace: Path) -> tuple[list[Figure], list[Figure]]:
    """Every figure of a trace that a page shows, and those that the lines say otherwise."""
    found = list(figures(page, lines_of(trace)))
    return found, [figure for figure in found if not agrees(figure.shown, figure.raw)]


def main() -> int:
    """Print every figure; 1 if one differs."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - a development tool

    chromium = shutil.which("chromium") or sys.exit("There is no chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        trace = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "run"
        if len(sys.argv) == 1:
            command = [sys.executable, "-m", "tokenyard.cli.main", "run", *WORKLOAD, "--trace", str(trace)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(PAGE.as_uri())
        page.set_input_files("[data-picker=files]", sorted(trace.glob("*.jsonl")))
        page.locator(".run").wait_for()
        page.locator(".load-line").wait_for(state="detached")
        found, wrong = differences(page, trace)
        browser.close()
    for figure in found:
        print(f"{'DIFFERS' if figure in wrong else 'ok':8}{figure.name:32}{figure.shown:>16}   {figure.raw:.6g}")
    print(f"{len(found)} figures, {len(wrong)} differ from the raw lines")
    return 1 if wrong or len(found) < 30 else 0


if __name__ == "__main__":
    sys.exit(main())
