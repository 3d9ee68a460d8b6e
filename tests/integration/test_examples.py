"""Every script in examples/ runs, and prints something; those that take a number of requests get a small one."""

from __future__ import annotations

import json
import os
import re
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


@pytest.mark.parametrize("name", ["papers", "research"])
def test_notebooks_are_their_documents(name: str) -> None:
    """The documents are executed, cell by cell: a notebook that is one of them prints what it shows."""
    document = {"papers": "baselines", "research": "research"}[name]
    words = [f"docs/tasks/{document}.md", f"examples/{name}.ipynb", "--check"]
    command = [sys.executable, "scripts/document_notebook.py", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES.parent, check=False)
    assert done.returncode == 0, done.stderr
    cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [each for each in cells if each["cell_type"] == "code"]
    assert len(code) >= 4
    for each in code:
        compile("".join(each["source"]), name, "exec")
    assert any(each["outputs"] for each in code)
    for link in re.findall(r"\]\((?!https?://|#)([^)#]*)", "".join("".join(each["source"]) for each in cells)):
        assert (EXAMPLES / link).exists(), link
