"""What every test may use: recorded data, if it is there, and the hypothesis profiles."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings
from tests.support.examples import ALL
from tests.support.headless import HeadlessViewer

REPO = Path(__file__).resolve().parent.parent

# As the command has it: threads for small matrices cost many times what they do. Read once, when NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Before any test module asks for its share: `support/examples.py` counts by the profile. A deadline would measure what
# else the machine does.
_REPEATED = settings(deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=bool(os.environ.get("CI")))
settings.register_profile("all", _REPEATED, max_examples=ALL)
settings.register_profile("quick", _REPEATED, max_examples=ALL // 4)
settings.register_profile("few", _REPEATED, max_examples=ALL // 16)
settings.load_profile(os.environ.get("TOKENYARD_EXAMPLES") or "quick")


def pytest_configure() -> None:
    """Refuse modules that were compiled from another text than lies beside them."""
    if os.environ.get("TOKENYARD_INTERPRETED", "0") not in ("", "0"):
        return
    made = {path: path.with_name(f"{path.name.partition('.')[0]}.py") for path in (REPO / "src").rglob("*.so")}
    stale = [text.name for path, text in made.items() if text.exists() and text.stat().st_mtime > path.stat().st_mtime]
    if stale:
        raise pytest.UsageError(f"changed since it was compiled: {', '.join(stale)}: make compile")


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What commands keep for the user lies in a folder of the tests', one for each process that runs them."""
    with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}):
        yield


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """Interrupts reach the tests and what they start, though a shell ignores them in what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with golden vectors and recorded traces; a test that asks for it is skipped where it is absent.

    It is named by ``TOKENYARD_SHARED``, else looked for as ``shared`` beside the repository.
    """
    folder = Path(os.environ.get("TOKENYARD_SHARED") or REPO.parent / "shared")
    if not folder.is_dir():
        pytest.skip("no shared data: no shared/ beside the repository, and TOKENYARD_SHARED names no folder")
    return folder


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of the decision vectors that the project carries itself."""
    return REPO / "conformance" / "vectors" / "0.22"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one place what could not be checked: skipped tests by their reasons, and what `make test` left out."""
    skipped = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    lines = [f"{count} tests: {reason}" if count > 1 else f"1 test: {reason}" for reason, count in skipped.items()]
    collected = os.environ.get("TOKENYARD_NOT_CHECKED")
    if collected and Path(collected).is_file():
        lines += Path(collected).read_text(encoding="utf-8").splitlines()
    if lines:
        terminalreporter.section("not checked")
        for line in lines:
            terminalreporter.write_line(line)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Processes of ``pytest -n auto``: three for two cores, as tests wait for a part of their time.

    None, where ``PYTEST_XDIST_AUTO_NUM_WORKERS`` says how many: xdist reads it.
    """
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return cores * 3 // 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Eleven thousand tests are collected in half the time where no garbage is looked for: there is hardly any."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests last: once a browser runs, its event loop fills this thread, and no test can run one of its own."""
    items.sort(key=lambda item: "browser" in item.path.parts)


@pytest.fixture(scope="session")
def headless_viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadlessViewer]:
    """The viewer's figures, from one node process for all tests; a test that asks for it is skipped without node."""
    with HeadlessViewer(tmp_path_factory.mktemp("viewer")) as viewer:
        yield viewer
