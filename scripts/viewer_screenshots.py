"""Take the pictures of the viewer in docs/images: `python scripts/viewer_screenshots.py [PAGE]`.

Each view, 1280 and 1920 pixels wide, light and dark, of traces made here by `tokenyard run`. Needs chromium and
playwright. PAGE defaults to the built page.
"""

from __future__ import annotations

import base64
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["main"]

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "src" / "tokenyard" / "web" / "static" / "viewer.html"
IMAGES = REPO / "docs" / "images"
MOST_BYTES = 200_000
COLOURS = 96
ALIKE = 8
"""Colours of which red, green and blue differ by less in sum are one."""
SIZES = {1280: 800, 1920: 1080}
_BOTH = "agentic --limit=24 --gpu=rtx5090 --rate-scale=8 --max-num-seqs=14"
RUNS = {
    "first": f"{_BOTH} --max-num-batched-tokens=2048 --num-gpu-blocks-override=4200 --no-scheduler-reserve-full-isl",
    "second": f"{_BOTH} --max-num-batched-tokens=1024 --num-gpu-blocks-override=4600",
}
PIXELS = """async (picture) => {
    const image = await createImageBitmap(await (await fetch("data:image/png;base64," + picture)).blob());
    const canvas = new OffscreenCanvas(image.width, image.height);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const {data} = context.getImageData(0, 0, image.width, image.height);
    const url = await new Promise((resolve) => {
        const reader = new FileReader();
        reader.onload = () => resolve(reader.result);
        reader.readAsDataURL(new Blob([data]));
    });
    return [image.width, image.height, url.split(",")[1]];
}"""
"""A browser decodes what it has pictured: no imaging library is needed for that."""


def _landing(page: Page) -> None:
    page.get_by_role("heading", name="Tokenyard viewer").wait_for()


def _timeline(page: Page) -> None:
    """A step that memory stopped: needed and free stand beside each other."""
    _tab("Timeline")(page)
    page.get_by_role("list", name="Reasons in the run").get_by_role("button", name="kv_blocks").click()
    for _ in range(40):
        page.keyboard.press("n")
    page.get_by_role("button", name="rows of this step").click()


def _request(page: Page) -> None:
    _timeline(page)
    page.get_by_role("toolbar", name="Waiting").locator("button").first.click()


def _whole_run(page: Page) -> None:
    _tab("Timeline")(page)
    page.keyboard.press("f")


def _tab(name: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("tab", name=name).click()


def _compare(page: Page) -> None:
    _tab("Compare")(page)
    page.set_input_files("[data-picker=files]", page.context.files["second"])  # type: ignore[attr-defined]
    page.get_by_role("button", name="swap").wait_for()


VIEWS: dict[str, Callable[[Page], None]] = {
    "landing": _landing,
    "timeline": _timeline,
    "request": _request,
    "overview": _tab("Overview"),
    "whole-run": _whole_run,
    "requests": _tab("Requests"),
    "statistics": _tab("Statistics"),
    "compare": _compare,
    "help": lambda page: page.keyboard.press("?"),
}

ANSWERED = {"overview", "whole-run"}
"""Views that show the answer, which a page has of an exported trace."""


def main() -> None:
    """Make the traces, open each view, keep the pictures."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - a development tool

    viewer = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else PAGE
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        sys.exit("There is no chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        traces = {name: _replay(Path(folder) / name, run) for name, run in RUNS.items()}
        answered = _exported(Path(folder) / "first")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for width, height in SIZES.items():
            for theme in ("light", "dark"):
                for name, show in VIEWS.items():
                    page = answered if name in ANSWERED else viewer
                    picture = _picture(browser, page, traces, name, show, (width, height), theme)
                    _keep(IMAGES / f"viewer-{name}-{theme}-{width}.png", *picture)
        browser.close()


def _replay(folder: Path, run: str) -> list[Path]:
    command = [sys.executable, "-m", "tokenyard.cli.main", "run", *run.split(), "--record-requests"]
    command += ["--trace", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return sorted(folder.iterdir())


def _exported(trace: Path) -> Path:
    """Export a trace as a page, which holds the answer."""
    page = trace.with_suffix(".html")
    command = [sys.executable, "-m", "tokenyard.cli.main", "export", str(trace), "--html", str(page)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return page


def _picture(
    browser: Browser,
    viewer: Path,
    traces: dict[str, list[Path]],
    name: str,
    show: Callable[[Page], None],
    size: tuple[int, int],
    theme: str,
) -> tuple[int, int, bytes]:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]})
    context.files = traces  # type: ignore[attr-defined]
    page = context.new_page()
    page.goto(f"{viewer.as_uri()}#theme={theme}")
    if name != "landing":
        if name not in ANSWERED:
            page.set_input_files("[data-picker=files]", traces["first"])
        page.locator(".run").wait_for()
        page.locator(".load-line").wait_for(state="detached")
    show(page)
    page.mouse.move(2, 2)
    page.wait_for_timeout(1_500)
    shot = base64.b64encode(page.screenshot()).decode()
    blank = context.new_page()
    width, height, pixels = blank.evaluate(PIXELS, shot)
    context.close()
    return width, height, base64.b64decode(pixels)


def _keep(path: Path, width: int, height: int, rgba: bytes) -> None:
    """Write the picture with few colours, so that it is small; the words stay sharp."""
    pixels = np.frombuffer(rgba, np.uint8).reshape(-1, 4)[:, :3]
    codes = pixels.astype(np.uint32) @ np.array((1 << 16, 1 << 8, 1), np.uint32)
    colours, places, uses = np.unique(codes, return_inverse=True, return_counts=True)
    parts = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], 1).astype(int)
    palette = _palette(parts[np.argsort(-uses)])
    nearest = np.array([np.abs(palette - colour).sum(1).argmin() for colour in parts], np.uint8)
    rows = nearest[places].reshape(height, width)
    lines = np.hstack([np.zeros((height, 1), np.uint8), rows]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"PLTE", palette.astype(np.uint8).tobytes()), (b"IDAT", zlib.compress(lines, 9))]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in [*chunks, (b"IEND", b"")]))
    size = path.stat().st_size
    print(f"{path.relative_to(REPO)}: {size // 1000} kB")
    if size > MOST_BYTES:
        sys.exit(f"{path.name} is larger than {MOST_BYTES} bytes")


def _palette(colours: npt.NDArray[np.int_]) -> npt.NDArray[np.int_]:
    """The most used colours that can be told apart, so that a small patch of its own colour keeps it."""
    kept = colours[:1]
    for colour in colours[1:]:
        if len(kept) < COLOURS and np.abs(kept - colour).sum(1).min() >= ALIKE:
            kept = np.vstack([kept, colour])
    return kept


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


if __name__ == "__main__":
    main()
