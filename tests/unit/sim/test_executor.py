"""The simulated model: each request's stream, whatever slot it sits in."""

from __future__ import annotations

import numpy as np

from tokenyard.config import CacheConfig, SchedulerConfig
from tokenyard.request import Request, SamplingParams
from tokenyard.sched.scheduler import Scheduler
from tokenyard.sim.clock import VirtualClock
from tokenyard.sim.executor import SimulatedExecutor
from tokenyard.sim.workload import output_tokens


def request(name: str, prompt: int, output: int, seed: int) -> Request:
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    return Request(name, list(range(1, prompt + 1)), params, output_seed=seed)


def run(requests: list[Request], config: SchedulerConfig, cache_config: CacheConfig) -> int:
    """Serve all; the number of preemptions."""
    scheduler, executor = Scheduler(config, cache_config), SimulatedExecutor()
    for each in requests:
        scheduler.add_request(each)
    preempted = 0
    while scheduler.has_requests():
        output = scheduler.schedule()
        preempted += len(output.preempted_req_ids)
        sampled = executor.execute(output)
        assert sampled.sampled.shape == (len(output.requests), 1)
        if output.is_prefill_chunk is not None:
            assert sampled.num_sampled.tolist() == (~output.is_prefill_chunk).tolist()
        scheduler.update_from_output(output, sampled)
        scheduler.check_invariants()
    return preempted


def assert_streams(requests: list[Request]) -> None:
    for each in requests:
        said = each.output_token_ids
        assert len(said) == each.max_tokens
        positions = np.arange(each.num_prompt_tokens, each.num_prompt_tokens + len(said))
        assert said == output_tokens(np.full(len(said), each.output_seed), positions).tolist()


def test_outputs_are_the_streams_of_the_seeds() -> None:
    requests = [request(f"r{i}", 5 + 7 * i, 3 + i, seed=100 + i) for i in range(20)]
    run(requests, SchedulerConfig(max_num_batched_tokens=32, max_num_seqs=4), CacheConfig(num_gpu_blocks=200))
    assert_streams(requests)


def test_a_request_that_is_preempted_keeps_its_stream() -> None:
    requests = [request(f"r{i}", 30, 60, seed=i) for i in range(8)]
    config = SchedulerConfig(max_num_batched_tokens=64, max_num_seqs=8, scheduler_reserve_full_isl=False)
    assert run(requests, config, CacheConfig(num_gpu_blocks=24)) > 0
    assert_streams(requests)


def test_an_empty_step_samples_nothing() -> None:
    scheduler = Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=10))
    sampled = SimulatedExecutor().execute(scheduler.schedule())
    assert sampled.sampled.shape == (0, 1)


def test_the_clock_only_goes_forward() -> None:
    clock = VirtualClock()
    clock.advance(1.5)
    clock.advance_to(1.0)
    assert clock.now() == 1.5
    clock.advance_to(2.0)
    clock.advance(0.0)
    assert clock.now() == 2.0
