"""The trace that the exports are tested with."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.trace.recorded import RecordedYard

from tokenyard.explain.why.timeline import TimelineReader
from tokenyard.trace.facts import RequestTimeline

HOSTILE = '</script><script>alert("x")</script>\u202e'


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three jobs of several turns and a request of none, under memory pressure, with two steps in flight."""
    path = tmp_path_factory.mktemp("trace")
    toy = RecordedYard(path, num_gpu_blocks=15, max_num_seqs=4, async_scheduling=True)
    rng, flying = random.Random(3), []
    toy.add(HOSTILE, 9, max_tokens=3, arrival_time=0.0)
    for number in range(9):
        job = f"job{number % 3}"
        toy.add(f"r{number}", rng.randint(4, 30), max_tokens=9, job_id=job, arrival_time=toy.now)
        for _ in range(6 if number % 3 == 2 else 0):
            flying.append(toy.schedule())
            toy.now += 0.25
            if len(flying) > 1:
                toy.update(flying.pop(0))
    for job in ("job0", "job1"):
        while toy.scheduler.has_requests():
            flying.append(toy.schedule())
            toy.now += 0.25
            toy.update(flying.pop(0))
        toy.now += 2.0
        toy.add(f"{job}, the next turn", 12, max_tokens=2, job_id=job, arrival_time=toy.now)
    while toy.scheduler.has_requests() or flying:
        if toy.scheduler.has_requests():
            flying.append(toy.schedule())
        toy.now += 0.25
        toy.update(flying.pop(0))
    toy.writer.close()
    return path


@pytest.fixture(scope="module")
def timelines(trace: Path) -> list[RequestTimeline]:
    return list(TimelineReader(trace).timelines())
