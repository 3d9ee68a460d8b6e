"""A pull request that changes a line of vLLM gets a comment with what that does to stored traffic, and may fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import tokenyard as ty
from tokenyard.cli.main import main
from tokenyard.errors import ConfigError
from tokenyard.questions.checking import changed_since, check
from tokenyard.workload.readers.plain import write_plain

REPO = Path(__file__).resolve().parents[3]
LINE = "vllm serve Qwen/Qwen3-8B --max-model-len 8192 --max-num-seqs {}\n"
ASKED = ["--against", "chat", "--limit", "3", "--gpu", "l4"]


def deployment(seats: int) -> ty.Deployment:
    return ty.Deployment(LINE.format(seats), gpu="l4")


def load() -> ty.Workload:
    w = ty.WorkloadBuilder("load", seed=0)
    for i in range(12):
        w.request(at=0.1 * i, prompt=100, output=30)
    return w.build()


def test_what_changes_and_which_bounds_hold() -> None:
    told = check(deployment(8), load(), before=deployment(1), slo={"ttft_p90": "3s"}, price=0.8)
    assert told.holds
    assert [(each.name, each.older, each.newer) for each in told.flags] == [("max-num-seqs", 1, 8)]
    ttft = next(each for each in told.figures if each.name == "ttft_ms.p90")
    assert ttft.older is not None
    assert ttft.newer is not None
    assert ttft.newer < ttft.older
    assert told.cost is not None
    assert 0 < told.cost.newer < told.cost.older
    assert not check(deployment(1), load(), slo={"ttft_p90": "3s"}).holds


def test_a_line_that_does_not_start_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.sh"
    file.write_text(LINE.format(8).replace("8192", "400000"))
    assert main(["check", str(file), *ASKED]) == 1
    assert "vLLM would not start" in " ".join(capsys.readouterr().out.split())


def test_as_it_was_it_did_not_start() -> None:
    told = check(deployment(8), load(), before=deployment(8).with_(gpu_memory_utilization=0.5))
    assert told.was is not None
    assert told.holds
    assert all(each.older is None for each in told.figures)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a line, and a branch that changes it."""
    monkeypatch.chdir(tmp_path)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    write_plain(load(), tmp_path / "load.jsonl")
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]

    def git(*words: str) -> None:
        subprocess.run(["git", *settings, *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    (tmp_path / "serve.sh").write_text(LINE.format(64))
    (tmp_path / "other.sh").write_text(LINE.format(64))
    git("add", ".")
    git("commit", "-qm", "first")
    (tmp_path / "serve.sh").write_text(LINE.format(1))
    git("commit", "-qam", "fewer seats")
    return tmp_path


@pytest.mark.parametrize(("bound", "code"), [("ttft_p90=1ms", 1), ("ttft_p90=10min", 0)])
def test_the_action_comments_and_fails_on_a_bound(repository: Path, bound: str, code: int) -> None:
    action = yaml.safe_load((REPO / "action.yml").read_text())
    step = action["runs"]["steps"][-1]
    assert step["run"].endswith('scripts/check_pull_request.sh"')
    command = repository / "tokenyard"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tokenyard "$@"\n')
    command.chmod(0o755)
    said = repository / "gh"
    said.write_text('#!/bin/sh\necho "$@" > said.txt\n')
    said.chmod(0o755)
    variables = {
        "TOKENYARD": str(command),
        "FILES": "serve.sh other.sh",
        "AGAINST": "load.jsonl",
        "SLO": bound,
        "GPU": "l4",
        "BASE": "HEAD~1",
        "NUMBER": "7",
        "RUNNER_TEMP": str(repository),
        "GITHUB_STEP_SUMMARY": str(repository / "summary.md"),
        "PATH": f"{repository}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    assert set(step["env"]) <= {*variables, "PRICE", "COMMENT", "GH_TOKEN"}
    script = REPO / "scripts/check_pull_request.sh"
    done = subprocess.run(["bash", str(script)], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    comment = (repository / "summary.md").read_text()
    assert "| max-num-seqs | 64 | 1 |" in comment
    assert ("**fails**" in comment) == bool(code)
    assert "other.sh" not in comment  # it did not change
    assert (repository / "said.txt").read_text().startswith("pr comment 7")


def test_a_revision_that_git_does_not_know(repository: Path) -> None:
    with pytest.raises(ConfigError, match="fetch-depth"):
        changed_since([str(repository / "serve.sh")], "nowhere")
