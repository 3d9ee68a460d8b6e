"""``tokenyard agents``: the answer of one command over a log of agents whose tools have no names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.command import call
from tests.support.agents import agents_log

SMALL = ("--gpu", "a100-40gb", "--num-gpu-blocks-override", "1500", "--processes", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    agents_log(tmp_path / "log.jsonl", jobs=5, turns=(3, 4), every=1.0)
    return tmp_path


def test_the_answer_comes_first_and_money_where_a_price_is_given(folder: Path) -> None:
    policies = ("--policies", "fcfs,continuum", "--dram", "16", "--dram-price", "0.01", "--seeds", "1")
    outcome = call("agents", "log.jsonl", *SMALL, *policies, cwd=folder)
    assert outcome.code == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert lines[0].startswith("For this load ")
    assert any(line.split()[:2] == ["$/h", "policy"] for line in lines)
    assert any(line.split()[:2] == ["0.16", "fcfs"] for line in lines)


def test_json_has_cells_and_parts(folder: Path) -> None:
    outcome = call(
        "agents",
        "log.jsonl",
        *SMALL,
        "--policies",
        "fcfs,program-fcfs",
        "--dram",
        "none",
        "--seeds",
        "1",
        "--json",
        cwd=folder,
    )
    told = json.loads(outcome.stdout)
    assert [(each["policy"], each["dram_gib"]) for each in told["cells"]] == [("fcfs", 0.0), ("program-fcfs", 0.0)]
    assert told["parts"]["order"] == told["cells"][1]["speedup"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [(("--dram", "lots"), "--dram = 'lots'"), (("--seeds", "0"), "--seeds"), (("--policies", "fcfs,x"), "--policies")],
)
def test_what_cannot_be_is_refused_by_its_flag(folder: Path, flags: tuple[str, ...], words: str) -> None:
    outcome = call("agents", "log.jsonl", *SMALL, *flags, cwd=folder)
    assert (outcome.code, words in outcome.stderr) == (2, True)
