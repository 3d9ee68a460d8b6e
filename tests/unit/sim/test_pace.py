"""How fast a machine was when, and how long requests were on their way: what a trace tells beyond the mean step."""

from __future__ import annotations

import numpy as np
import pytest

from tokenyard.questions.recorded.recorded_requests import FrontEnd
from tokenyard.steptime.fitted import FittedLatency, MeasuredStep, measured_pace, predicted_by_features
from tokenyard.steptime.model import ConstantLatency, StepShape
from tokenyard.steptime.pace import MachineSpeed, Stall, VirtualClock, paced
from tokenyard.trace.schema import RequestArrived, StepCompleted, StepSnapshot
from tokenyard.trace.steps import Step

MODEL = FittedLatency(constant=0.01)
SHAPE = StepShape(np.array([1]), np.array([8]), 1, 1)


def steps(*seconds: float, began: float = 100.0) -> list[MeasuredStep]:
    moments = np.cumsum([0.0, *seconds])[:-1] + began
    return [
        MeasuredStep((1.0, 0, 1, 9, 0, 0, 0), each, float(moment))
        for each, moment in zip(seconds, moments, strict=True)
    ]


def pace_of(measured: list[MeasuredStep]) -> MachineSpeed | None:
    return measured_pace(measured, predicted_by_features(MODEL, measured) if measured else np.zeros(0), 100.0)


def test_an_even_machine_has_no_pace() -> None:
    assert pace_of(steps(*[0.01] * 200)) is None
    assert pace_of([]) is None


def test_a_slow_stretch_is_slow_at_its_moment() -> None:
    pace = pace_of(steps(*[0.01] * 64, *[0.02] * 64, *[0.01] * 100))
    assert pace is not None
    assert pace.factors == pytest.approx([1.0, 2.0, 1.0])
    assert pace.begins == pytest.approx([0.0, 0.64, 1.92])
    assert [pace.at(moment) for moment in (-1.0, 0.5, 0.65, 1.9, 1.93, 99.0)] == pytest.approx([1, 1, 2, 2, 1, 1])


def test_a_paced_step_takes_longer_at_that_moment_alone() -> None:
    clock = VirtualClock()
    latency = paced(ConstantLatency(seconds=0.5), MachineSpeed(np.array([0.0, 10.0]), np.array([1.0, 3.0])), clock)
    assert latency.step_seconds(SHAPE) == 0.5
    clock.advance_to(10.0)
    assert latency.step_seconds(SHAPE) == 1.5
    assert latency.host_seconds == 0.0


def step(number: int, ts: float, running: int, *arrived: tuple[str, float], took: float = 0.01) -> Step:
    """A step at ``ts`` before which these requests reached the scheduler, each with the time at which it was sent."""
    made = Step(number)
    made.completed = StepCompleted(step=number, ts=ts + took)
    made.snapshot = StepSnapshot(step=number, ts=ts, num_running=running, num_waiting=len(arrived))
    made.arrived = [RequestArrived(step=number, ts=ts, req_id=name, arrival_time=sent) for name, sent in arrived]
    return made


def test_an_idle_engine_tells_the_way_exactly() -> None:
    front_end = FrontEnd()
    for number in range(6):
        front_end.add(step(number, 10.0 * number + 0.003, 0, (f"r{number}", 10.0 * number)))
    assert front_end.ways() == pytest.approx({f"r{number}": 0.003 for number in range(6)})


def test_a_busy_one_brackets_it() -> None:
    """Sent 5 ms before the step before began, and not in it: its way took 5 ms at least, though 1 ms is usual."""
    front_end = FrontEnd()
    for number in range(5):
        front_end.add(step(number, 10.0 * number + 0.001, 0, (f"idle{number}", 10.0 * number)))
    front_end.add(step(5, 100.0, 1))
    front_end.add(step(6, 100.1, 1, ("late", 99.995), ("soon", 100.05), ("last", 100.0995)))
    ways = front_end.ways()
    assert ways["late"] == pytest.approx(0.005)
    assert ways["soon"] == pytest.approx(0.001)
    assert ways["last"] == pytest.approx(0.0005), "no longer than the trace allows"


def test_an_engine_whose_last_request_just_ended_was_not_idle() -> None:
    """Sent 50 ms before the step ended after which nothing ran: it may have been there for most of that time."""
    front_end = FrontEnd()
    for number in range(5):
        front_end.add(step(number, 10.0 * number + 0.001, 0, (f"idle{number}", 10.0 * number)))
    front_end.add(step(5, 100.0, 1, took=0.1))
    front_end.add(step(6, 100.1, 0, ("behind the last step", 100.05)))
    assert front_end.ways()["behind the last step"] == pytest.approx(0.001)


def test_without_idle_moments_it_is_what_fits_most() -> None:
    front_end = FrontEnd()
    front_end.add(step(0, 0.0, 1))
    for number in range(1, 9):
        front_end.add(step(number, 0.1 * number, 1, (f"r{number}", 0.1 * (number - 1) - 0.002)))
    assert front_end.usual == pytest.approx(0.002)
    assert FrontEnd().usual == 0.0


def test_a_stall_is_part_of_the_step_nearest_to_its_moment_and_of_no_other() -> None:
    """Half a second a step, and stalls at 0.2, which the first step is nearest to, and at 3.3, when nothing runs."""
    clock = VirtualClock()
    latency = paced(ConstantLatency(seconds=0.5), MachineSpeed.even([Stall(0.2, 2.0), Stall(3.3, 1.0)]), clock)
    took = []
    for moment in (0.0, 2.5, 3.0, 4.0, 4.5):
        clock.advance_to(moment)
        took.append(latency.step_seconds(SHAPE))
    assert took == [2.5, 0.5, 0.5, 1.5, 0.5]


def test_stalls_that_follow_at_once_are_of_one_step() -> None:
    latency = paced(ConstantLatency(seconds=0.5), MachineSpeed.even([Stall(0.0, 2.0), Stall(0.1, 1.0)]), VirtualClock())
    assert [latency.step_seconds(SHAPE) for _ in range(2)] == [3.5, 0.5]
