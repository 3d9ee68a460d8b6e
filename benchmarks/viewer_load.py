"""How long the viewer takes to load a large trace in Chromium, and how much memory it holds.

    .venv/bin/python benchmarks/viewer_load.py                 replays a workload first (500 MB of request records)
    .venv/bin/python benchmarks/viewer_load.py --trace DIR     the trace in DIR

Prints one line per figure. The first picture is there when the steps file is read and drawn; loading is complete when
every request record is beside its step. Memory is the RAM of the page's process, workers included, pages that it shares
with other processes counted in full.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "src/tokenyard/web/static/viewer.html"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
WORKLOAD = [
    *["chat", "--limit", "290", "--rate-scale", "20", "--gpu", "a10", "--max-model-len", "16384", "--skip-refused"],
    "--record-requests",
]
LOADED = """() => {
  if (!document.querySelector(".run canvas")) return "";
  return document.querySelector("header .token.records") ? "complete" : "steps";
}"""
"""The header counts request records once they are there."""
WATCH_BLOCKING = """() => {
  window.longest = 0;
  let last = performance.now();
  const beat = () => {
    const now = performance.now();
    window.longest = Math.max(window.longest, now - last);
    last = now;
    setTimeout(beat);
  };
  beat();
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="directory of a trace; default: a replay into a scratch directory")
    parser.add_argument("--page", type=Path, default=PAGE, help="the viewer to measure")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory() as scratch:
        trace = options.trace or replay(Path(scratch))
        files = sorted(trace.glob("sched_trace.*.jsonl"), reverse=True)
        for file in files:
            print(f"{file.name}: {file.stat().st_size / 1e6:.0f} MB")
        for number in range(options.rounds):
            measure(chromium, options.page, files, number)


def replay(directory: Path) -> Path:
    """A trace of some 8,000 steps with 64 of each queue recorded in each."""
    command = [sys.executable, "-m", "tokenyard.cli.main", "run", *WORKLOAD, "--trace", str(directory)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return directory


def measure(chromium: str, page_file: Path, files: list[Path], number: int) -> None:
    """Load the trace once in a fresh browser and print what it took."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("input[type=file]", state="attached")
        page.evaluate(WATCH_BLOCKING)
        began = time.perf_counter()
        page.locator("input[type=file]").first.set_input_files([str(file) for file in files])
        first = wait_for(page, ("steps", "complete"), began)
        peak = 0
        while page.evaluate(LOADED) != "complete":
            peak = max(peak, page_memory())
            time.sleep(0.1)
        complete = time.perf_counter() - began
        page.wait_for_timeout(2_000)
        held = page_memory()
        print(
            f"round {number + 1}: first picture {first:.2f} s, complete {complete:.2f} s, "
            f"longest block {page.evaluate('window.longest'):.0f} ms, "
            f"memory {held / 1e9:.2f} GB, while loading {max(peak, held) / 1e9:.2f} GB"
        )
        browser.close()


def wait_for(page: Page, stages: tuple[str, ...], began: float) -> float:
    """Seconds until the page shows a trace at one of the stages."""
    while page.evaluate(LOADED) not in stages:
        time.sleep(0.02)
    return time.perf_counter() - began


def page_memory() -> int:
    """Bytes of RAM of the largest renderer among the processes below this one: it holds the page and its workers."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    below, grown = {os.getpid()}, True
    while grown:
        more = {child for child, parent in parents.items() if parent in below} - below
        below |= more
        grown = bool(more)
    return max((resident(process) for process in below), default=0)


def resident(process: int) -> int:
    """Bytes of RAM of a renderer; 0 for any other process."""
    folder = Path(f"/proc/{process}")
    try:
        if "--type=renderer" not in (folder / "cmdline").read_text():
            return 0
        (line,) = [line for line in (folder / "status").read_text().splitlines() if line.startswith("VmRSS:")]
    except (OSError, ValueError):
        return 0
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
