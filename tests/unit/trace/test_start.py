"""The first record of a trace says which settings were not chosen."""

from __future__ import annotations

from dataclasses import replace

from tests.support.profiles import VLLM_0_22

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.profiles import NEWEST
from tokenyard.trace.start import deployment_of, describe_run

CACHE = CacheConfig(num_gpu_blocks=100, block_size=32)


def assumed(scheduler: SchedulerConfig) -> dict[str, object]:
    start = describe_run(scheduler, CACHE, host="replay")
    return {each.name: each.value for each in deployment_of(start.config).assumed}


def test_configurations_made_by_hand_say_what_stands_at_its_default() -> None:
    assert assumed(SchedulerConfig(max_model_len=4096, max_num_batched_tokens=2048)) == {
        "profile": NEWEST.vllm_version,
        "max_num_seqs": 256,
        "async_scheduling": False,
    }


def test_what_somebody_chose_is_no_assumption() -> None:
    chosen = SchedulerConfig(max_model_len=4096, max_num_batched_tokens=2048, max_num_seqs=64, async_scheduling=True)
    assert assumed(replace(chosen, profile=VLLM_0_22)) == {}


def test_the_header_tells_sizes_and_limits() -> None:
    told = deployment_of(describe_run(SchedulerConfig(), CACHE, host="replay").config)
    assert (told.kv_tokens, told.num_gpu_blocks, told.block_size) == (3200, 100, 32)
    assert (told.max_num_seqs, told.max_model_len, told.vllm_version) == (256, 8192, NEWEST.vllm_version)


def test_a_host_that_describes_the_deployment_itself_is_not_spoken_for() -> None:
    assert "deployment" not in (describe_run(SchedulerConfig(), CACHE, host="engine", sections={}).config or {})
