"""Tracing changes no decision, and the reasons that it sees from outside are those that our own scheduler records."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from tests.vllm.side_by_side import difference, run_all

from recorder.plan import Engine, Plan, Planned, Scenario
from recorder.scenarios import LATER, SCENARIOS
from recorder.versions import IS_FIRST

_SMOKE = ("fcfs", "pressure", "places_for_drafts", "places_for_drafts_async")


def _alike(_rng: Random, _engine: Engine) -> Plan:
    """Prompts of which all but one token is cached: with 0.33 admitted with places for drafts, or not at all."""
    prompt = list(range(33))
    return Plan(
        requests=[Planned(id=f"r{i}", prompt=prompt, max_tokens=20, arrival_step=i) for i in range(24)], events=[]
    )


def _places_for_drafts(*, is_async: bool) -> Scenario:
    engine = Engine(
        max_num_seqs=6,
        max_num_batched_tokens=14,
        num_speculative_tokens=3,
        spec_method="ngram_gpu" if is_async else "ngram",
        async_scheduling=is_async,
    )
    return Scenario(name="places_for_drafts" + "_async" * is_async, seed=1, engine=engine, build=_alike)


_HERE = [_places_for_drafts(is_async=is_async) for is_async in (False, True)]
_CASES = [
    pytest.param(each, id=each.name, marks=[pytest.mark.smoke] if each.name in _SMOKE else [])
    for each in (*SCENARIOS, *_HERE, *(() if IS_FIRST else LATER))
]


@pytest.mark.parametrize("scenario", _CASES)
def test_same_decisions_and_reasons(scenario: Scenario, tmp_path: Path) -> None:
    try:
        runs = run_all(scenario, tmp_path)
    except AssertionError as refused:
        if IS_FIRST:
            raise
        pytest.skip(f"vLLM itself refuses it: {refused!r}")
    assert runs.traced == runs.own
    assert [step.number for step in runs.seen] == list(range(sum("s" in tick for tick in runs.own)))
    assert all(step.completed is not None for step in runs.seen[: sum("u" in tick for tick in runs.own)])
    if runs.ours is None:
        pytest.skip("decisions are alike; our scheduler does not replay this scenario")
    assert len(runs.seen) == len(runs.ours)
    differ = {seen.number: difference(seen, ours) for seen, ours in zip(runs.seen, runs.ours, strict=True)}
    assert {number: found for number, found in differ.items() if found} == {}
