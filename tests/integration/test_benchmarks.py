"""Our side of `make bench-vllm` still runs: the benchmarks are hosts of the scheduler, and it checks its hosts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from side import Side

REPO = Path(__file__).resolve().parents[2]
VARIANTS = ["plain", "records", "traced", "fully_traced"]


@pytest.mark.parametrize("scenario", ["decode_32", "drafts_256", "async_drafts_256"])
def test_every_variant_does_the_same_work(scenario: str) -> None:
    """With prompts longer than a step, so that some steps end within one."""
    side = Side(sys.executable, "our_side.py")
    measured = side.ask({"scenario": scenario, "variants": VARIANTS})
    side.close()
    assert list(measured) == VARIANTS
    facts = [each["facts"] for each in measured.values()]
    assert all(each == facts[0] for each in facts)
    assert facts[0]["steps"] > 0
    assert facts[0]["tokens"] >= int(scenario.rsplit("_", 1)[1]) * facts[0]["steps"]
    assert all(seconds > 0 for each in measured.values() for seconds in each["seconds"].values())


def test_one_half_of_a_measured_run_tells_the_other(shared: Path) -> None:
    """Runs of vLLM on an RTX 4090 and an RTX PRO 6000 that others published."""
    folders = sorted((shared / "data" / "groundtruth").glob("vllm019_*"))
    worker: list[str | Path] = [sys.executable, REPO / "benchmarks" / "whatif_halves.py", *folders]
    done = subprocess.run(worker, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.replace("%", "").split()[-3:] for line in done.stdout.splitlines()[1:]]
    assert len(rows) == 4
    assert [row for row in rows if any(abs(float(error)) > 5 for error in row)] == []
