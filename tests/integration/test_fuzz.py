"""A smoke of ``make fuzz``: that it runs, that it passes, and that it would find something."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tokenyard.core.request import Request
from tokenyard.core.sched.outputs import EngineOutputs, ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.core.sched.scheduler_output import SchedulerOutput

REPO = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "scripts"))

from fuzzing import core_walks, inputs, walks  # noqa: E402 - from the folder of scripts
from fuzzing.mutations import mutated  # noqa: E402


def test_a_few_hostile_files_and_steps_are_borne(tmp_path: Path) -> None:
    fuzz = [sys.executable, str(REPO / "scripts" / "fuzz.py"), "--keep", str(tmp_path / "failures")]
    done = subprocess.run(
        [*fuzz, "--inputs", "60", "--steps", "600", "--seed", "7"],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hostile files: 60 in" in done.stdout
    assert "every invariant held" in done.stdout


def test_walks_go_to_their_end_and_a_scheduler_that_is_broken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert walks.Walk(Random("walk 4")).run() > walks.STEPS // 4

    class Deaf(Scheduler):
        """Does not hear that a client has gone."""

        def finish_requests(self, *given: object, **options: object) -> list[Request]:
            return []

    monkeypatch.setattr(walks, "Scheduler", Deaf)
    with pytest.raises(AssertionError, match="that has ended"):
        walks.Walk(Random("walk 4")).run()


def test_walks_of_an_engine_core_go_to_their_end_and_a_client_that_is_told_too_little_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert core_walks.CoreWalk(Random("walk 1")).run() > core_walks.CALLS // 8

    class Forgetful(Scheduler):
        """Does not tell who has ended."""

        def update_from_output(self, output: SchedulerOutput, model_output: ModelOutput) -> EngineOutputs:
            outputs = super().update_from_output(output, model_output)
            outputs.finish_reasons = {}
            return outputs

    monkeypatch.setattr(core_walks, "Scheduler", Forgetful)
    with pytest.raises(AssertionError, match="never heard of an end"):
        core_walks.CoreWalk(Random("walk 1")).run()


def test_changes_change_and_repeat() -> None:
    data = b'{"a": 1, "b": [2, 3]}\n{"a": 4}\n'
    made = [mutated(data, [b"other"], Random(i)) for i in range(200)]
    assert len(set(made)) > 150
    assert made == [mutated(data, [b"other"], Random(i)) for i in range(200)]


def _says(text: str, code: int = 0) -> Callable[[list[str]], int]:
    def main(arguments: list[str]) -> int:
        print(text)
        return code

    return main


def _fails(arguments: list[str]) -> int:
    raise ZeroDivisionError


def _sleeps(arguments: list[str]) -> int:
    time.sleep(9)
    return 0


@pytest.mark.parametrize(
    ("main", "what"),
    [
        (_says("fine"), ""),
        (_says("your mistake", 2), ""),
        (_says("odd", 7), "exit code 7"),
        (_says("Traceback (most recent call last)"), "a traceback was printed"),
        (_says("\x1b]0;title\x07"), "a terminal escape was printed"),
        (_fails, "a traceback"),
        (_sleeps, "longer than 1 s"),
    ],
)
def test_what_it_looks_for_is_found(
    main: Callable[[list[str]], int], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "SECONDS", 1)
    before = signal.signal(signal.SIGALRM, inputs.ring)
    try:
        assert inputs.run_once(main, ())[1] == what
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_process_that_dies_is_a_finding_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    worker = inputs.Worker(tmp_path)
    try:
        what, _ = worker.run(("run", "random", "--num-prompts", "1", "--scheduling-policy", "deadly.py:Mine"))
        assert what == "the process died: -9"
        assert worker.run(("workloads", "--json")) == ("", "")
    finally:
        worker.close()
