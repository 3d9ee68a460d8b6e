"""Every script in examples/ runs, and prints something; those that take a number of requests get a small one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_it_runs(script: Path, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("SCHED_TRACE_PATH")}
    environment = kept | {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-W", "error", str(script), "20"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == ""
