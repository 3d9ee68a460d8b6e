"""The text as it is interpreted takes the same decisions as what is compiled of it, which all other tests run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.examples import ALL, examples

from tokenyard import core_is_compiled

REPO = Path(__file__).resolve().parents[2]
BOTH = {"compiled": "0", "interpreted": "1"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not core_is_compiled(), reason="nothing is compiled here: all tests run the text"),
]


def told(folder: Path, core: str, *arguments: str) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "tokenyard.cli.main", *arguments]
    variables = {**os.environ, "TOKENYARD_INTERPRETED": BOTH[core]}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_which_core_runs(tmp_path: Path) -> None:
    for core in BOTH:
        assert told(tmp_path, core, "--version").split("core: ")[1].startswith(core)


def test_both_report_the_same(tmp_path: Path) -> None:
    """In leaps, with numbers in place of hashes, and so little memory that requests are preempted."""
    random = "random --num-prompts 24 --random-prefix-len 64 --input-len 240 --output-len 400 --request-rate inf"
    settings = (*random.split(), "--num-gpu-blocks-override", "300", "--max-model-len", "4096")
    one, other = (told(tmp_path, core, "run", *settings, "--json") for core in BOTH)
    assert one == other
    assert json.loads(one)["preemptions"] > 0


def test_both_make_the_same_trace(tmp_path: Path) -> None:
    settings = ("chat", "--limit", "4", "--num-gpu-blocks-override", "300", "--max-model-len", "4096")
    traces = []
    for core in BOTH:
        told(tmp_path, core, "run", *settings, "--skip-refused", "--trace", core)
        traces.append({path.name: path.read_bytes() for path in (tmp_path / core).iterdir()})
    assert traces[0] == traces[1]


_NONE = """
from tokenyard import CacheConfig, Scheduler, SchedulerConfig
from tokenyard.core.rows import Row
from tokenyard.core.sched.queues import FCFSQueue, PriorityQueue
kv = Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=9)).kv
calls = (kv.num_cached_tokens, kv.get_computed_blocks, kv.pool.release_row, kv.hasher.extend, FCFSQueue().add,
         PriorityQueue().discard, lambda none: Row().extend_from(none, 0))
for call in calls:
    try:
        call(None)
        print(call, "accepts None")
    except (AttributeError, TypeError):
        pass
"""


@pytest.mark.parametrize("core", BOTH)
def test_none_is_an_error_and_reads_no_foreign_memory(core: str) -> None:
    variables = {**os.environ, "TOKENYARD_INTERPRETED": BOTH[core]}
    done = subprocess.run([sys.executable, "-c", _NONE], env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


SUITES = (
    "parity/test_golden.py",
    "unit/kv/test_pool.py",
    "property/test_scheduler_machine.py",
    "property/test_leaps.py",
)


def test_the_text_passes() -> None:
    """vLLM's recorded decisions, and random calls with invariants after each, a few where not all are asked for."""
    suites = [str(REPO / "tests" / each) for each in SUITES]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *suites]
    variables = {**os.environ, "TOKENYARD_INTERPRETED": "1"}
    variables["TOKENYARD_EXAMPLES"] = "all" if examples(ALL) == ALL else "few"
    done = subprocess.run(command, cwd=REPO, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
