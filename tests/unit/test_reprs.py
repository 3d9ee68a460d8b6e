"""What objects say of themselves: short enough to read in a notebook."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tokenyard import (
    CacheConfig,
    KVCacheGroup,
    ReportBuilder,
    Request,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    SpeculativeConfig,
    WorkloadBuilder,
    decision_profile,
    load_latency,
    replay,
)
from tokenyard.core import GroupKind, HashAlgo
from tokenyard.sim import ConstantLatency, ReplayRows


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (SchedulerConfig(), "SchedulerConfig()"),
        (
            SchedulerConfig(max_num_seqs=8, profile=decision_profile("0.22")),
            "SchedulerConfig(profile=decision_profile('0.22'), max_num_seqs=8)",
        ),
        (CacheConfig(num_gpu_blocks=100), "CacheConfig(num_gpu_blocks=100)"),
        (
            CacheConfig(
                num_gpu_blocks=9,
                prefix_caching_hash_algo=HashAlgo.XXH3_128,
                groups=(KVCacheGroup(), KVCacheGroup(kind=GroupKind.SLIDING_WINDOW, window=64)),
            ),
            (
                "CacheConfig(num_gpu_blocks=9, prefix_caching_hash_algo='xxh3_128', "
                "groups=(KVCacheGroup(), KVCacheGroup(kind='sliding_window', window=64)))"
            ),
        ),
        (SpeculativeConfig(num_speculative_tokens=3), "SpeculativeConfig(num_speculative_tokens=3)"),
        (decision_profile("0.33"), "decision_profile('0.33')"),
        (
            replace(decision_profile("0.33"), hashes_look_ahead=False),
            "replace(decision_profile('0.33'), hashes_look_ahead=False)",
        ),
        (
            replace(decision_profile("0.22"), vllm_version="mine"),
            "replace(decision_profile('0.22'), vllm_version='mine')",
        ),
    ],
)
def test_a_configuration_says_what_is_not_usual(config: object, text: str) -> None:
    assert repr(config) == text
    names = {each.__name__: each for each in (SchedulerConfig, CacheConfig, KVCacheGroup, SpeculativeConfig)}
    assert eval(text, {**names, "decision_profile": decision_profile, "replace": replace}) == config


def test_a_scheduler_says_where_it_is() -> None:
    scheduler = Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=10), clock=lambda: 0.0)
    scheduler.add_request(Request("a", [1, 2, 3], SamplingParams(max_tokens=2)))
    assert repr(scheduler) == "<Scheduler: FCFS, step 0, 0 running, 1 waiting, 9 of 10 blocks free>"


def test_a_latency_model_says_what_it_is_of() -> None:
    latency = load_latency("calibrated", model="qwen3-32b", gpu="h100", tensor_parallel_size=2)
    assert repr(latency) == "<CalibratedLatency: qwen3-32b, h100, tensor 2>"


def test_a_report_is_a_page_in_a_notebook() -> None:
    w = WorkloadBuilder("mine")
    for _ in range(4):
        w.request(at=0, prompt=30, output=5)
    builder = ReportBuilder()
    config = SchedulerConfig(max_num_seqs=1)
    result = replay(
        w.build(), config, CacheConfig(num_gpu_blocks=20), ConstantLatency(seconds=0.1), observer=builder, rows=True
    )
    html = builder.report()._repr_html_()
    assert "<b>fcfs, 21 steps, 2.00 s</b>" in html
    assert "<td>max_num_seqs</td><td>15</td><td>30</td><td>3.00 s</td>" in html
    assert "<tr><td>TTFT</td><td>850.0 ms</td>" in html
    assert "<td>4 of 4</td>" in html
    assert isinstance(result.rows, ReplayRows)
    assert result.rows._repr_html_() == result.rows.report._repr_html_()
    assert repr(result.rows) == "<ReplayRows: 4 requests, 21 steps>"
    assert "No request was held back" in ReportBuilder().report()._repr_html_()
