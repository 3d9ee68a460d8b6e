"""The head that drafts: one more layer, in memory and in time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.planner_answers import LARGEST_WEIGHT_ERROR, recorded

from tokenyard.core.config import GroupKind
from tokenyard.memory.kv_plan import plan_kv_cache
from tokenyard.models.additions import draft_head, with_draft_head, with_draft_model
from tokenyard.models.mixers import Attends, SoftmaxAttention
from tokenyard.models.named import named_model
from tokenyard.models.reading.read import model_from_config

GIB = 1 << 30


def test_it_is_one_more_layer_with_keys_and_values() -> None:
    model = named_model("llama-3.1-8b")
    both = with_draft_head(model)
    layer = model.layers[-1].num_bytes(model.dtype_bytes)
    assert both.weight_bytes() - model.weight_bytes() == layer + 2 * 4096 * 4096 * 2
    with_it, without = (plan_kv_cache(each, available_bytes=40 * GIB).num_blocks for each in (both, model))
    assert with_it == pytest.approx(without * 32 / 33, abs=1)


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gemma-3-27b", "qwen3-next-80b-a3b", "nemotron-h-8b"])
def test_it_attends_to_everything(name: str) -> None:
    layer = draft_head(named_model(name)).layers[0]
    assert any(isinstance(mixer, SoftmaxAttention) and mixer.attends is Attends.FULL for mixer in layer.mixers)


def test_windows_get_a_group_as_large_as_that_of_the_head() -> None:
    """vLLM pads 12 layers with windows to the 13 that are full, instead of cutting the latter in two."""
    model = named_model("gpt-oss-20b")
    plan = plan_kv_cache(with_draft_head(model), available_bytes=40 * GIB)
    assert [(group.first.kind, len(group.layers)) for group in plan.groups] == [
        (GroupKind.SLIDING_WINDOW, 12),
        (GroupKind.FULL, 13),
    ]
    assert plan.bytes_per_block * 12 == plan_kv_cache(model, available_bytes=40 * GIB).bytes_per_block * 13


def test_a_draft_model_takes_its_weights_and_its_kv() -> None:
    model, small = named_model("llama-3.1-8b"), named_model("llama-3.2-1b")
    both = with_draft_model(model, small)
    assert both.weight_bytes(2) - model.weight_bytes(2) == pytest.approx(small.weight_bytes(2), rel=1e-6)
    with_it, without = (plan_kv_cache(each, available_bytes=40 * GIB).num_tokens for each in (both, model))
    assert with_it == pytest.approx(without * 32 / (32 + 16 / 2), rel=0.01), "16 layers with heads of half the size"
    shared = plan_kv_cache(with_draft_model(model, small, shares_kv=True), available_bytes=40 * GIB)
    assert shared.num_tokens == without


RECORDED = recorded(Path(__file__).with_name("drafts.json.gz"))
_MAX_NUM_BATCHED_TOKENS = 8192


ANSWERED = {name: [case for case in cases if "error" not in case] for name, cases in RECORDED["architectures"].items()}


def test_vllm_answered_for_most_of_them() -> None:
    assert sum(bool(cases) for cases in ANSWERED.values()) >= 24


@pytest.mark.parametrize("name", [name for name, cases in ANSWERED.items() if cases])
def test_layers_that_predict_are_those_that_vllm_loads(name: str) -> None:
    """lab/record_drafts.py has asked vLLM's own classes and its planner."""
    wrong = []
    for case in ANSWERED[name]:
        model = model_from_config(case["config"], name=name, where="config.json")
        both = with_draft_head(model, predicts_itself=True)
        for answer in case["tensor_parallel"]:
            size = answer["tensor_parallel_size"]
            ours = both.weight_bytes(size) - model.weight_bytes(size)
            if ours != pytest.approx(answer["weight_bytes"], rel=LARGEST_WEIGHT_ERROR):
                wrong.append((case["variant"], size, ours, answer["weight_bytes"]))
            if answer["num_blocks"] is None:
                continue
            plan = plan_kv_cache(
                both,
                available_bytes=RECORDED["available_bytes"],
                tensor_parallel_size=size,
                max_model_len=answer["max_model_len"],
                max_num_batched_tokens=_MAX_NUM_BATCHED_TOKENS,
                enable_prefix_caching=answer["enable_prefix_caching"],
                async_scheduling=answer["async_scheduling"],
                num_speculative_tokens=answer["num_speculative_tokens"],
            )
            if (plan.num_blocks, plan.num_tokens) != (answer["num_blocks"], answer["tokens"]):
                wrong.append((case["variant"], size, plan.num_blocks, answer["num_blocks"]))
    assert wrong == []


def test_a_model_without_such_layers_does_not_predict_itself() -> None:
    assert named_model("llama-3.1-8b").predicting_layers == named_model("kimi-k2").predicting_layers == ()
    assert len(named_model("deepseek-v3").predicting_layers) == 1
