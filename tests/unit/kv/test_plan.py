"""The plan of the KV cache: what is given to the scheduler, what is refused, pipelines. Capacity: tests/unit/models."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.kv_size import size_kv_cache

from tokenyard.core.config import CacheConfig, GroupKind, KVCacheGroup, MambaCacheMode
from tokenyard.errors import ConfigError
from tokenyard.memory.kv_plan import plan_kv_cache
from tokenyard.models.gpus import named_gpu
from tokenyard.models.named import named_model
from tokenyard.models.spec import pipeline_stages
from tokenyard.serve.torch.attention import elements_of

GIB = 1 << 30


def test_a_model_of_one_kind_gets_the_default_group() -> None:
    plan = plan_kv_cache(named_model("llama-3.1-8b"), available_bytes=30 * GIB)
    assert plan.cache_groups == CacheConfig(num_gpu_blocks=2).groups == (KVCacheGroup(),)
    assert plan.cache_config(watermark=0.01).watermark == 0.01
    assert plan.num_tokens == plan.num_blocks * 16


def test_a_pool_that_holds_no_longest_request_is_refused_with_the_length_that_would_fit() -> None:
    model = named_model("llama-3.1-8b")
    with pytest.raises(
        ConfigError, match=r"max_model_len = 131072: .*needs 16.00 GiB.*4.00 GiB.*give at most 32752"
    ) as e:
        plan_kv_cache(model, available_bytes=4 * GIB)
    assert e.value.field == "max_model_len"
    assert plan_kv_cache(model, available_bytes=4 * GIB, max_model_len=32_752).max_concurrency > 1
    with pytest.raises(ConfigError):
        plan_kv_cache(model, available_bytes=4 * GIB, max_model_len=32_753)
    assert plan_kv_cache(model, available_bytes=4 * GIB, must_start=False).longest == 32_752


def test_the_null_block_counts_from_0_33_on() -> None:
    model = named_model("llama-3.1-8b")
    exact: dict[str, Any] = {"num_gpu_blocks": 2048, "max_model_len": 32_768}
    assert plan_kv_cache(model, planner="0.22", **exact).num_blocks == 2048
    with pytest.raises(ConfigError, match="give at most 32752"):
        plan_kv_cache(model, planner="0.33", **exact)


def test_no_memory_at_all() -> None:
    with pytest.raises(ConfigError, match="kv_cache_memory_bytes = 0: leaves no memory"):
        plan_kv_cache(named_model("llama-3.1-8b"), available_bytes=0)


def test_windows_keep_blocks_for_steps_in_flight() -> None:
    model = named_model("gpt-oss-20b")
    ahead = plan_kv_cache(model, available_bytes=20 * GIB)
    one = plan_kv_cache(model, available_bytes=20 * GIB, async_scheduling=False)
    assert ahead.blocks_per_request - one.blocks_per_request == 8192 // 16
    assert {group.kind for group in ahead.cache_groups} == {GroupKind.FULL, GroupKind.SLIDING_WINDOW}


@pytest.mark.parametrize(
    ("planner", "caching", "mode"),
    [
        ("0.22", True, MambaCacheMode.ALL),
        ("0.22", False, MambaCacheMode.NONE),
        ("0.33", True, MambaCacheMode.ALIGN),
        ("0.33", False, MambaCacheMode.NONE),
    ],
)
def test_states_are_kept_as_the_version_does_and_the_scheduler_takes_the_groups(
    planner: str, caching: bool, mode: MambaCacheMode
) -> None:
    plan = plan_kv_cache(
        named_model("nemotron-h-8b"), available_bytes=30 * GIB, planner=planner, enable_prefix_caching=caching
    )
    config = plan.cache_config()
    assert (config.mamba_cache_mode, config.enable_prefix_caching) == (mode, caching)
    assert [group.kind for group in config.groups].count(GroupKind.FULL) == 1
    assert config.block_size > 16


def test_a_pipeline_holds_a_part_of_every_group() -> None:
    model = named_model("llama-3.1-8b")
    whole = plan_kv_cache(model, available_bytes=30 * GIB)
    halves = plan_kv_cache(model, available_bytes=30 * GIB, pipeline_parallel_size=2)
    assert halves.num_blocks == 2 * whole.num_blocks
    assert model.weight_bytes(pipeline_parallel_size=2) > model.weight_bytes() // 2


@pytest.mark.parametrize(
    ("layers", "size", "counts"),
    [(32, 1, [32]), (32, 4, [8, 8, 8, 8]), (61, 4, [15, 15, 16, 15]), (26, 4, [6, 7, 7, 6])],
)
def test_layers_left_over_go_to_the_stages_before_the_last(layers: int, size: int, counts: list[int]) -> None:
    stages = pipeline_stages(layers, size)
    assert [len(stage) for stage in stages] == counts
    assert [i for stage in stages for i in stage] == list(range(layers))


def test_whole_experts_are_dealt_out() -> None:
    model = named_model("qwen3-30b-a3b")
    cut, dealt = model.weight_bytes(8), model.weight_bytes(8, expert_parallel_size=8)
    assert cut == dealt
    assert model.weight_bytes(1, expert_parallel_size=8) > dealt


@pytest.mark.parametrize(
    ("model", "size", "what"),
    [
        ("phi-4", 8, "10 KV heads"),
        ("qwen2.5-7b", 8, "28 heads"),
        ("qwen3-next-80b-a3b-fp8", 8, "4 blocks of 128 columns"),
    ],
)
def test_what_cannot_be_shared_out_is_named(model: str, size: int, what: str) -> None:
    with pytest.raises(ConfigError, match=f"tensor_parallel_size = {size}: must divide the {what}"):
        size_kv_cache(named_model(model), named_gpu("h200"), tensor_parallel_size=size)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_the_engine_s_tensors_have_the_pages_that_are_planned(name: str) -> None:
    plan = plan_kv_cache(named_model(name), available_bytes=30 * GIB)
    for cache in plan.groups[0].layers:
        keys, values = elements_of(cache)
        assert 2 * (keys + values) == cache.page_bytes, "two bytes an element"
