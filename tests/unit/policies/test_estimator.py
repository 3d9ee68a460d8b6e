"""The tool-call estimator: durations by tool, across jobs, with a cold start."""

from __future__ import annotations

import pytest

from tokenyard.policies.continuum.ttl import ToolCallEstimator


def test_a_tool_never_seen_has_a_mean_of_nothing() -> None:
    assert ToolCallEstimator().mean("ls") == 0.0


def test_means_are_kept_by_tool() -> None:
    seen = ToolCallEstimator()
    for tool, seconds in (("ls", 1.0), ("make", 60.0), ("ls", 3.0)):
        seen.observe(tool, seconds)
    assert (seen.mean("ls"), seen.mean("make")) == (2.0, 60.0)


def test_nothing_is_known_before_the_cold_start_is_over() -> None:
    seen = ToolCallEstimator(cold_start=3)
    seen.observe("ls", 1.0)
    seen.observe("ls", 2.0)
    assert seen.durations("ls") is None


def test_a_tool_with_few_samples_borrows_those_of_all() -> None:
    seen = ToolCallEstimator(cold_start=3)
    for tool, seconds in (("ls", 3.0), ("ls", 1.0), ("ls", 2.0), ("make", 60.0)):
        seen.observe(tool, seconds)
    own, borrowed = seen.durations("ls"), seen.durations("make")
    assert own is not None
    assert own.tolist() == [1.0, 2.0, 3.0]
    assert borrowed is not None
    assert borrowed.tolist() == [1.0, 2.0, 3.0, 60.0]


def test_old_samples_are_forgotten() -> None:
    seen = ToolCallEstimator(window=2, cold_start=1)
    for seconds in (9.0, 1.0, 2.0):
        seen.observe("ls", seconds)
    durations = seen.durations("ls")
    assert durations is not None
    assert durations.tolist() == [1.0, 2.0]
    assert seen.mean("ls") == pytest.approx(1.5)
