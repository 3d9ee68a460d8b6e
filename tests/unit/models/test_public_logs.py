"""The estimate of memory against start-up logs that people have published, of `lab/deployments.toml`."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from statistics import median
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROWS = tomllib.loads((ROOT / "lab" / "deployments.toml").read_text(encoding="utf-8"))["memory"]
PUBLIC = [row for row in ROWS if "url" in row]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """The script that writes docs/deployments.md."""
    spec = importlib.util.spec_from_file_location("generate_deployments", ROOT / "lab" / "generate_deployments.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_thirty_logs_can_be_looked_up() -> None:
    """No log stands there twice, and a file is named at a commit, so that the link keeps saying what it said."""
    links = {row["url"] for row in PUBLIC}
    assert len(links) == len(PUBLIC) >= 30
    assert all(len(link.split("/blob/")[1].split("/")[0]) == 40 for link in links if "/blob/" in link)


def test_public_logs_lie_near_the_estimate(generator: ModuleType) -> None:
    """Half within 0.8 GiB, and "at least" in nine of ten: what docs/tasks/memory.md promises, a little wider."""
    estimates = [generator.memory_left(row) for row in PUBLIC]
    off = [abs(likely - row["kv_gib"]) for row, (likely, _) in zip(PUBLIC, estimates, strict=True)]
    held = [least <= row["kv_gib"] for row, (_, least) in zip(PUBLIC, estimates, strict=True)]
    assert median(off) <= 0.8
    assert sum(held) >= 0.9 * len(PUBLIC)


def test_page_of_memory_quotes_the_figures(generator: ModuleType) -> None:
    """The numbers in prose are those of the table."""
    page = (ROOT / "docs" / "tasks" / "memory.md").read_text(encoding="utf-8")
    off = sorted(abs(generator.memory_left(row)[0] - row["kv_gib"]) for row in ROWS)
    held = sum(generator.memory_left(row)[1] <= row["kv_gib"] for row in ROWS)
    assert f"{len(ROWS)} start-up logs, {len(PUBLIC)} of them" in page
    assert f"within {median(off):.1f} GiB in half of them" in page
    assert f'"at least" held in {held}' in page
    assert f"up to {off[-1]:.1f} GiB" in page
