"""Fitting a latency model to the step times of a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.errors import TraceError
from tokenyard.record.recorder import TraceRecorder
from tokenyard.record.writer import TraceWriter
from tokenyard.sim.replay import replay
from tokenyard.steptime.fitted import FEATURES, FittedLatency, fit_trace
from tokenyard.trace.config import TraceConfig
from tokenyard.trace.start import describe_run
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens

TRUTH = FittedLatency(
    constant=0.01,
    prefill_tokens=4e-5,
    decodes=1e-5,
    decode_context=2e-8,
    prefill_pairs=1e-9,
    prefills=2e-3,
    any_prefill=3e-3,
)


def requests() -> Workload:
    """Forty of many lengths, some at once and some waiting for others: steps of many sizes, and idle times."""
    return Workload(
        "forty",
        (
            WorkloadRequest(
                request_id=f"r{i}",
                prompt=StreamTokens.unique(i, 50 + i * 37 % 900),
                max_tokens=10 + i * 7 % 50,
                arrival_time=0.1 * (i // 2 + i % 2 * (i % 3 > 0)) + (60.0 if i > 30 else 0.0),
            )
            for i in range(40)
        ),
    )


def record(
    directory: Path, *, num_gpu_blocks: int = 3000, request_records: bool = False, is_async: bool = False
) -> Path:
    """Replay requests whose steps take as long as TRUTH says, and trace them."""
    scheduler = SchedulerConfig(max_num_batched_tokens=2048, async_scheduling=is_async)
    cache = CacheConfig(num_gpu_blocks=num_gpu_blocks)
    with TraceWriter(TraceConfig(path=directory, policy="t", request_records=request_records)) as writer:
        recorder = TraceRecorder(writer, start=describe_run(scheduler, cache, host="replay"))
        replay(requests(), scheduler, cache, TRUTH, observer=recorder)
    return directory


def assert_is_truth(found: FittedLatency) -> None:
    for name in FEATURES:
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=1e-3), name


@pytest.mark.parametrize("request_records", [False, True])
def test_coefficients_are_found_again(request_records: bool, tmp_path: Path) -> None:
    assert_is_truth(fit_trace(record(tmp_path, request_records=request_records)))


def test_a_step_does_not_take_the_time_in_which_the_one_before_it_ran(tmp_path: Path) -> None:
    assert_is_truth(fit_trace(record(tmp_path, is_async=True)))


def test_steps_with_requests_of_unknown_context_are_left_out(tmp_path: Path) -> None:
    trace = record(tmp_path, num_gpu_blocks=100)
    text = (trace / "sched_trace.t.steps.jsonl").read_text()
    assert '"scheduled_resumed_req_ids":["' in text, "the run is meant to preempt"
    assert_is_truth(fit_trace(trace))


def test_durations_from_snapshots_where_steps_do_not_say(tmp_path: Path) -> None:
    file = record(tmp_path) / "sched_trace.t.steps.jsonl"
    kept = [line for line in file.read_text().splitlines() if json.loads(line)["event"] != "step_completed"]
    file.write_text("\n".join(kept) + "\n")
    assert_is_truth(fit_trace(tmp_path))


def test_too_little_to_fit(tmp_path: Path) -> None:
    file = record(tmp_path) / "sched_trace.t.steps.jsonl"
    kept = [line for line in file.read_text().splitlines() if json.loads(line)["event"] != "prefix_cache_lookup"]
    file.write_text("\n".join(kept) + "\n")
    with pytest.raises(TraceError, match="only 0 steps"):
        fit_trace(tmp_path)
