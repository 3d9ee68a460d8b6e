"""Sixteen prompts of 1,024 tokens against a budget of 16,384: what the first step schedules is who was there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.trace.recorded import RecordedYard

from tokenyard.explain.figures import ArrivalRow
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.summary import summarize

BUDGET = 16_384


def run(path: Path, *batches: int) -> ReportBuilder:
    """``batches[i]`` requests arrive before step i."""
    summary = ReportBuilder()
    toy = RecordedYard(
        path,
        summary,
        num_gpu_blocks=2000,
        block_size=16,
        max_num_batched_tokens=BUDGET,
        max_num_seqs=128,
        max_model_len=2048,
        trace={"request_records": False},
    )
    number = 0
    for batch in batches:
        for _ in range(batch):
            toy.add(str(number), 1024, max_tokens=64, arrival_time=toy.now)
            number += 1
        toy.step()
    toy.writer.close()
    return summary


def test_all_sixteen_are_scheduled_when_they_are_there(tmp_path: Path) -> None:
    report = run(tmp_path, 16, 0).report()
    assert report.arrivals is not None
    assert report.arrivals.first_steps[0] == ArrivalRow(0, 0.0, 16, 16, 0, BUDGET, BUDGET)
    assert report.arrivals.not_arrived_at_first_step == 0
    assert report.arrivals.explanation is None
    assert report.recorded_reasons == {}


@pytest.mark.parametrize("first", [2, 5, 7])
def test_the_others_had_not_arrived(tmp_path: Path, first: int) -> None:
    live = run(tmp_path, first, 16 - first, 0).report()
    arrivals = live.arrivals
    assert arrivals is not None
    assert arrivals == summarize(tmp_path).arrivals
    assert (arrivals.total, arrivals.not_arrived_at_first_step, arrivals.last_arrival_step) == (16, 16 - first, 1)
    assert arrivals.first_steps[0] == ArrivalRow(0, 0.0, first, first, 0, first * 1024, BUDGET)
    second = arrivals.first_steps[1]
    assert (second.arrived, second.admitted, second.left_waiting) == (16, 16 - first, 0)
    assert second.tokens == first + (16 - first) * 1024
    assert arrivals.explanation == (
        f"Step 0 scheduled every request there was ({first} of 16) and left {BUDGET - 1024 * first:,} of 16,384 tokens "
        f"unused because the queue was empty: the other {16 - first} had not arrived. All had arrived when step 1 ran."
    )
    assert live.recorded_reasons == {}  # no request was held back


@pytest.mark.slow
@pytest.mark.parametrize("first", [2, 5, 7])
def test_the_others_came_in_slowly(tmp_path: Path, first: int) -> None:
    """Decode steps are short: arrivals a tenth of a second apart lie many steps apart."""
    batches = [first, *([0] * 9 + [1]) * (16 - first), 0]
    arrivals = run(tmp_path, *batches).report().arrivals
    assert arrivals is not None
    assert arrivals.explanation is not None
    assert arrivals == summarize(tmp_path).arrivals
    assert f"({first} of 16)" in arrivals.explanation
    assert f"the other {16 - first} had not arrived. All had arrived when step {10 * (16 - first)} ran" in (
        arrivals.explanation
    )


def test_nobody_expects_more_than_a_budget_in_the_first_step(tmp_path: Path) -> None:
    arrivals = run(tmp_path, 5, *[0] * 9, 12, 0).report().arrivals
    assert arrivals is not None
    assert arrivals.explanation is None


def test_a_full_first_step_needs_no_excuse(tmp_path: Path) -> None:
    arrivals = run(tmp_path, 16, 4).report().arrivals
    assert arrivals is not None
    assert arrivals.not_arrived_at_first_step == 4
    assert arrivals.explanation is None


def test_only_the_first_steps_are_kept(tmp_path: Path) -> None:
    arrivals = run(tmp_path, *[1] * 12).report().arrivals
    assert arrivals is not None
    assert [row.arrived for row in arrivals.first_steps] == list(range(1, 9))
    assert (arrivals.total, arrivals.last_arrival_step) == (12, 11)
