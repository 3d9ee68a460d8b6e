"""FastScheduler beside vLLM's own scheduler, call by call, in vLLM's environments: a taste of `make differential`."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tokenyard.vllm.versions import decides_alike, installed_version

REPO = Path(__file__).resolve().parents[2]
BUILT = {"0.22": REPO / ".venv-vllm/bin/python", "0.33": REPO / ".venv-vllm-0.33/bin/python"}
"""What scripts/vllm_env.sh builds."""
INTERPRETERS = {"installed": Path(sys.executable)} if find_spec("vllm") else BUILT
SCENARIOS = 12
ONCE_DIFFERENT = {"0.22": (113782876,), "0.26": (878076462,)}
"""Scenarios that were told differently once: a request that was looked up or began anew while its output was due."""

SABOTAGE = """
import sys, lockstep
from lockstep import scenario, streams, shrink, report
class Wrong(scenario.FastScheduler):
    calls = 0
    def schedule(self, *args):
        output = super().schedule(*args)
        self.calls += 1
        if self.calls > 6 and output.scheduled_cached_reqs.num_computed_tokens:
            output.scheduled_cached_reqs.num_computed_tokens[-1] += 1
        return output
scenario.FastScheduler = Wrong
stream = streams.stream(1)
outcome = scenario.run_plan(stream, stream.plan())
plan, small = shrink.shrunk(stream, outcome, 40)
assert len(plan.requests) < len(stream.plan().requests), "nothing was left out"
print("\\n".join(report.case_lines(stream, plan, small)))
"""


@cache
def _without(python: Path) -> str | None:
    """Why nothing can be run with this interpreter; None if it can."""
    if not python.exists():
        return f"no {python}: scripts/vllm_env.sh builds it"
    if "installed" in INTERPRETERS and not decides_alike(installed_version()):
        return f"no profile decides as vLLM {installed_version()}: FastScheduler refuses it"
    asked = subprocess.run([python, "-c", "import xxhash, torch"], capture_output=True, text=True, check=False)
    return f"{python}: {asked.stderr.splitlines()[-1]}" if asked.returncode else None


def run(version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The interpreter of vLLM's environment with our sources; skipped where there is none."""
    python = INTERPRETERS.get(version) or REPO / f".venv-vllm-{version}/bin/python"
    reason = _without(python)
    if reason:
        pytest.skip(reason)
    paths = [str(REPO / "src"), str(REPO / "lab"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [str(python), *arguments]
    return subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, check=False, timeout=900)


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize("version", INTERPRETERS)
def test_both_say_the_same(version: str) -> None:
    done = run(version, "lab/differential.py", "--no-named", "--first", "0", "--scenarios", str(SCENARIOS))
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert f"{SCENARIOS} scenarios compared" in done.stdout
    assert "     0  different" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("version", "number"), [(each, one) for each, some in ONCE_DIFFERENT.items() for one in some])
def test_what_was_different_once(version: str, number: int) -> None:
    python = BUILT.get(version) or REPO / f".venv-vllm-{version}/bin/python"
    if "installed" in INTERPRETERS or not python.exists():
        pytest.skip(f"no {python}: scripts/vllm_env.sh {version} builds it")
    done = run(version, "lab/differential.py", "--no-named", "--first", str(number), "--scenarios", "1")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.slow
def test_a_wrong_number_is_found_and_made_small() -> None:
    done = run(next(iter(INTERPRETERS)), "-c", SABOTAGE)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "schedule().scheduled_cached_reqs.num_computed_tokens" in done.stdout
