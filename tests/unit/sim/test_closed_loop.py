"""The closed loop: the scheduler step by step, and the shortcut in stretches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tokenyard.questions.accuracy.closed_loop import ClosedLoop, Schedule, run_closed_loop, run_in_stretches

Floats = npt.NDArray[np.float64]


def seconds(schedule: Schedule) -> Floats:
    """Any duration that is linear in a step's sums."""
    work = schedule.work.sum(axis=1)
    found: Floats = 0.005 + 1e-8 * work[:, 3] + 2e-5 * work[:, 5] + 1e-9 * work[:, 7] + 1e-5 * work[:, 1]
    return found


@pytest.mark.parametrize(
    "loop",
    [
        ClosedLoop(users=1, input_tokens=50, output_tokens=7, rounds=3),
        ClosedLoop(users=4, input_tokens=300, output_tokens=90, shortest=0.8, rounds=4),
        ClosedLoop(users=5, input_tokens=700, output_tokens=40, max_num_batched_tokens=256, rounds=3),
        ClosedLoop(users=6, input_tokens=64, output_tokens=30, max_num_seqs=3, rounds=3),
    ],
)
def test_stretches_are_the_schedulers_steps(loop: ClosedLoop) -> None:
    steps, stretches = run_closed_loop(loop), run_in_stretches(loop)
    assert stretches.repeats.sum() == len(steps.repeats)
    assert len(stretches.repeats) < len(steps.repeats)
    total = (stretches.work * stretches.repeats[:, None, None]).sum(axis=(0, 1))
    assert total == pytest.approx(steps.work.sum(axis=(0, 1)))
    for ours, theirs in zip(stretches.times(seconds(stretches)), steps.times(seconds(steps)), strict=True):
        assert ours == pytest.approx(theirs)


@pytest.mark.parametrize("blocks", [300, 420])
def test_short_memory_is_met_nearly(blocks: int) -> None:
    """Admission waits for whole prompts, decodes that find no block preempt: counted in tokens, not in blocks."""
    loop = ClosedLoop(
        users=24,
        input_tokens=400,
        output_tokens=200,
        shortest=0.8,
        rounds=4,
        num_gpu_blocks=blocks,
    )
    steps, stretches = run_closed_loop(loop), run_in_stretches(loop)
    enough = run_in_stretches(ClosedLoop(users=24, input_tokens=400, output_tokens=200, shortest=0.8, rounds=4))
    for ours, theirs in zip(stretches.times(seconds(stretches)), steps.times(seconds(steps)), strict=True):
        assert ours.mean() == pytest.approx(theirs.mean(), rel=0.05)
    assert stretches.times(seconds(stretches))[0].mean() > 2 * enough.times(seconds(enough))[0].mean()


def test_ranks_share_the_users() -> None:
    schedule = run_in_stretches(ClosedLoop(users=8, input_tokens=100, output_tokens=20, rounds=2), ranks=4)
    assert schedule.work.shape[1] == 4
    assert schedule.work[:, :, 2].max() == 2
    assert (schedule.first > schedule.arrived).all()
    assert (schedule.last >= schedule.first).all()
