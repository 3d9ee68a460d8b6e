"""The conformance suite's runner, with a side that agrees, one that does not, one that refuses and one that ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]
CONFORMANCE = REPO / "conformance"
WRONG = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    op = asked["op"]
    if op == "begin" and "{refused}" in asked["uses"]:
        answer = {{"unsupported": "{refused}"}}
    elif op == "schedule":
        {step}
    else:
        answer = {{}}
    print(json.dumps(answer), flush=True)
"""


def _run(
    *names: str, version: str = "0.33", side: list[str], words: tuple[str, ...] = ()
) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "run.py", f"vectors/{version}", *names, "--json", *words, "--", *side]
    environment = {**os.environ, "PYTHONPATH": str(REPO / "src")}
    done = subprocess.run(command, cwd=CONFORMANCE, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def _side(step: str, refused: str = "nothing") -> list[str]:
    return [sys.executable, "-c", WRONG.format(step=step, refused=refused)]


@pytest.mark.parametrize("version", ["0.27", "0.33"])
def test_our_own_scheduler_agrees_to_the_end(version: str) -> None:
    names = ("async_stops", "drawn_517", "images", "pressure")
    code, found = _run(*names, version=version, side=[sys.executable, "tokenyard_side.py"])
    assert (code, found["run"], found["equal_to_the_end"]) == (0, 4, 4), found
    assert found["steps"] == found["steps_before_the_first_difference"] > 100


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ('answer = {"scheduled": []}', "who is scheduled"),
        ('answer = {"free_blocks": -1}', "free_blocks"),
        ("sys.exit(3)", "the simulator ended (code 3) at schedule"),
    ],
)
def test_what_differs_first_is_said(step: str, why: str) -> None:
    code, found = _run("fcfs", "stops", side=_side(step))
    assert code == 1
    assert found["first_differences"] == {why: 2}
    assert found["steps_before_the_first_difference"] == 0


def test_what_a_side_leaves_out_is_not_compared_and_what_it_refuses_is_counted() -> None:
    code, found = _run("fcfs", "stops", side=_side("answer = {}", refused="stop_token_ids"))
    assert (code, found["run"], found["equal_to_the_end"]) == (0, 1, 1)
    assert found["unsupported"] == {"stop_token_ids": 1}
    code, found = _run("fcfs", side=_side('answer = {"free_blocks": -1}'), words=("--only", "scheduled"))
    assert (code, found["equal_to_the_end"]) == (0, 1)
