"""Waits of requests from a trace, against the same counted at every step from the live scheduler."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.waits import CountedWaits
from tests.unit.trace.recorded import RecordedYard

from tokenyard.core.sched.observer import Observers
from tokenyard.explain.report.summary import summarize
from tokenyard.explain.why.timeline import TimelineReader
from tokenyard.trace.facts import RequestTimeline
from tokenyard.vocabulary import Place, WaitState

pytestmark = pytest.mark.slow

SCENARIOS: dict[str, dict[str, Any]] = {
    "pressure": {"num_gpu_blocks": 19, "max_num_seqs": 6},
    "priority": {"num_gpu_blocks": 25, "policy": "priority", "max_num_batched_tokens": 24},
    "slices": {"num_gpu_blocks": 23, "enable_prefix_caching": False, "long_prefill_token_threshold": 8},
    "whole prompts": {"enable_chunked_prefill": False, "skip_oversized_prefill": True},
    "bypass": {"num_gpu_blocks": 23, "policy": "bypass"},
    "no gate": {"num_gpu_blocks": 17, "scheduler_reserve_full_isl": False, "max_num_batched_tokens": 16},
}


def live(toy: RecordedYard, seed: int, steps: int = 70) -> None:
    """Arrivals, prefixes, pressure, preemptions, aborts; steps of uneven length without pauses between them."""
    rng = random.Random(seed)
    for _ in range(steps):
        for _ in range(rng.choice((0, 0, 1, 1, 3))):
            toy.add(
                f"r{len(toy.requests)}",
                list(range(rng.randint(1, 40))),
                max_tokens=rng.randint(1, 20),
                priority=rng.randint(0, 2),
                arrival_time=toy.now - rng.random() * toy.seconds / 2 if toy.now else 0.0,
                job_id=rng.choice((None, "a", "b")),
            )
        if rng.random() < 0.1 and toy.scheduler.requests:
            toy.abort(rng.choice(list(toy.scheduler.requests)))
        toy.seconds = 0.01 + rng.random() / 3
        toy.step()
    while toy.scheduler.has_requests():
        toy.step()
    toy.writer.close()


def recorded(
    path: Path, seed: int, bound: int | None, **settings: Any
) -> tuple[CountedWaits, dict[str, RequestTimeline]]:
    toy = RecordedYard(path, trace={"max_ids_per_step": bound, "request_records": False}, **settings)
    counted = CountedWaits()
    toy.scheduler.attach_observer(Observers(counted, toy.recorder))
    live(toy, seed)
    return counted, {timeline.request_id: timeline for timeline in TimelineReader(path).timelines()}


def split(timeline: RequestTimeline) -> Counter[tuple[str, str]]:
    parts: Counter[tuple[str, str]] = Counter()
    for wait in timeline.waits:
        assert sum(part.us for part in wait.parts) == wait.us > 0
        parts.update({(part.reason, part.place.value): part.us for part in wait.parts})
    return parts


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("seed", range(2))
def test_waits_are_those_of_the_live_scheduler(tmp_path: Path, scenario: str, seed: int) -> None:
    counted, timelines = recorded(tmp_path, seed, None, **SCENARIOS[scenario])
    assert len(timelines) > 40
    for request_id, timeline in timelines.items():
        assert split(timeline) == +counted.waited[request_id], request_id


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("bound", [0, 2])
def test_a_bound_on_ids_hides_reasons_but_no_time(tmp_path: Path, scenario: str, bound: int) -> None:
    counted, timelines = recorded(tmp_path, 1, bound, **SCENARIOS[scenario])
    hidden = 0
    for request_id, timeline in timelines.items():
        waits = sum(wait.us for wait in timeline.waits if wait.state is not WaitState.STALLED)
        assert waits == sum(counted.waited[request_id].values()) - counted.stalled[request_id]
        measured = (timeline.first_scheduled_us or timeline.finished_us or 0) - (timeline.arrived_us or 0)
        assert sum(wait.us for wait in timeline.waits if wait.state is WaitState.QUEUED) == measured
        hidden += sum(part.us for wait in timeline.waits for part in wait.parts if part.reason == "not_listed")
    if scenario in ("pressure", "priority", "no gate"):
        assert hidden == 0, "there everybody behind the head shares its reason"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_waits_of_all_add_up_to_the_reports_time_lost(tmp_path: Path, scenario: str) -> None:
    _, timelines = recorded(tmp_path, 2, None, **SCENARIOS[scenario])
    lost: Counter[str] = Counter()
    for timeline in timelines.values():
        for wait in timeline.waits:
            for part in wait.parts:
                if part.place is not Place.OUTSIDE:
                    lost[part.reason] += part.us
    report = summarize(tmp_path)
    reported = {name: round(reason.seconds * 1e6) for name, reason in report.recorded_reasons.items()}
    assert +lost == +Counter(reported)
    assert sum(lost.values()) > 1_000_000
    assert report.unseen_s is not None
    assert sum(lost.values()) + round(report.unseen_s * 1e6) == sum(
        timeline.waited_us for timeline in timelines.values()
    )


def test_a_reset_sends_everybody_back_to_the_queue(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path, max_num_seqs=2)
    counted = CountedWaits()
    toy.scheduler.attach_observer(Observers(counted, toy.recorder))
    for name in ("a", "b", "c"):
        toy.add(name, 9, max_tokens=6, arrival_time=0.0)
    toy.steps(3)
    assert toy.scheduler.reset_prefix_cache(reset_running_requests=True)
    toy.drain()
    toy.writer.close()
    timelines = {timeline.request_id: timeline for timeline in TimelineReader(tmp_path).timelines()}
    for request_id, timeline in timelines.items():
        assert split(timeline) == +counted.waited[request_id], request_id
    assert [wait.state for wait in timelines["c"].waits] == [WaitState.QUEUED]


def test_a_session_waits_for_its_next_input(tmp_path: Path) -> None:
    toy = RecordedYard(tmp_path)
    toy.add("s", 5, max_tokens=2, resumable=True, arrival_time=0.0)
    toy.add("other", 5, max_tokens=30, arrival_time=0.0)
    toy.steps(6)
    toy.add("s", 5, max_tokens=2, arrival_time=toy.now)
    toy.drain()
    toy.writer.close()
    (timeline,) = [timeline for timeline in TimelineReader(tmp_path).timelines() if timeline.request_id == "s"]
    waited = [(wait.state, wait.parts[0].reason, wait.us) for wait in timeline.waits]
    assert waited == [(WaitState.PREEMPTED, "waiting_stream_input", 4 * 500_000)]
