"""What watches the replays of a plan or a sweep."""

from __future__ import annotations

from importlib import import_module

import pytest

import tokenyard.questions
from tokenyard.core.sched.observer import StepObserver


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("sweeping.measuring", "SLOWatch"),
        ("recorded.ask", "EndTimes"),
        ("recorded.ask", "StepComparison"),
        ("compare", "JobTimes"),
        ("accuracy.measured_run", "Ended"),
    ],
)
def test_who_looks_at_times_alone_lets_a_replay_make_no_tokens(module: str, name: str) -> None:
    kind = getattr(import_module(f"{tokenyard.questions.__name__}.{module}"), name)
    assert issubclass(kind, StepObserver)
    assert kind.reads_tokens is False
