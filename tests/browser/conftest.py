"""What browser tests share: one Chromium, one page file, traces made by `tokenyard run`.

``TOKENYARD_VIEWER_HTML`` names another page than the committed one, for work in progress.
``TOKENYARD_BROWSER_SLOWER=6`` makes the pages six times slower: a test that does not wait for what it looks at fails
then on an idle machine as well. Every page watches itself: a test fails if a script throws, if an error is logged, or
if anything is asked of another origin.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from tests.integration.command import call

from viewer_sample import PRESSURE, crowded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REPO = Path(__file__).resolve().parent.parent.parent
COMMITTED = REPO / "src" / "tokenyard" / "web" / "static" / "viewer.html"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SLOWER = float(os.environ.get("TOKENYARD_BROWSER_SLOWER") or 1)
ARRIVED_MS = 20_000
"""Longest wait for a trace to be drawn; generous, for machines that are busy."""


@pytest.fixture(scope="session")
def viewer_html() -> Path:
    """The page under test."""
    page = Path(os.environ.get("TOKENYARD_VIEWER_HTML") or COMMITTED)
    if not page.is_file():
        pytest.fail(f"no viewer page at {page}: it is committed; build it with `npm run build` in viewer/")
    return page


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium: the one that has no windows, which takes less than half the time, or else without showing one.

    It ends with the last browser test: while it runs its event loop fills this thread, and of tests that run in several
    processes some others can come afterwards.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("no chromium on this machine: `apt-get install chromium`")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, headless=True, args=list(FLAGS))
        yield running
        running.close()


def replay(folder: Path, *arguments: str) -> Path:
    """Write a trace with `tokenyard run`, one step in flight, without a front end; the folder."""
    flags = ["--no-async-scheduling", "--front-end-delay=0s", "--trace", str(folder)]
    made = call("run", *arguments, *flags, cwd=folder.parent)
    assert made.code == 0, made.stderr
    return folder


SMALL_STEPS = 117
"""Steps of ``small_trace``, by the calibrated step times of today: the one number here that a new fit changes."""
SMALL_LAST = SMALL_STEPS - 1


@pytest.fixture(scope="session")
def small_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred steps, with request records: memory, the token budget and max_num_seqs hold requests back."""
    folder = tmp_path_factory.mktemp("small")
    workload = folder / "crowded.jsonl"
    workload.write_text(crowded())
    made = replay(folder / "small_h100", str(workload), *PRESSURE)
    lines = (made / "sched_trace.fcfs.steps.jsonl").read_text().splitlines()
    steps = 1 + max(json.loads(line).get("step", 0) for line in lines)
    assert steps == SMALL_STEPS, f"the trace has {steps} steps now: say so in SMALL_STEPS"
    return made


@pytest.fixture(scope="session")
def long_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some thousand steps, without request records."""
    folder = tmp_path_factory.mktemp("long") / "long_a100"
    return replay(folder, "agentic", "--limit=1", "--max-num-seqs=3")


@pytest.fixture(scope="session")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clients that hang up: many requests end aborted, some without having been scheduled."""
    folder = tmp_path_factory.mktemp("impatient") / "run"
    pressed = ["--num-gpu-blocks=600", "--max-num-seqs=1", "--client-timeout=2s", "--retries=0"]
    return replay(folder, "chat", "--limit=20", "--session-rate=6", *pressed)


