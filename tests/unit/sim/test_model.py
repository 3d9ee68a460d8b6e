"""The simulated model: each request's stream, whatever slot it sits in."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.profiles import VLLM_0_22

from tokenyard.core.config import CacheConfig, SchedulerConfig, SpeculativeConfig
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.outputs import DraftTokens
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import ConfigError
from tokenyard.explain.report.report import SpeculationCounter, SpeculationFigures
from tokenyard.record.facts import verified_drafts
from tokenyard.sim.executor import SimulatedModel, SimulatedSpeculation
from tokenyard.steptime.pace import VirtualClock
from tokenyard.workload.tokens import output_tokens


def request(name: str, prompt: int, output: int, seed: int) -> Request:
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    return Request(name, list(range(1, prompt + 1)), params, output_seed=seed)


def run(requests: list[Request], config: SchedulerConfig, cache_config: CacheConfig) -> int:
    """Serve all; the number of preemptions."""
    scheduler, executor = Scheduler(config, cache_config), SimulatedModel()
    for each in requests:
        scheduler.add_request(each)
    preempted = 0
    while scheduler.has_requests():
        output = scheduler.schedule()
        preempted += len(output.preempted_req_ids)
        sampled = executor.execute(output)
        assert sampled.sampled.shape == (len(output.req_ids), 1)
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
    run(
        requests,
        SchedulerConfig(profile=VLLM_0_22, max_num_batched_tokens=32, max_num_seqs=4),
        CacheConfig(num_gpu_blocks=200),
    )
    assert_streams(requests)


def test_a_request_that_is_preempted_keeps_its_stream() -> None:
    requests = [request(f"r{i}", 30, 60, seed=i) for i in range(8)]
    config = SchedulerConfig(
        profile=VLLM_0_22, max_num_batched_tokens=64, max_num_seqs=8, scheduler_reserve_full_isl=False
    )
    assert run(requests, config, CacheConfig(num_gpu_blocks=24)) == 4
    assert_streams(requests)


def test_an_empty_step_samples_nothing() -> None:
    scheduler = Scheduler(SchedulerConfig(profile=VLLM_0_22), CacheConfig(num_gpu_blocks=10))
    sampled = SimulatedModel().execute(scheduler.schedule())
    assert sampled.sampled.shape == (0, 1)


def test_the_clock_only_goes_forward() -> None:
    clock = VirtualClock()
    clock.advance(1.5)
    clock.advance_to(1.0)
    assert clock.now() == 1.5
    clock.advance_to(2.0)
    clock.advance(0.0)
    assert clock.now() == 2.0


# ---- speculative decoding


def speculation(count: int, *acceptance: float, seed: int = 0) -> SimulatedSpeculation:
    return SimulatedSpeculation(
        config=SpeculativeConfig(num_speculative_tokens=count), acceptance=acceptance or (0.7,), seed=seed
    )


def serve(drafts: SimulatedSpeculation, requests: list[Request]) -> tuple[int, SpeculationFigures]:
    """All of them; steps, and what became of the drafts."""
    total = SpeculationCounter()
    scheduler = Scheduler(
        SchedulerConfig(profile=VLLM_0_22, max_num_batched_tokens=64),
        CacheConfig(num_gpu_blocks=10_318, block_size=4),
        speculative_config=drafts.config,
    )
    executor = SimulatedModel(drafts)
    for each in requests:
        scheduler.add_request(each)
    while scheduler.has_requests():
        output = scheduler.schedule()
        result = scheduler.update_from_output(output, executor.execute(output))
        count = drafts.config.num_speculative_tokens
        scheduler.update_draft_token_ids(output, DraftTokens.from_lists([[-1] * count] * len(output.req_ids)))
        drafted = result.scheduler_stats.spec_decoding_stats
        assert drafted is not None
        if (verified := verified_drafts(drafted)) is not None:
            total.add(verified)
        scheduler.check_invariants()
    found = total.result(None)
    assert found is not None
    return scheduler.step, found


def requests() -> list[Request]:
    return [request(f"r{i}", 5 + i, 120, seed=i) for i in range(8)]


@pytest.mark.slow
def test_drafts_change_how_soon_and_not_what_is_said() -> None:
    without, drafted = requests(), requests()
    run(
        without,
        SchedulerConfig(profile=VLLM_0_22, max_num_batched_tokens=64),
        CacheConfig(num_gpu_blocks=10_318, block_size=4),
    )
    serve(speculation(3, 0.6), drafted)
    assert [each.output_token_ids for each in drafted] == [each.output_token_ids for each in without]
    assert_streams(drafted)


def test_rates_hold_per_position() -> None:
    _, stats = serve(speculation(3, 0.9, 0.5), requests())
    shares = [count / stats.num_drafts for count in stats.num_accepted_tokens_per_pos]
    assert shares == pytest.approx([0.9, 0.45, 0.225], abs=0.06)
    assert stats.num_draft_tokens == 1134


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "accepted", "drafts"), [(0.0, 0, 8 * 119), (1.0, 1, 8 * 30)])
def test_none_or_all_may_be_right(rate: float, accepted: int, drafts: int) -> None:
    _, stats = serve(speculation(3, rate), requests())
    assert stats.num_accepted_tokens == accepted * stats.num_draft_tokens
    assert stats.num_drafts == drafts


@pytest.mark.slow
def test_the_seed_alone_decides() -> None:
    first, again, other = (serve(speculation(3, 0.5, seed=seed), requests()) for seed in (1, 1, 2))
    assert first == again
    assert first[1].num_accepted_tokens_per_pos != other[1].num_accepted_tokens_per_pos


@pytest.mark.parametrize("acceptance", [(), (1.5,), (-0.1,)])
def test_rates_that_are_none_are_refused(acceptance: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="acceptance"):
        SimulatedSpeculation(config=SpeculativeConfig(num_speculative_tokens=1), acceptance=acceptance)
