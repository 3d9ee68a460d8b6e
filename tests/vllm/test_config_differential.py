"""Recorded lines through vLLM's own configuration and ours: a taste of `make differential-config`.

``config_lines.jsonl`` holds lines as they were drawn, kept so that new models do not change what is tested here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
BUILT = {"0.22": REPO / ".venv-vllm/bin/python", "0.33": REPO / ".venv-vllm-0.33/bin/python"}
"""What scripts/vllm_env.sh builds."""
INTERPRETERS = {"installed": Path(sys.executable)} if find_spec("vllm") else BUILT
LINES = Path(__file__).with_name("config_lines.jsonl")
SABOTAGE = """
import sys
from config_oracle import ours
settled = ours._settled
ours._settled = lambda setup: settled(setup) | {"max_num_seqs": 7}
import differential_config
sys.exit(differential_config.main(sys.argv[1:]))
"""


@pytest.fixture(params=INTERPRETERS)
def python(request: pytest.FixtureRequest) -> Path:
    """The Python of an environment with one of the two versions whose defaults are known."""
    found = INTERPRETERS[request.param]
    if not found.exists():
        pytest.skip(f"no {found}: scripts/vllm_env.sh builds it")
    asked = subprocess.run(
        [found, "-c", "import vllm, xxhash; print(vllm.__version__)"], capture_output=True, text=True, check=False
    )
    if asked.returncode or not asked.stdout.startswith(("0.22", "0.33")):
        pytest.skip(f"{found}: {(asked.stdout + asked.stderr).splitlines()[-1]}")
    return found


def run(python: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{REPO / 'src'}:{REPO / 'lab'}"}
    return subprocess.run(
        [python, *words], cwd=REPO, env=environment, capture_output=True, text=True, check=False, timeout=1200
    )


@pytest.mark.smoke
@pytest.mark.slow
def test_every_value_that_decides_is_vllms(python: Path) -> None:
    done = run(python, "lab/differential_config.py", "--lines", LINES)
    assert done.returncode == 0, done.stdout + done.stderr
    equal = re.search(r"(\d+)  equal", done.stdout)
    assert equal is not None, done.stdout
    assert int(equal[1]) >= len(LINES.read_text().splitlines()) // 3


@pytest.mark.slow
def test_a_wrong_value_would_be_found(python: Path, tmp_path: Path) -> None:
    case = {"number": 1, "gpu": "h100", "model": "qwen3-8b", "words": ["--kv-cache-memory-bytes", "64G"]}
    lines = tmp_path / "lines.jsonl"
    lines.write_text(json.dumps({**case, "variables": []}) + "\n")
    done = run(python, "-c", SABOTAGE, "--lines", lines)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "max_num_seqs: vLLM 1024, we 7" in done.stdout
