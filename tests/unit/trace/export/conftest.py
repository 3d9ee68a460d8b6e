"""The trace that the exports are tested with."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.trace.recorded import RecordedYard

from tokenyard.explain.why.timeline_reader import TimelineReader
from tokenyard.trace.format.request_timeline import RequestTimeline

HOSTILE = '</script><script>alert("x")</script>\u202e'


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three jobs of several turns and a request of none, under memory pressure, with two steps in flight."""
    path = tmp_path_factory.mktemp("trace")
    yard = RecordedYard(path, num_gpu_blocks=15, max_num_seqs=4, async_scheduling=True)
    rng, flying = random.Random(3), []
    yard.add(HOSTILE, 9, max_tokens=3, arrival_time=0.0)
    for number in range(9):
        job = f"job{number % 3}"
        yard.add(f"r{number}", rng.randint(4, 30), max_tokens=9, job_id=job, arrival_time=yard.now)
        for _ in range(6 if number % 3 == 2 else 0):
            flying.append(yard.schedule())
            yard.now += 0.25
            if len(flying) > 1:
                yard.update(flying.pop(0))
    for job in ("job0", "job1"):
        while yard.scheduler.has_requests():
            flying.append(yard.schedule())
            yard.now += 0.25
            yard.update(flying.pop(0))
        yard.now += 2.0
        yard.add(f"{job}, the next turn", 12, max_tokens=2, job_id=job, arrival_time=yard.now)
    while yard.scheduler.has_requests() or flying:
        if yard.scheduler.has_requests():
            flying.append(yard.schedule())
        yard.now += 0.25
        yard.update(flying.pop(0))
    yard.writer.close()
    return path


@pytest.fixture(scope="module")
def timelines(trace: Path) -> list[RequestTimeline]:
    return list(TimelineReader(trace).timelines())
