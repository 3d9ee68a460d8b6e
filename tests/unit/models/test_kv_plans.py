"""Plans of the KV cache and weights of every known model, against what vLLM's own planner and model classes say.

``scripts/record_kv_plans.py`` records the fixture; it builds vLLM's models from the same ``config.json``, and knows
nothing of our reader.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.planner_answers import LARGEST_WEIGHT_ERROR, our_plan, recorded, their_plan

from tokenyard.models.named import MODELS

FIXTURES = sorted(Path(__file__).parent.glob("kv_plans*.json.gz"))


def _cases() -> list[Any]:
    return [
        pytest.param(
            file,
            i,
            id="-".join(
                (
                    recorded(file)["versions"]["vllm"],
                    recorded(file).get("gpu", "h100"),
                    plan["model"],
                    f"tp{plan['tensor_parallel_size']}",
                    *_options(plan),
                )
            ),
        )
        for file in FIXTURES
        for i, plan in enumerate(recorded(file)["plans"])
    ]


def _options(plan: dict[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in plan["options"].items()]


@pytest.mark.parametrize(("file", "index"), _cases())
def test_groups_blocks_and_capacity_are_the_planners(file: Path, index: int) -> None:
    around = recorded(file)
    case = around["plans"][index]
    # Command-R7B's window holds one token more than vLLM 0.22 takes it for; later versions count as we do.
    short = around["versions"]["vllm"].startswith("0.22") and MODELS[case["model"]].architecture == "Cohere2ForCausalLM"
    for said in case["plans"]:
        ours = our_plan(MODELS[case["model"]], case, around, said["available_bytes"])
        assert ours == their_plan(said, longer_window=int(short))


@pytest.mark.parametrize(("file", "index"), _cases())
def test_weights_are_those_of_the_model_class(file: Path, index: int) -> None:
    case = recorded(file)["plans"][index]
    model = MODELS[case["model"]]
    assert model.weight_bytes(case["tensor_parallel_size"]) == pytest.approx(
        case["rank_weight_bytes"], rel=LARGEST_WEIGHT_ERROR
    )
    assert model.dtype == case["dtype"]
    assert model.max_model_len == case["max_model_len"]


def test_every_architecture_was_asked_for() -> None:
    asked = {plan["model"] for file in FIXTURES for plan in recorded(file)["plans"]}
    assert {MODELS[name].architecture for name in asked} == {model.architecture for model in MODELS.values()}


def test_the_table_of_deployments_agrees_with_the_planner() -> None:
    page = Path(__file__).parents[3] / "docs" / "deployments.md"
    table = page.read_text().partition("## Against vLLM's planner")[2].partition("## Against logs")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and " x " in line]
    assert len(rows) >= 40
    assert [row for row in rows if not row.endswith("| equal |")] == []
