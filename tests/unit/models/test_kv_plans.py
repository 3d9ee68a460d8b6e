"""Plans of the KV cache and weights of every known model, against what vLLM's own planner and model classes say.

``scripts/record_kv_plans.py`` records the fixture; it builds vLLM's models from the same ``config.json``, and knows
nothing of our reader.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tokenyard.core.config import GroupKind
from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import plan_kv_cache
from tokenyard.models.gpus import GPUS
from tokenyard.models.named import MODELS

FIXTURES = sorted(Path(__file__).parent.glob("kv_plans*.json.gz"))
KINDS = {
    "ChunkedLocalAttentionSpec": GroupKind.CHUNKED_LOCAL,
    "CrossAttentionSpec": GroupKind.CROSS_ATTENTION,
    "FullAttentionSpec": GroupKind.FULL,
    "MLAAttentionSpec": GroupKind.FULL,
    "MambaSpec": GroupKind.MAMBA,
    "SlidingWindowSpec": GroupKind.SLIDING_WINDOW,
}
LARGEST_WEIGHT_ERROR = 0.012
"""Biases are not shared out here, and scales per output channel are not counted; everything else is exact."""


@cache
def _recorded(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return content


def _name(recorded: dict[str, Any], plan: dict[str, Any]) -> str:
    options = [f"{name}={value}" for name, value in plan["options"].items()]
    size = f"tp{plan['tensor_parallel_size']}"
    return "-".join((recorded["versions"]["vllm"], recorded.get("gpu", "h100"), plan["model"], size, *options))


def _ours(case: dict[str, Any], recorded: dict[str, Any], available_bytes: int) -> dict[str, Any]:
    """Our plan in the fixture's words."""
    try:
        plan = plan_kv_cache(
            MODELS[case["model"]],
            available_bytes=available_bytes,
            tensor_parallel_size=case["tensor_parallel_size"],
            max_model_len=case["max_model_len"],
            max_num_batched_tokens=recorded["settings"]["max_num_batched_tokens"],
            enable_prefix_caching=case["enable_prefix_caching"],
            async_scheduling=case["async_scheduling"],
            kv_cache_dtype=case["options"].get("kv_cache_dtype", "auto"),
            compute_capability=GPUS[recorded.get("gpu", "h100")].compute_capability,
            planner=recorded["versions"]["vllm"].rpartition(".")[0],
        )
    except ConfigError as error:
        return {"longest": error.details["longest"]}
    groups = [
        (group.first.kind, group.first.block_size, len(group.layers), group.first.window) for group in plan.groups
    ]
    return {
        "num_blocks": plan.num_blocks,
        "tokens": plan.num_tokens,
        "concurrency": pytest.approx(plan.max_concurrency),
        "groups": groups,
    }


def _theirs(said: dict[str, Any], *, longer_window: int = 0) -> dict[str, Any]:
    if "refused" in said:
        return {"longest": said["estimated_max_model_len"]}
    groups = [
        (KINDS[g["kind"]], g["block_size"], g["num_layers"], g["window"] and g["window"] + longer_window)
        for g in said["groups"]
    ]
    return {
        "num_blocks": said["num_blocks"],
        "tokens": said["tokens"],
        "concurrency": said["concurrency"],
        "groups": groups,
    }


@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: file.name)
def test_groups_blocks_and_capacity_are_the_planners(file: Path) -> None:
    recorded, wrong = _recorded(file), []
    is_old = recorded["versions"]["vllm"].startswith("0.22")
    for case in recorded["plans"]:
        # Command-R7B's window holds one token more than vLLM 0.22 takes it for; later versions count as we do.
        short = is_old and MODELS[case["model"]].architecture == "Cohere2ForCausalLM"
        for said in case["plans"]:
            ours = _ours(case, recorded, said["available_bytes"])
            theirs = _theirs(said, longer_window=int(short))
            if ours != theirs:
                wrong.append(f"{_name(recorded, case)}: {ours}, vLLM says {theirs}")
    assert recorded["plans"]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: file.name)
def test_weights_are_those_of_the_model_class(file: Path) -> None:
    recorded, wrong = _recorded(file), []
    for case in recorded["plans"]:
        model = MODELS[case["model"]]
        ours = (model.weight_bytes(case["tensor_parallel_size"]), model.dtype, model.max_model_len)
        weights = pytest.approx(case["rank_weight_bytes"], rel=LARGEST_WEIGHT_ERROR)
        theirs: Any = (weights, case["dtype"], case["max_model_len"])
        if ours != theirs:
            wrong.append(f"{_name(recorded, case)}: {ours}, vLLM says {case['rank_weight_bytes']}")
    assert not wrong, "\n".join(wrong)


def test_every_architecture_was_asked_for() -> None:
    asked = {plan["model"] for file in FIXTURES for plan in _recorded(file)["plans"]}
    assert {MODELS[name].architecture for name in asked} == {model.architecture for model in MODELS.values()}


def test_the_table_of_deployments_agrees_with_the_planner() -> None:
    page = Path(__file__).parents[3] / "docs" / "deployments.md"
    table = page.read_text().partition("## Against vLLM's planner")[2].partition("## Against logs")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and " x " in line]
    assert len(rows) >= 40
    assert [row for row in rows if not row.endswith("| equal |")] == []
