"""A small trace as a server makes it: why and what-if judge alike how long its requests were on their way."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from tokenyard.explain.why.timeline import TimelineReader
from tokenyard.questions.recorded.recorded_requests import recorded_ways
from tokenyard.trace.schema import (
    RequestArrived,
    RequestFinished,
    StepCompleted,
    StepDecision,
    StepEvent,
    StepSnapshot,
    TraceStart,
)

STEP, LOOP = 0.1, 0.0002
"""Seconds that a step takes, and that the engine takes from its end until it looks for requests."""


class Sent(NamedTuple):
    """A request: seconds when it is sent, seconds that it is on its way, and steps until it ends."""

    req_id: str
    at: float
    way: float
    steps: int


IDLE = [Sent(f"idle{number}", 10.0 * number, 0.003 + 0.001 * number, 1 + (number - 1) % 3) for number in range(1, 7)]
BEHIND = Sent("behind the last step", IDLE[0].at + 0.053, 0.004, 1)
"""Comes while the one step of the first request runs: nothing runs when the engine takes it in."""
BUSY = Sent("behind a step", IDLE[1].at + 0.05, 0.005, 1)


def records(requests: list[Sent]) -> list[StepEvent]:
    """What an engine records that takes in all that are there, steps while any runs, and else waits for the next."""
    waiting, now = sorted(requests, key=lambda each: each.at + each.way), 0.0
    running: dict[str, tuple[Sent, int]] = {}
    found: list[StepEvent] = [TraceStart(format_version=2, ts=0.0, host="vllm")]
    number = 0
    while waiting or running:
        now = max(now, waiting[0].at + waiting[0].way) if not running else now
        new = [each for each in waiting if each.at + each.way <= now]
        waiting = waiting[len(new) :]
        found += [
            RequestArrived(step=number, ts=now, req_id=each.req_id, arrival_time=each.at, num_prompt_tokens=8)
            for each in new
        ]
        snapshot = StepSnapshot(step=number, ts=now + 0.0001, num_running=len(running), num_waiting=len(new))
        found.append(snapshot)
        ids = [each.req_id for each in new]
        found.append(StepDecision(step=number, ts=now + 0.0001, scheduled_new_req_ids=ids))
        running |= {each.req_id: (each, each.steps) for each in new}
        now += STEP
        found.append(StepCompleted(step=number, ts=now))
        for req_id, (each, left) in list(running.items()):
            running[req_id] = (each, left - 1)
            if left == 1:
                del running[req_id]
                found.append(RequestFinished(ts=now, req_id=req_id, finished_time=now, arrival_time=each.at))
        now, number = now + LOOP, number + 1
    return found


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "sched_trace.server.steps.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records([*IDLE, BEHIND, BUSY])))
    return path


def on_the_way_as_why_says(trace: Path) -> dict[str, float]:
    return {
        timeline.request_id: sum(
            part.us for wait in timeline.waits for part in wait.parts if part.reason == "front_end"
        )
        / 1e6
        for timeline in TimelineReader(trace).timelines()
    }


def test_an_idle_engine_tells_both_the_same_way(trace: Path) -> None:
    why = on_the_way_as_why_says(trace)
    whatif = sorted(recorded_ways(trace))
    for each in IDLE:
        assert why[each.req_id] == pytest.approx(each.way, abs=2e-6)
        assert any(way == pytest.approx(each.way, abs=2e-6) for way in whatif), each.req_id


def test_what_came_behind_a_step_takes_what_is_usual(trace: Path) -> None:
    """Neither says 51 ms for the one that the end of the last request let in, 47 of which it had been there."""
    why = on_the_way_as_why_says(trace)
    assert why[BEHIND.req_id] == pytest.approx(LOOP, abs=2e-6)
    assert why[BUSY.req_id] == pytest.approx(0.0, abs=2e-6)
    usual = 0.0065  # the median of 4 to 9 ms
    ways = sorted(recorded_ways(trace))
    assert ways == pytest.approx(sorted([*(each.way for each in IDLE), usual, usual]), abs=2e-6)
