"""First sentences of answers: what they say where variants or policies come to the same."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tokenyard as ty
from tokenyard import ConfigError, Deployment
from tokenyard.questions.planning.goal import Goal, front_of
from tokenyard.questions.sweeping.rows import Row

SMALL = Deployment(model="llama-3.2-1b", gpu="l4", max_num_seqs=2, max_model_len=4096)
FEW: dict[str, Any] = {"num_prompts": 12, "input_len": 300, "output_len": 12, "request_rate": 200.0}
FEW_SEATS = SMALL.with_(max_num_seqs=6, max_model_len=2048, num_gpu_blocks_override=200)
MANY: dict[str, Any] = {"num_prompts": 40, "input_len": 500, "output_len": 60, "request_rate": 20.0}
MANY["random_range_ratio"] = 0.5


def test_a_plan_without_bounds_says_that_variants_reach_as_much() -> None:
    space = {"max_num_batched_tokens": [4096, 8192], "max_num_seqs": [12]}
    plan = SMALL.plan("random", space=space, largest_load=False, jobs=1, num_prompts=12, input_len=300, output_len=12)
    first = str(plan).split("\n\n")[0].replace("\n", " ")
    assert first.startswith("2 of 2 variants reach as much: ")
    assert first.endswith("answers soonest. Bounds (--slo) say which latencies count.")


@pytest.mark.parametrize(
    ("policies", "says"),
    [
        (["fcfs", "priority"], "priority has nothing to decide by here (all requests have the same priority"),
        (["fcfs", ty.Policy], "nothing was scarce enough for the order to matter"),
    ],
    ids=["idle", "alike"],
)
def test_policies_with_the_same_figures(policies: list[Any], says: str) -> None:
    comparison = ty.compare("random", SMALL, policies, **FEW)
    assert says in str(comparison).replace("\n", " ")


def test_the_front_is_what_none_beats() -> None:
    """Beside the definition: no other is at least as good in both, and better in one."""
    drawn = Random(0)
    for _ in range(200):
        rows = [
            Row(
                settings={"n": n},
                gpus=drawn.randint(1, 4),
                met=True,
                figures={
                    "throughput.requests_per_s": float(drawn.randint(1, 4)),
                    "e2e_ms.mean": drawn.choice([None, 1.0, 2.0]),
                },
            )
            for n in range(drawn.randint(0, 8))
        ]
        for goal in (Goal.GOODPUT, Goal.GPUS):
            by_cost = len({row.gpus for row in rows}) > 1 and not goal.is_least
            scores = [_score(row, goal, by_cost=by_cost) for row in rows]
            beaten = {
                j
                for (i, one), (j, other) in product(enumerate(scores), repeat=2)
                if i != j and one != other and one[0] <= other[0] and one[1] <= other[1]
            }
            best = sorted((each for each in range(len(rows)) if each not in beaten), key=lambda each: scores[each])
            assert front_of(rows, goal) == [rows[each] for each in best]


def _score(row: Row, goal: Goal, *, by_cost: bool) -> tuple[float, float]:
    rate, slow = row.figures["throughput.requests_per_s"] or 0.0, row.figures["e2e_ms.mean"] or float("inf")
    if by_cost:
        return float(row.gpus or 0), -rate
    return (float(row.gpus or 0), slow) if goal is Goal.GPUS else (-rate, slow)


def test_answers_are_drawn_and_become_pages(tmp_path: Path) -> None:
    space = {"max_num_seqs": [1, 2]}
    plan = SMALL.plan("random", space=space, largest_load=False, jobs=1, **FEW)
    assert plan.draw().startswith("<svg")
    assert "answers soonest" in plan.page() or "does best" in plan.page()
    assert "max_num_seqs" in SMALL.sweep("random", space, **FEW).page()
    comparison = ty.compare("random", SMALL, ["fcfs"], **FEW)
    assert comparison.draw("ttft_s").startswith("<svg")
    with pytest.raises(ConfigError, match="use one of: completion_s"):
        comparison.draw("ttft")
    study = ty.study("random", SMALL, **FEW)
    with pytest.raises(
        ConfigError, match=r"use one of: ttft_ms.mean, ttft_ms.p50, ttft_ms.p90, ttft_ms.p95, ttft_ms.p99"
    ):
        study.draw("ttft")


def test_of_a_prediction_a_change_that_its_error_may_turn_is_said_with_may(tmp_path: Path) -> None:
    """Fewer seats are worse however long steps are; smaller steps may be better or worse, and that can be felt."""
    ty.run("random", FEW_SEATS, trace=tmp_path, **MANY)
    changes = {"fewer": {"max_num_seqs": 2}, "small": {"max_num_batched_tokens": 256}}
    told = ty.whatif(tmp_path, changes)
    first, second = str(told).split("\nThis trace is itself a prediction")[0].split("\nWith small: ")
    assert first.startswith("With fewer: TPOT p90 ")
    assert second.startswith("TPOT p90 may be ")
    for variant, may_turn in zip(told.variants, (False, True), strict=True):
        figures = {each.name: each for each in variant.figures}
        for name in ("ttft_ms.p90", "tpot_ms.p90", "e2e_ms.p90"):
            low, change, high = figures[name].change_low, figures[name].change, figures[name].change_high
            assert low is not None
            assert change is not None
            assert high is not None
            assert low <= change <= high
            assert (low < 0 < high) is may_turn
