"""The closed loop: one replay for all latency models."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.questions.accuracy.measured_run import ClosedLoop, Schedule, draw_lengths, run_closed_loop
from tokenyard.sim.replay import replay
from tokenyard.steptime.model import StepShape, StepWork, TransferDirection
from tokenyard.workload.record import Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens

Floats = npt.NDArray[np.float64]


def seconds_of(work: Floats) -> Floats:
    """Any duration that is linear in a step's sums."""
    found: Floats = 0.005 + 1e-8 * work[..., 3] + 2e-5 * work[..., 5] + 1e-9 * work[..., 7] + 1e-5 * work[..., 1]
    return found


class Linear:
    """The same as a latency model: each step is priced as it is taken."""

    host_seconds = 0.0

    def step_seconds(self, shape: StepShape) -> float:
        return float(seconds_of(np.array(StepWork.of(shape), np.float64)))

    def transfer_seconds(self, num_bytes: int, direction: TransferDirection) -> float:
        return 0.0


def means(schedule: Schedule) -> tuple[float, float]:
    """TTFT and TPOT in seconds; ranks in step wait for the slowest."""
    ttft, tpot = schedule.times(seconds_of(schedule.work).max(axis=1))
    return float(ttft.mean()), float(tpot.mean())


@pytest.mark.parametrize(
    "loop",
    [
        ClosedLoop(users=1, input_tokens=50, output_tokens=7, rounds=3),
        ClosedLoop(users=4, input_tokens=300, output_tokens=90, shortest=0.8, rounds=4),
        ClosedLoop(users=5, input_tokens=700, output_tokens=40, max_num_batched_tokens=256, rounds=3),
        ClosedLoop(users=6, input_tokens=64, output_tokens=30, max_num_seqs=3, rounds=3),
        ClosedLoop(users=24, input_tokens=400, output_tokens=200, shortest=0.8, rounds=4, num_gpu_blocks=300),
    ],
)
def test_times_are_those_of_a_replay_with_that_latency(loop: ClosedLoop) -> None:
    """Which steps there are does not depend on how long they take; the last loop preempts for want of memory."""
    requests = [
        WorkloadRequest(request_id=str(i), prompt=StreamTokens.unique(i, int(prompt)), max_tokens=int(output))
        for i, (prompt, output) in enumerate(zip(*draw_lengths(loop), strict=True))
    ]
    config = SchedulerConfig(
        profile=loop.profile,
        max_num_seqs=loop.max_num_seqs,
        max_num_batched_tokens=loop.max_num_batched_tokens,
        max_model_len=loop.input_tokens + loop.output_tokens + 1,
        async_scheduling=False,
    )
    cache = CacheConfig(num_gpu_blocks=loop.num_gpu_blocks, block_size=loop.block_size, enable_prefix_caching=False)
    workload = Workload("closed loop", requests, max_concurrency=loop.users)
    replayed = replay(workload, config, cache, Linear(), leaps=False, rows=True)
    schedule = run_closed_loop(loop)
    assert schedule.repeats.sum() == replayed.steps - 1  # the last one only tells the workers that all have ended
    assert len(schedule.repeats) < schedule.repeats.sum()
    assert replayed.rows is not None
    table = replayed.rows.requests.to_numpy()
    replayed_means = np.mean(table["ttft_ms"]) / 1e3, np.mean(table["tpot_ms"]) / 1e3
    assert means(schedule) == pytest.approx(replayed_means, rel=1e-6)


def test_ranks_share_the_users() -> None:
    loop = ClosedLoop(users=8, input_tokens=100, output_tokens=20, rounds=2)
    schedule = run_closed_loop(loop, ranks=4)
    assert schedule.work.shape[1:] == (4, 8)
    assert schedule.work[:, :, 2].max() == 2
    assert (schedule.first > schedule.arrived).all()
    assert (schedule.last >= schedule.first).all()
    assert means(schedule)[1] < means(run_closed_loop(loop))[1]


def test_prompts_that_repeat_are_found_again() -> None:
    loop = ClosedLoop(users=8, input_tokens=800, output_tokens=20, rounds=4, num_gpu_blocks=2000)
    again = ClosedLoop(users=8, input_tokens=800, output_tokens=20, rounds=4, num_gpu_blocks=2000, distinct_prompts=12)
    every, few = run_closed_loop(loop), run_closed_loop(again)
    assert len(few.tokens) == len(every.tokens)
    assert (few.first > few.arrived).all()
    assert (few.last > few.first).all()

    def prompt_tokens(schedule: Schedule) -> float:
        return float((schedule.work[:, 0, 5] * schedule.repeats).sum())

    assert prompt_tokens(every) == 32 * 800
    # Eight before the measurement, four that nobody had sent; of the others a whole last block is computed again.
    assert prompt_tokens(few) == 12 * 800 + (8 + 32 - 12) * again.block_size
    assert means(few)[0] < means(every)[0]
