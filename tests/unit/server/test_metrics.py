"""Metrics: after a run the numbers are those of the run."""

from __future__ import annotations

import pytest

import tokenyard as ty
from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.request import Request, SamplingParams
from tokenyard.core.sched.observer import SchedulerState
from tokenyard.core.sched.outputs import ModelOutput
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.policies import AdmissionView, Refused

pytest.importorskip("prometheus_client", reason="prometheus_client is not installed (extra: server)")

from tokenyard.serve.metrics import MetricsObserver

LABELS = {"model_name": "toy", "engine": "0"}


@pytest.fixture
def metrics() -> MetricsObserver:
    """Four requests on a pool for two of them, one second per step."""
    now = [0.0]
    observer = MetricsObserver(model_name="toy")
    scheduler = Scheduler(
        SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=32, max_model_len=32),
        CacheConfig(num_gpu_blocks=9, block_size=4),
        clock=lambda: now[0],
        observer=observer,
    )
    for i in range(4):
        params = SamplingParams(max_tokens=4, ignore_eos=True)
        scheduler.add_request(Request(f"r{i}", list(range(i * 100, i * 100 + 10)), params))
    while scheduler.has_requests():
        output = scheduler.schedule()
        now[0] += 1.0
        scheduler.update_from_output(output, ModelOutput.from_lists([[5]] * len(output.req_ids)))
    return observer


def value(metrics: MetricsObserver, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, LABELS | labels)


def test_counters_add_up(metrics: MetricsObserver) -> None:
    assert value(metrics, "vllm:prompt_tokens_total") == 40
    assert value(metrics, "vllm:generation_tokens_total") == 16
    assert value(metrics, "vllm:request_success_total", finished_reason="length") == 4
    assert value(metrics, "vllm:request_success_total", finished_reason="abort") == 0
    assert value(metrics, "vllm:request_generation_tokens_sum") == 16
    assert value(metrics, "vllm:inter_token_latency_seconds_count") == 16 - 4, "each but the first of a request"
    assert value(metrics, "vllm:time_to_first_token_seconds_count") == 4


def test_first_tokens_are_counted_when_they_come() -> None:
    """As in vLLM, not at the request's end: a scrape meanwhile shows them."""
    seen: list[tuple[float, float]] = []

    class Scraped(MetricsObserver):
        def step_started(self, ts: float, step: int, state: SchedulerState) -> None:
            names = ("time_to_first_token_seconds_count", "prompt_tokens_total")
            first, tokens = (self.registry.get_sample_value(f"vllm:{name}", LABELS) or 0.0 for name in names)
            seen.append((first, tokens))

    w = ty.WorkloadBuilder("three", seed=0)
    for i in range(3):
        w.request(at=0.0, prompt=100 + i, output=10)
    observer = Scraped(model_name="toy")
    run = ty.run(w.build(), ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s"), observer=observer, rows=False)
    assert (3.0, 303.0) in seen
    total = observer.registry.get_sample_value("vllm:time_to_first_token_seconds_sum", LABELS)
    assert total == pytest.approx(3 * (run.report.ttft_ms.mean or 0) / 1e3)


def test_gauges_end_at_rest(metrics: MetricsObserver) -> None:
    assert value(metrics, "vllm:num_requests_running") == 0
    assert value(metrics, "vllm:num_requests_waiting") == 0
    assert value(metrics, "vllm:kv_cache_usage_perc") == 0


def test_durations_are_those_of_the_clock(metrics: MetricsObserver) -> None:
    assert value(metrics, "vllm:e2e_request_latency_seconds_count") == 4
    assert value(metrics, "vllm:request_decode_time_seconds_sum") == 4 * 3.0
    assert value(metrics, "vllm:request_time_per_output_token_seconds_sum") == 4 * 1.0
    queue = value(metrics, "vllm:request_queue_time_seconds_sum")
    assert queue == 2 * 4.0, "two of the four had to wait for blocks"


def test_what_held_requests_back_is_counted(metrics: MetricsObserver) -> None:
    held = value(metrics, "tokenyard:held_requests_total", reason="kv_full_sequence")
    assert held == 2 * 4, "two requests, in each of four steps"


def test_what_a_policy_refuses_is_counted_by_its_own_word() -> None:
    class TwoAtOnce(ty.Policy):
        def admits(self, request: Request, view: AdmissionView) -> bool | Refused:
            return len(view.running) < 2 or Refused("two_at_once")

    w = ty.WorkloadBuilder("five", seed=0)
    for _ in range(5):
        w.request(at=0.0, prompt=100, output=10)
    metrics = MetricsObserver(model_name="toy")
    ty.run(w.build(), ty.Deployment(model="Qwen/Qwen3-8B", gpu="l40s"), policy=TwoAtOnce, observer=metrics, rows=False)
    held = value(metrics, "tokenyard:held_requests_total", reason="policy_refused")
    assert held
    assert value(metrics, "tokenyard:policy_refused_requests_total", detail="two_at_once") == held
