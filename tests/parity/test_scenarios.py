"""What is recorded (``lab/recorder/scenarios.json``) is what the recordings of vLLM 0.22 hold."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

with mock.patch.dict(os.environ):  # the recorder sets what vLLM reads
    from recorder.scenarios import LATER, RINGS, SCENARIOS

VECTORS = Path(__file__).parents[2] / "conformance" / "vectors" / "0.22"


def _header(name: str) -> dict[str, Any]:
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        header: dict[str, Any] = json.loads(file.readline())
    return header


def test_names_and_seeds_are_each_one_scenarios() -> None:
    every = (*SCENARIOS, *LATER, *RINGS)
    assert len({each.name for each in every}) == len({each.seed for each in every}) == len(every)
    assert {each.name for each in SCENARIOS} <= {path.name.partition(".")[0] for path in VECTORS.glob("*.gz")}


@pytest.mark.slow
def test_plans_are_those_that_were_recorded() -> None:
    """Prompts, limits and configuration; the prompt of a follow-up holds an answer, which no plan has."""
    for scenario in SCENARIOS:
        header = _header(scenario.name)
        assert header["seed"] == scenario.seed
        config = header["config"]
        ours = {name: getattr(scenario.engine, name) for name in config if hasattr(scenario.engine, name)}
        assert {name: each for name, each in ours.items() if name != "groups"} == {
            name: config[name] for name in ours if name != "groups"
        }, scenario.name
        planned = {each.id: each for each in scenario.plan().requests}
        assert planned.keys() == {each["id"] for each in header["requests"]}
        for each in header["requests"]:
            plan = planned[each["id"]]
            assert each["max_tokens"] == plan.max_tokens
            if plan.after is None:
                assert each["prompt"] == plan.prompt
                assert each["arrival_step"] == plan.arrival_step
