"""Stages of a pipeline: when steps overlap, when they wait for tokens, and that nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.sim.test_replay import Recorder, request, run

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.engine import EngineCore
from tokenyard.core.profiles import decision_profile
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import ConfigError
from tokenyard.sim.replay import ReplayResult, replay_parallel
from tokenyard.sim.routers import RoundRobin
from tokenyard.steptime.model import ConstantLatency
from tokenyard.workload.record import Workload

TWO_SECONDS = ConstantLatency(seconds=2.0)


def staged(
    *requests: Any, is_async: bool, size: int = 2, budget: int = 16, version: str = "0.22"
) -> tuple[ReplayResult, Recorder]:
    config = SchedulerConfig(
        profile=decision_profile(version),
        max_num_seqs=8,
        max_num_batched_tokens=budget,
        max_model_len=4096,
        async_scheduling=is_async,
        pipeline_parallel_size=size,
    )
    return run(*requests, config=config, latency=TWO_SECONDS)


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


def test_since_0_23_requests_go_round_the_stages_with_async_scheduling_too() -> None:
    """As without: the two take turns, a second apart. A third step is decided ahead, and costs nothing."""
    result, recorder = staged(request("a", 16, 3), request("b", 16, 3), is_async=True, version="0.33")
    assert times(recorder, "a") == (2.0, 6.0)
    assert times(recorder, "b") == (3.0, 7.0)
    assert (result.num_finished, result.busy_seconds) == (2, 7.0)
    decided = [tuple(dict(each[2])) for each in recorder.log if each[1] == "decided" and each[2]]  # type: ignore[call-overload]
    assert decided == [("a",), ("b",)] * 3


@pytest.mark.parametrize("stages", [2, 3, 8])
def test_a_request_alone_takes_as_long_as_one_long_gpu(stages: int) -> None:
    _, recorder = staged(request("a", 16, 5), is_async=True, size=stages, version="0.33")
    assert times(recorder, "a") == pytest.approx((2.0, 10.0))


def test_who_decodes_waits_a_round_and_who_computes_a_prompt_does_not() -> None:
    config = SchedulerConfig(
        profile=decision_profile("0.33"),
        max_num_batched_tokens=16,
        max_model_len=4096,
        async_scheduling=True,
        pipeline_parallel_size=3,
    )
    assert (config.max_steps_in_flight, config.steps_per_decode) == (4, 3)
    scheduler = Scheduler(config, CacheConfig(num_gpu_blocks=100))
    scheduler.add_request(Request("a", range(40), SamplingParams(max_tokens=9)))
    computed = [scheduler.schedule().num_new_tokens.tolist() for _ in range(8)]
    assert computed == [[16], [16], [8], [], [], [1], [], []]


@pytest.mark.parametrize(
    ("version", "is_async", "steps", "per_decode"),
    [("0.22", True, 4, 1), ("0.22", False, 4, 1), ("0.33", True, 5, 4), ("0.33", False, 4, 1)],
)
def test_steps_in_flight(version: str, steps: int, per_decode: int, *, is_async: bool) -> None:
    config = SchedulerConfig(
        profile=decision_profile(version), async_scheduling=is_async, pipeline_parallel_size=4, max_model_len=64
    )
    assert (config.max_steps_in_flight, config.steps_per_decode) == (steps, per_decode)
    assert EngineCore(Scheduler(config, CacheConfig(num_gpu_blocks=10_318)), Recorder()).depth == steps  # type: ignore[arg-type]


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
@pytest.mark.parametrize("version", ["0.22", "0.33"])
def test_a_workload_is_served_whole_where_memory_is_short(version: str, engines: int, *, is_async: bool) -> None:
    workload = Workload("long", [request(f"r{i}", 60, 40, arrival_time=0.1 * i) for i in range(16)])
    config = SchedulerConfig(
        profile=decision_profile(version),
        max_num_seqs=16,
        max_num_batched_tokens=128,
        max_model_len=128,
        async_scheduling=is_async,
        pipeline_parallel_size=4,
    )
    result = replay_parallel(
        workload,
        config,
        CacheConfig(num_gpu_blocks=25),
        ConstantLatency(seconds=0.05),
        RoundRobin(),
        data_parallel_size=engines,
        rows=True,
    )
    assert result.rows is not None
    assert result.rows.requests["preemptions"].sum() > 0
    assert (result.num_finished, result.output_tokens) == (16, 16 * 40)


@pytest.mark.parametrize("stages", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("version", ["0.22", "0.33"])
def test_nobody_stalls_behind_steps_without_tokens(version: str, stages: int, *, is_async: bool) -> None:
    """With four stages the output that frees requests comes in with the step that finds none for the last time."""
    requests = [request(f"r{i}", 64, 8) for i in range(12)]
    result, _ = staged(*requests, is_async=is_async, size=stages, budget=512, version=version)
    assert result.num_finished == len(requests)


def test_ranks_that_step_together_have_one_stage() -> None:
    with pytest.raises(ConfigError, match="pipeline_parallel_size"):
        replay_parallel(
            Workload("w", [request("a")]),
            SchedulerConfig(max_model_len=4096, pipeline_parallel_size=2),
            CacheConfig(num_gpu_blocks=100),
            TWO_SECONDS,
            RoundRobin(),
            data_parallel_size=2,
            steps_together=True,
        )
