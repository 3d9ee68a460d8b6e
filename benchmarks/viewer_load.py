"""How long the viewer takes to load traces in Chromium, how much memory it holds, and how smoothly it moves.

    .venv/bin/python benchmarks/viewer_load.py                  traces of 100,000, 560,000 (1.4 GB) and 1,000,000 steps
    .venv/bin/python benchmarks/viewer_load.py --steps 10000    of so many
    .venv/bin/python benchmarks/viewer_load.py --trace DIR      the trace in DIR, with its request records

The traces are one replay of a busy chat server, again and again with other names and later times. Prints a line per
trace. The first picture is there when the Overview is drawn for the first time, be it of the first steps; loading is
complete when nothing is read any more and the verdict stands. Memory is the RAM of the page's process, workers
included, pages that it shares with other processes counted in full. Frames are those that the browser draws in a second
while the picture, zoomed to a quarter of the run, is moved by keys; the longest block is the longest time for which the
page did not answer, until the verdict stood.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "src/tokenyard/web/static/viewer.html"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
WORKLOAD = ["chat", "--limit", "200", "--rate-scale", "10", "--gpu", "a10", "--max-model-len", "16384"]
WORKLOAD += ["--skip-refused", "--advice", "none"]
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
COUNT_FRAMES = """() => {
  window.frames_drawn = [];
  const frame = (now) => { window.frames_drawn.push(now); if (window.frames_drawn) requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
}"""
DRAWN = "!!document.querySelector('.tracks canvas')"
COMPLETE = """!document.querySelector('.load-line') &&
    !!document.querySelector('.overview[aria-busy=false] .verdict-line strong')"""
MOVED_S = 4.0
HEAD = ("steps", "MB", "first picture", "complete", "longest block", "memory", "while loading", "Overview", "Timeline")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="directory of a trace, in place of made ones")
    parser.add_argument("--steps", type=int, nargs="+", default=[100_000, 560_000, 1_000_000])
    parser.add_argument("--page", type=Path, default=PAGE, help="the viewer to measure")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is missing: apt-get install chromium")
    print(" | ".join(HEAD))
    with tempfile.TemporaryDirectory() as scratch:
        for files in [sorted(options.trace.glob("*.jsonl"))] if options.trace else made(Path(scratch), options.steps):
            print(" | ".join(measure(chromium, options.page, files)), flush=True)


def made(folder: Path, sizes: list[int]) -> Iterator[list[Path]]:
    """A trace of each size, one at a time."""
    command = [sys.executable, "-m", "tokenyard.cli.main", "run", *WORKLOAD, "--trace", str(folder / "replay")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (base,) = (folder / "replay").glob("*.steps.jsonl")
    head, *lines = base.read_text().splitlines(keepends=True)
    for size in sizes:
        file = folder / f"sched_trace.fcfs-{size}.steps.jsonl"
        with file.open("w") as out:
            out.write(head)
            out.writelines(repeated(lines, size))
        yield [file]
        file.unlink()


_SHIFTED = re.compile(r'"(step|ts|[a-z_]+_time)":([0-9][0-9.e+-]*)|"chat_')


def repeated(lines: list[str], steps: int) -> Iterator[str]:
    """The lines again and again, until there are so many steps: numbers and times go on, requests are others."""
    numbers = [int(found[1]) for line in lines if (found := re.search(r'"step":(\d+)', line))]
    seconds = [float(found[1]) for line in lines if (found := re.search(r'"ts":([0-9.e+-]+)', line))]
    span, length = max(numbers) + 1, max(seconds) + 0.05
    for turn in range(-(-steps // span)):

        def later(found: re.Match[str], turn: int = turn) -> str:
            if found[1] is None:
                return f'"chat_{turn:03}'
            if found[1] == "step":
                return f'"step":{int(found[2]) + turn * span}'
            return f'"{found[1]}":{float(found[2]) + turn * length:.6f}'

        for line, number in zip(lines, numbers, strict=True):
            if number + turn * span >= steps:
                return
            yield _SHIFTED.sub(later, line)


def measure(chromium: str, page_file: Path, files: list[Path]) -> list[str]:
    """Load the trace once in a fresh browser: what it took, in the order of HEAD."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(page_file.resolve().as_uri())
        page.wait_for_selector("input[type=file]", state="attached")
        page.evaluate(WATCH_BLOCKING)
        began = time.perf_counter()
        page.locator("input[type=file]").first.set_input_files([str(file) for file in files])
        first = complete = None
        peak = 0
        while complete is None:
            peak = max(peak, page_memory())
            if first is None and page.evaluate(DRAWN):
                first = time.perf_counter() - began
            if page.evaluate(COMPLETE):
                complete = time.perf_counter() - began
            time.sleep(0.05)
        blocked = page.evaluate("window.longest")
        page.wait_for_timeout(2_000)
        held = page_memory()
        (steps,) = re.findall(r"\(([\d,]+)\)", page.locator(".token.steps").inner_text())
        frames = [frames_of(page, key, tab) for key, tab in (("1", ".overview"), ("2", ".timeline"))]
        browser.close()
    size = sum(file.stat().st_size for file in files)
    times = [f"{size / 1e6:.0f}", f"{first or complete:.2f} s", f"{complete:.2f} s", f"{blocked:.0f} ms"]
    return [steps, *times, f"{held / 1e9:.2f} GB", f"{max(peak, held) / 1e9:.2f} GB", *frames]


def frames_of(page: Page, key: str, view: str) -> str:
    """Frames in a second while the picture moves from side to side, and the longest between two."""
    page.keyboard.press(key)
    page.locator(f"{view} .tracks canvas").wait_for()
    for _ in range(4):
        page.keyboard.press("w")
    page.wait_for_timeout(1_500)
    page.evaluate(COUNT_FRAMES)
    until = time.perf_counter() + MOVED_S
    moves = 0
    while time.perf_counter() < until:
        page.keyboard.press("a" if moves // 6 % 2 else "d")
        page.wait_for_timeout(80)
        moves += 1
    drawn = page.evaluate("(() => { const all = window.frames_drawn; window.frames_drawn = null; return all; })()")
    gaps = [after - before for before, after in pairwise(drawn)]
    return f"{1e3 * len(gaps) / (drawn[-1] - drawn[0]):.0f} frames/s, longest {max(gaps):.0f} ms"


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
