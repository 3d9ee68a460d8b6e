"""Plans of the KV cache and weights of every known model, against what vLLM's own planner and model classes say.

``lab/record_kv_plans.py`` records the fixture; it builds vLLM's models from the same ``config.json``, and knows
nothing of our reader.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.planner_answers import LARGEST_WEIGHT_ERROR, our_plan, recorded, their_plan

import generate_deployments
import tokenyard as ty
from tokenyard.models.named import MODELS

FIXTURES = sorted(Path(__file__).parent.glob("kv_plans*.json.gz"))


def _name(around: dict[str, Any], plan: dict[str, Any]) -> str:
    options = [f"{name}={value}" for name, value in plan["options"].items()]
    size = f"tp{plan['tensor_parallel_size']}"
    return "-".join((around["versions"]["vllm"], around.get("gpu", "h100"), plan["model"], size, *options))


@pytest.mark.slow
@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: file.name)
def test_groups_blocks_and_capacity_are_the_planners(file: Path) -> None:
    around, wrong = recorded(file), []
    for case in around["plans"]:
        for said in case["plans"]:
            ours = our_plan(MODELS[case["model"]], case, around, said["available_bytes"])
            theirs = their_plan(said)
            if ours != theirs:
                wrong.append(f"{_name(around, case)}: {ours}, vLLM says {theirs}")
    assert around["plans"]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: file.name)
def test_weights_are_those_of_the_model_class(file: Path) -> None:
    around, wrong = recorded(file), []
    for case in around["plans"]:
        model = MODELS[case["model"]]
        length = model.longest_model_len or model.max_model_len  # asked about before files here named LongRoPE
        ours = (model.weight_bytes(case["tensor_parallel_size"]), model.dtype, length)
        weights = pytest.approx(case["rank_weight_bytes"], rel=LARGEST_WEIGHT_ERROR)
        theirs: Any = (weights, case["dtype"], case["max_model_len"])
        if ours != theirs:
            wrong.append(f"{_name(around, case)}: {ours}, vLLM says {case['rank_weight_bytes']}")
    assert not wrong, "\n".join(wrong)


def test_every_architecture_was_asked_for() -> None:
    """A few, that no file of theirs builds, are asked for with drawn sizes alone."""
    asked = {plan["model"] for file in FIXTURES for plan in recorded(file)["plans"]}
    drawn = {entry["architecture"] for entry in recorded(Path(__file__).with_name("registry.json.gz"))["architectures"]}
    left = {model.architecture for model in MODELS.values()} - {MODELS[name].architecture for name in asked}
    assert left <= drawn


def _deployments() -> list[str]:
    """Rows of the page's table."""
    table = generate_deployments.document().partition("## Against vLLM's planner")[2].partition("\n## ")[0]
    return [line for line in table.splitlines() if line.startswith("| ") and " x " in line]


def test_the_table_of_deployments_agrees_with_the_planner() -> None:
    rows = _deployments()
    assert len(rows) >= 40
    assert [row for row in rows if not row.endswith("| equal |")] == []


@pytest.mark.parametrize(
    ("model", "gpu", "length"),
    [
        ("qwen2.5-vl-7b", "a100-40gb", None),
        ("mistral-small-3.1-24b", "h100", 32_768),
        ("gemma-3-12b", "a100-80gb", None),
        ("whisper-large-v3", "l4", None),
    ],
)
def test_its_memory_for_kv_is_what_an_encoders_work_leaves(model: str, gpu: str, length: int | None) -> None:
    """On one GPU without graphs nothing is left out of it: ``tokenyard headroom`` says the same."""
    limits = "--max-num-batched-tokens 8192 --max-num-seqs 256 --gpu-memory-utilization 0.92"
    line = f"vllm serve {model} {limits} --enforce-eager"
    room = ty.headroom(ty.Deployment(f"{line} --max-model-len {length}" if length else line, gpu=gpu))
    assert "encoder" in {each.name for each in room.parts}
    (row,) = (row for row in _deployments() if row.startswith(f"| {model} | ") and f"1 x {gpu}" in row)
    assert row.split(" | ")[5] == f"{room.kv_likely / (1 << 30):.1f}"