FIRST, SECOND = 4.0, 18.0
"""When each of two incidents begins, in seconds."""
LONG, ANSWERS = 10, 60


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Long prompts of one tenant take the token budget; ten seconds later long answers of another one all seats."""
    folder = tmp_path_factory.mktemp("two")
    lines: list[dict[str, Any]] = [
        {"arrival_time": round(i / 20, 3), "prompt_len": 300, "max_tokens": 20, "cache_salt": f"shop-{i % 3}"}
        for i in range(600)
    ]
    lines += [
        {"arrival_time": FIRST + i / 10, "prompt_len": 9_000 + i, "max_tokens": 2, "cache_salt": "etl"}
        for i in range(LONG)
    ]
    lines += [
        {"arrival_time": SECOND + i / 50, "prompt_len": 200, "max_tokens": 300, "cache_salt": "writer"}
        for i in range(ANSWERS)
    ]
    lines.sort(key=lambda line: line["arrival_time"])
    for i, line in enumerate(lines):
        line["request_id"] = f"cmpl{i * 7919 % 100_003:06d}x"
    (folder / "load.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = ("--vllm-version=0.33", "--advice=none", "--max-num-batched-tokens=1024", "--max-num-seqs=16")
    return replay(folder / "run", str(folder / "load.jsonl"), *flags)


@pytest.fixture(scope="session")
def pressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests that wait for a LoRA slot, and one that later ones of a sooner priority overtake."""
    folder = tmp_path_factory.mktemp("pressed")
    asked: list[dict[str, Any]] = [
        {"request_id": f"r{at}", "prompt_len": 200, "max_tokens": 40, "arrival_time": at / 100} for at in range(6)
    ]
    for request, adapter in zip(asked, ("sql", "legal", "sql", "mail", "legal", "mail"), strict=True):
        request |= {"lora_name": adapter}
    asked += [
        {
            "request_id": f"late{at}",
            "prompt_len": 300,
            "max_tokens": 40,
            "arrival_time": 2 + at / 50,
            "priority": 9 - at,
        }
        for at in range(8)
    ]
    (folder / "load.jsonl").write_text("".join(json.dumps(line) + "\n" for line in asked))
    limits = ("--max-loras=2", "--max-num-seqs=4", "--scheduling-policy=priority")
    return replay(folder / "run", str(folder / "load.jsonl"), "--enable-lora", *limits, "--advice=none")


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Make pages that watch themselves; options are those of a browser context."""
    contexts = []
    problems: list[str] = []

    def make(**options: object) -> Page:
        # Options are playwright's own, by name: nothing is gained by repeating their forty types here.
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        if SLOWER > 1:
            context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("console", lambda said: problems.append(f"console: {said.text}") if said.type == "error" else None)
        page.on("request", lambda asked: problems.append(f"asked for {asked.url}") if _foreign(asked.url) else None)
        return page

    yield make
    for context in contexts:
        context.close()
    assert problems == []


def _foreign(url: str) -> bool:
    return not url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:"))


@pytest.fixture
def open_files(new_page: Callable[..., Page], viewer_html: Path) -> Callable[..., Page]:
    """Open the page from disk and pick files: `open_files(a, b, state="tab=requests", viewport=...)`.

    A state that names no tab means the first rows of the Timeline here.
    """

    def open_them(*paths: Path, state: str = "", **options: object) -> Page:
        page = new_page(**options)
        rows = "" if "view=" in state or "step=" in state else "view=0..6&"
        shown = state if "tab=" in state else f"tab=timeline&{rows}{state}"
        page.goto(f"{viewer_html.as_uri()}#{shown}")
        files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
        page.set_input_files("[data-picker=files]", files)
        page.wait_for_selector(".run", timeout=ARRIVED_MS)
        page.wait_for_selector(".load-line", state="detached", timeout=ARRIVED_MS)
        return page

    return open_them


def groups_shown(page: Page) -> dict[str, dict[str, str]]:
    """The table of groups: name -> head -> cell."""
    table = page.locator(".group-table")
    _, *heads = (head.strip(" ↓↑\n") for head in table.locator("thead th").all_inner_texts())
    lines = [line.locator("th, td").all_inner_texts() for line in table.locator("tbody tr").all()]
    return {name.strip(): dict(zip(heads, map(str.strip, cells), strict=True)) for name, *cells in lines}


def until(page: Page, condition: str) -> None:
    """Wait for a JavaScript expression to be true. (Playwright's own way needs `eval`, which the page forbids.)"""
    deadline = time.monotonic() + ARRIVED_MS / 1000
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"never true: {condition}"
        page.wait_for_timeout(50)


def settled(page: Page, what: str = "location.href", quiet: int = 400) -> None:
    """Wait until a JavaScript expression has had one value for ``quiet`` milliseconds of the page's own time.

    The page writes its address a quarter of a second after the last change: a busy machine takes longer, but its timers
    keep their order.
    """
    page.evaluate(
        f"""() => new Promise((resolve) => {{
            let last, since;
            const look = () => {{
                const [now, time] = [{what}, performance.now()];
                if (now !== last) [last, since] = [now, time];
                if (time - since > {quiet}) resolve();
                else setTimeout(look, 40);
            }};
            look();
        }})"""
    )


AXE = REPO / "viewer" / "node_modules" / "axe-core" / "axe.min.js"
FOUND = """async () => {
    await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));  // in new colours
    const {violations} = await axe.run({
        resultTypes: ["violations"],
        rules: {"target-size": {enabled: true}},  // of WCAG 2.2; axe leaves it out unless asked
    });
    return violations.map(({id, nodes}) =>
        `${id}: ${nodes.slice(0, 4).map(({html}) => html.slice(0, 200)).join(" | ")}`);
}"""


@pytest.fixture(scope="session")
def axe() -> str:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: `npm ci` in viewer/")
    return AXE.read_text()


def faults(page: Page, axe: str, schemes: tuple[Literal["light", "dark"], ...] = ()) -> list[str]:
    """What axe finds, in each of the schemes in turn; the test evaluates the script, which the page's policy allows."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(axe)
    if not schemes:
        return list(page.evaluate(FOUND))
    found = []
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {fault}" for fault in page.evaluate(FOUND)]
    return found


SCREENS: dict[str, dict[str, Any]] = {
    "laptop": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "device_scale_factor": 3},
    "magnified": {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2},
}
"""The last is what a page of 1280 by 800 pixels has at 200 %."""
