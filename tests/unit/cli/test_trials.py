"""Proposals of a run are replayed: all of it where there is room, else its busiest part, which is said."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.unit.explain.test_trials import advice
from tests.unit.trace.recorded import RecordedYard

import tokenyard.cli.run
from tokenyard.cli.main import main
from tokenyard.cli.support.asking import scenario_of
from tokenyard.cli.support.flags.replays import RunCommand
from tokenyard.cli.support.parsing import parse
from tokenyard.deploy.spec import ReplaySpec
from tokenyard.explain.advice.rules import Cost
from tokenyard.explain.figures import LatencyFigures
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.report import Report
from tokenyard.explain.report.trials import LEAST_GAIN
from tokenyard.questions.relief import with_trials
from tokenyard.questions.scenario import Scenario, replay_spec

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


@pytest.mark.slow
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


def _figures(milliseconds: float) -> LatencyFigures:
    return LatencyFigures(milliseconds, milliseconds, milliseconds, milliseconds)


def _reported(milliseconds: float) -> Report:
    builder = ReportBuilder()
    yard = RecordedYard(None, builder, max_num_seqs=4)
    yard.add("a", 4, max_tokens=3, arrival_time=0.0)
    yard.drain()
    return msgspec.structs.replace(builder.report(), ttft_ms=_figures(milliseconds), e2e_ms=_figures(milliseconds))


@given(
    rules=st.lists(
        st.sampled_from(["memory", "compute", "evicted-turns", "order", "seats", "preemptions"]),
        min_size=1,
        max_size=3,
        unique=True,
    ),
    seed=st.integers(0, 999),
)
@settings(deadline=None, max_examples=examples(20))
def test_advice_is_what_replays_showed_and_what_costs_least_comes_first(rules: list[str], seed: int) -> None:
    """Replays whose figures are drawn: nothing is shown that was not replayed, or with other figures."""
    flags = parse(["run", "random", "--num-prompts", "2", "--gpu", "l40s", "--model", "llama-3.2-1b"])
    assert isinstance(flags, RunCommand)
    random, came_to = Random(seed), dict[str, float]()

    def replay(setup: ReplaySpec, asked: Scenario, what: str) -> Report:
        came_to[what] = random.choice([20.0, 60.0, 90.0, 99.0, 130.0])
        return _reported(came_to[what])

    before = msgspec.structs.replace(_reported(100.0), advice=[advice(rule) for rule in rules])
    told = with_trials(scenario_of(flags), replay_spec(scenario_of(flags)), before, replay)
    shown = []
    for each in told.advice:
        assert each.trial is not None
        shown.append(each.trial)
        assert {effect.after for effect in each.trial.effects if effect.figure in ("ttft_ms.p90", "e2e_ms.mean")} == {
            came_to[f"{each.trial.setting} {each.trial.then}"]
        }
    assert all(trial.effects[0].change <= -LEAST_GAIN for trial in shown)
    assert [trial.cost.rank for trial in shown] == sorted(trial.cost.rank for trial in shown)
    assert all(trial.is_vllm for trial in shown if trial.cost is not Cost.OTHER_SCHEDULER)
    helps = {what for what, figure in came_to.items() if figure <= 97}
    for name, cost in (("kv_cache_dtype fp8", Cost.SETTING), ("tensor_parallel_size 2", Cost.GPUS)):
        if name in helps and cost is Cost.SETTING:
            assert shown[0].cost is Cost.SETTING, "not GPUs, where a setting helps"
    assert bool(shown) == bool(helps)
    assert len({trial.flag for trial in shown}) == len(shown)
