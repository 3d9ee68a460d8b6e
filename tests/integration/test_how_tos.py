"""docs/extending.md is executed: in a copy of the repository, what it says is changed, and its commands are run.

No change is written here a second time. The recordings, which need a vLLM, are those of the newest version under the
example's name.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
HOW_TOS = dict(re.findall(r"^## (.*?: \d) files?\n(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL))
STEP = re.compile(
    r"^In `(?P<file>[^`\n]+)`, (?P<side>above|below) `(?P<beside>[^`\n]+)`:\n\n```\w+\n(?P<added>.*?)^```$"
    r"|^In `(?P<shorter>[^`\n]+)`, take out\n`(?P<out>[^`\n]+)`\.$"
    r"|^Make `(?P<made>[^`\n]+)`:\n\n```\w+\n(?P<whole>.*?)^```$"
    r"|^```console\n(?P<commands>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COPIED = ("src", "scripts", "lab", "docs", "tests/support", "tests/unit", "viewer/src/generated")
LEFT_OUT = shutil.ignore_patterns("*.svg", "*.png", "static", "kv_plans*", "*.jsonl.gz")


class Result(NamedTuple):
    """What came of a how-to."""

    edited: set[str]
    """Files that it changes by hand."""
    said: str
    """What its commands printed."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The parts of the repository that the how-tos touch."""
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=LEFT_OUT)
    for file in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def _perform(how_to: str, copy: Path) -> Result:
    edited: set[str] = set()
    said = ""
    for step in STEP.finditer(HOW_TOS[how_to]):
        if step["commands"]:
            said += "".join(_run(copy, line) for line in step["commands"].splitlines())
        elif step["made"]:
            assert not (copy / step["made"]).exists(), f"{step['made']} is there already: take another example"
            (copy / step["made"]).write_text(step["whole"], encoding="utf-8")
            edited.add(step["made"])
        else:
            name = step["file"] or step["shorter"]
            line, added = f"{step['beside'] or step['out']}\n", step["added"]
            text = (copy / name).read_text(encoding="utf-8")
            assert text.count(f"\n{line}") == 1, f"{name} has this line {text.count(line)} times: {line}"
            new = "" if added is None else added + line if step["side"] == "above" else line + added
            (copy / name).write_text(text.replace(f"\n{line}", f"\n{new}"), encoding="utf-8")
            edited.add(name)
    modules = sorted(name for name in edited if name.endswith(".py"))
    for rules in ("check", "format --check") if modules else ():
        _run(copy, f".venv/bin/python -m ruff {rules} --no-cache {' '.join(modules)}")
    return Result(edited, said)


def _run(copy: Path, line: str) -> str:
    """A line of the how-to, by this interpreter, on the copy's package."""
    words = shlex.split(line)
    assert words[0] == ".venv/bin/python"
    # The text that was changed, and not what was compiled of another.
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "TOKENYARD_INTERPRETED": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = ""
    quick = ["-q", "-p", "no:cacheprovider", "-m", "not slow"] if "pytest" in words else []
    done = subprocess.run(
        [sys.executable, *words[1:], *quick], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def _check_count(how_to: str, result: Result) -> None:
    assert len(result.edited) == int(how_to[-1])


def test_every_how_to_is_executed_here() -> None:
    assert [each.partition(":")[0] for each in HOW_TOS] == [
        "A reason",
        "A flag",
        "An architecture",
        "A policy",
        "A version of vLLM",
    ]


@pytest.mark.slow
def test_a_reason(copy: Path) -> None:
    _check_count("A reason: 3", _perform("A reason: 3", copy))
    table = (copy / "docs" / "reasons.md").read_text(encoding="utf-8")
    assert "| `long_prompt_begun` | Another prompt above `long_prefill_token_threshold` began in this step." in table
    assert '"long_prompt_begun": {' in (copy / "viewer" / "src" / "generated" / "vocabulary.ts").read_text()


@pytest.mark.slow
def test_a_flag(copy: Path) -> None:
    result = _perform("A flag: 3", copy)
    _check_count("A flag: 3", result)
    assert "decisions: which blocks of windows stay findable" in result.said


@pytest.mark.slow
def test_an_architecture(copy: Path) -> None:
    result = _perform("An architecture: 2", copy)
    _check_count("An architecture: 2", result)
    assert "xverse-7b" in result.said


@pytest.mark.slow
def test_a_policy(copy: Path) -> None:
    _check_count("A policy: 3", _perform("A policy: 3", copy))


@pytest.mark.slow
def test_a_version(copy: Path) -> None:
    recorded = copy / "src/tokenyard/deploy/vllm_serve/recorded"
    flags = json.loads((recorded / "0.33.json").read_text(encoding="utf-8"))
    (recorded / "0.34.json").write_text(json.dumps({**flags, "vllm": "0.34.0"}), encoding="utf-8")
    vectors = copy / "conformance" / "vectors"
    shutil.copytree(ROOT / "conformance" / "vectors", vectors, dirs_exist_ok=True)
    (vectors / "0.34").mkdir()
    manifest = json.loads((vectors / "0.33" / "manifest.json").read_text(encoding="utf-8"))
    made = {"vllm": "0.34.0", "before": "0.33", "steps": {"prefixes": manifest["steps"]["prefixes"]}}
    (vectors / "0.34" / "manifest.json").write_text(json.dumps(made), encoding="utf-8")
    (copy / "tests" / "parity").mkdir(exist_ok=True)
    shutil.copy(ROOT / "tests/parity/test_golden.py", copy / "tests" / "parity")
    result = _perform("A version of vLLM: 1", copy)
    _check_count("A version of vLLM: 1", result)
    assert "vLLM 0.34" in result.said
