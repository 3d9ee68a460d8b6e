"""Stages of a pipeline: when steps overlap, when they wait for tokens, and that nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.sim.test_replay import Recorder, request, run

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.errors import ConfigError
from tokenyard.sim.latency import ConstantLatency
from tokenyard.sim.parallel.replay import replay_parallel
from tokenyard.sim.parallel.routers.simple import RoundRobin
from tokenyard.sim.replay import ReplayResult
from tokenyard.sim.workload import Workload, load_workload

TWO_SECONDS = ConstantLatency(seconds=2.0)


def staged(*requests: Any, is_async: bool, size: int = 2, budget: int = 16) -> tuple[ReplayResult, Recorder]:
    config = SchedulerConfig(
        max_num_seqs=8, max_num_batched_tokens=budget, max_model_len=4096, async_scheduling=is_async
    )
    return run(*requests, config=config, latency=TWO_SECONDS, pipeline_parallel_size=size)


def times(recorder: Recorder, name: str) -> tuple[float | None, float | None]:
    found = recorder.requests[name].times
    return found.first_token, found.finished


def test_without_async_scheduling_requests_part_into_as_many_batches_as_stages() -> None:
    """Each prompt takes a whole step; from then on the two take turns, a second apart."""
    result, recorder = staged(request("a", 16, 3), request("b", 16, 3), is_async=False)
    assert times(recorder, "a") == (2.0, 6.0)
    assert times(recorder, "b") == (3.0, 7.0)
    assert (result.num_finished, result.seconds, result.busy_seconds) == (2, 7.0, 7.0)


def test_with_async_scheduling_a_step_waits_for_the_tokens_of_the_one_before() -> None:
    _, recorder = staged(request("a", 16, 3), is_async=True)
    assert times(recorder, "a") == (2.0, 6.0)


@pytest.mark.parametrize("is_async", [False, True])
def test_chunks_of_a_prompt_follow_each_other_through_the_stages(*, is_async: bool) -> None:
    _, recorder = staged(request("a", 64, 1), is_async=is_async)
    assert times(recorder, "a") == (2.0 + 3 * 1.0, 5.0)


def test_one_stage_is_the_plain_replay() -> None:
    requests = request("a", 40, 5), request("b", 16, 9, arrival_time=1.0)
    config = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=16, max_model_len=4096, async_scheduling=False)
    plain = run(*requests, config=config, latency=TWO_SECONDS)
    one = staged(*requests, is_async=False, size=1)
    assert (one[0], one[1].log) == (plain[0], plain[1].log)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("engines", [1, 2])
def test_a_workload_is_served_whole_where_memory_is_short(engines: int, *, is_async: bool) -> None:
    workload = load_workload("chat", limit=6, rate_scale=8.0)
    config = SchedulerConfig(
        max_num_seqs=16, max_num_batched_tokens=512, max_model_len=16_384, async_scheduling=is_async
    )
    result = replay_parallel(
        Workload("chat", workload.requests),
        config,
        CacheConfig(num_gpu_blocks=560),
        ConstantLatency(seconds=0.05),
        RoundRobin(),
        data_parallel_size=engines,
        pipeline_parallel_size=4,
    )
    assert result.num_finished == len(workload)


def test_ranks_that_step_together_have_one_stage() -> None:
    with pytest.raises(ConfigError, match="pipeline_parallel_size"):
        replay_parallel(
            Workload("w", [request("a")]),
            SchedulerConfig(max_model_len=4096),
            CacheConfig(num_gpu_blocks=100),
            TWO_SECONDS,
            RoundRobin(),
            data_parallel_size=2,
            steps_together=True,
            pipeline_parallel_size=2,
        )
