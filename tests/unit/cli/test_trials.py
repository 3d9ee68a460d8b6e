"""Proposals of a run are replayed: all of it where there is room, else its busiest part, which is said."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tokenyard.cli.run
from tokenyard.cli.main import main

FLAGS = (
    "--num-prompts",
    "60",
    "--input-len",
    "64",
    "--output-len",
    "20",
    "--request-rate",
    "200",
    "--max-num-seqs",
    "4",
)


def report(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert main(["run", "random", *FLAGS, "--model", "llama-3.2-1b", "--gpu", "l4", "--json", *flags]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_long_run_is_tried_on_its_busiest_part(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = report(capsys)
    assert whole["tried_on"] is None
    assert whole["advice"][0]["trial"] is not None
    monkeypatch.setattr(tokenyard.cli.run, "STEPS_TRIED", whole["steps"])
    part = report(capsys)
    assert "of 60 requests, the busiest stretch" in part["tried_on"]
    assert part["advice"][0]["trial"]["flag"] == whole["advice"][0]["trial"]["flag"]
    assert part["advice"][0]["trial"]["effects"] != whole["advice"][0]["trial"]["effects"]
    assert report(capsys, "--advice", "all")["advice"] == whole["advice"]
    assert report(capsys, "--advice", "none")["tried_on"] is None
