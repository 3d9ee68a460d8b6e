"""Moments of a request's life, the gauges after a step, and what observers are told."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.toy_engine import ToyEngine, Watcher, prompt_of

from tokenyard.core.sched.observer import Observers


def test_the_three_moments_of_a_request() -> None:
    toy = ToyEngine(max_num_batched_tokens=4)
    request = toy.add("a", 8, max_tokens=2, arrival_time=0.5)
    assert (request.times.first_scheduled, request.times.first_token, request.times.finished) == (None, None, None)
    for moment in (1.0, 3.0, 5.0):
        toy.now = moment
        output = toy.schedule()
        toy.now = moment + 1
        toy.update(output)
    assert (request.times.first_scheduled, request.times.first_token, request.times.finished) == (1.0, 4.0, 6.0)


def test_a_preemption_changes_none_of_them() -> None:
    toy = ToyEngine(num_gpu_blocks=6)
    for name in "ab":
        toy.add(name, 8)
    toy.now = 1.0
    toy.step()
    toy.now = 2.0
    toy.step()
    assert toy.waiting == ["b"]
    toy.now = 9.0
    toy.drain()
    times = toy.requests["b"].times
    assert (times.first_scheduled, times.first_token, times.finished) == (1.0, 1.0, 9.0)


def test_a_first_token_after_a_preemption_is_stamped_then() -> None:
    """Preempted in the middle of its prompt, before it said anything."""
    toy = ToyEngine(num_gpu_blocks=7, max_num_batched_tokens=16, scheduler_reserve_full_isl=False)
    toy.add("a", 11, max_tokens=8)
    toy.add("b", 16, max_tokens=2)
    toy.now = 1.0
    toy.until(lambda: bool(toy.outcomes.preemptions))
    b = toy.requests["b"]
    assert (b.num_output_tokens, b.times.first_scheduled, b.times.first_token) == (0, 1.0, None)
    toy.now = 5.0
    toy.drain()
    assert (b.times.first_scheduled, b.times.first_token) == (1.0, 5.0)


def test_an_aborted_request_has_no_first_token() -> None:
    toy = ToyEngine()
    waiting, running = toy.add("w"), toy.add("r")
    toy.now = 3.0
    toy.abort("w")
    output = toy.schedule()
    toy.now = 4.0
    toy.abort("r")
    toy.update(output)
    assert (waiting.times.first_scheduled, waiting.times.first_token, waiting.times.finished) == (None, None, 3.0)
    assert (running.times.first_scheduled, running.times.first_token, running.times.finished) == (3.0, None, 4.0)


def test_gauges_follow_the_queues() -> None:
    toy = ToyEngine(num_gpu_blocks=11, max_loras=1, max_num_seqs=2)
    for name, lora in (("a", "x"), ("b", "y"), ("c", None), ("d", None)):
        toy.add(name, 4, lora_name=lora, max_tokens=2)
    stats = toy.update(toy.schedule()).scheduler_stats
    assert (stats.num_running_reqs, stats.num_waiting_reqs, stats.num_skipped_waiting_reqs) == (2, 1, 1)
    assert stats.kv_cache_usage == pytest.approx(0.2)
    assert toy.scheduler.get_request_counts() == (2, 2)
    toy.drain()
    stats = toy.scheduler.make_stats()
    assert (stats.num_running_reqs, stats.num_waiting_reqs, stats.num_skipped_waiting_reqs) == (0, 0, 0)
    assert stats.kv_cache_usage == 0.0


def test_prefix_statistics_are_per_step() -> None:
    toy = ToyEngine()
    text = prompt_of("text", 12)
    toy.add("a", text)
    first = toy.update(toy.schedule()).scheduler_stats.prefix_cache_stats
    toy.add("b", text[:9])
    second = toy.update(toy.schedule()).scheduler_stats.prefix_cache_stats
    third = toy.update(toy.schedule()).scheduler_stats.prefix_cache_stats
    assert (first.requests, first.queries, first.hits) == (1, 12, 0)
    assert (second.requests, second.queries, second.hits) == (1, 9, 8)
    assert (third.requests, third.queries, third.hits) == (0, 0, 0)


def test_lookups_of_preempted_requests_are_counted_apart() -> None:
    toy = ToyEngine(num_gpu_blocks=6)
    for name in "ab":
        toy.add(name, 8, max_tokens=3)
    toy.steps(2)
    while True:
        stats = toy.update(toy.schedule()).scheduler_stats.prefix_cache_stats
        if "b" in toy.running:
            break
    assert (stats.requests, stats.preempted_requests, stats.preempted_queries, stats.preempted_hits) == (0, 1, 9, 8)


def test_cached_tokens_are_those_of_the_first_admission() -> None:
    toy = ToyEngine()
    text = prompt_of("text", 12)
    first, second = toy.add("a", text), toy.add("b", text)
    assert (first.num_cached_tokens, second.num_cached_tokens) == (-1, -1)
    toy.step()
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 8), "found within the very same step"


# ---- observers


def test_observers_are_told_in_order() -> None:
    toy = ToyEngine()
    toy.now = 1.0
    toy.add("a", prompt_of("text", 8), max_tokens=2)
    toy.now = 2.0
    toy.step()
    toy.now = 3.0
    toy.add("b", prompt_of("text", 6), max_tokens=9)
    toy.step()
    toy.now = 4.0
    toy.abort("b")
    assert toy.watcher.calls == [
        ("request_arrived", 1.0, "a"),
        ("step_started", 2.0, 0, 0),
        ("prefix_looked_up", 2.0, 0, "a", 0, 0),
        ("step_decided", 2.0, 0, 1),
        ("step_completed", 2.0, 0, 1),
        ("request_arrived", 3.0, "b"),
        ("step_started", 3.0, 1, 1),
        ("prefix_looked_up", 3.0, 1, "b", 4, 0),
        ("step_decided", 3.0, 1, 2),
        ("request_finished", 3.0, "a", 3.0),
        ("step_completed", 3.0, 1, 2),
        ("request_finished", 4.0, "b", 4.0),
    ]


def test_a_refused_request_is_not_announced() -> None:
    toy = ToyEngine()
    toy.add("a")
    with pytest.raises(Exception, match="another"):
        toy.add("a")
    assert toy.watcher.names() == ["request_arrived"]


def test_a_resumed_request_is_not_looked_up_anew() -> None:
    toy = ToyEngine(num_gpu_blocks=6)
    for name in "ab":
        toy.add(name, 8)
    toy.drain()
    assert toy.requests["b"].num_preemptions == 1
    assert toy.watcher.names().count("prefix_looked_up") == 2


def test_every_step_is_told_even_an_empty_one() -> None:
    toy = ToyEngine()
    toy.step()
    assert toy.watcher.names() == ["step_started", "step_decided", "step_completed"]


def test_a_finished_request_is_complete_when_it_is_told() -> None:
    seen: list[Any] = []

    class Finisher(Watcher):
        def request_finished(self, ts: float, request: Any) -> None:
            seen.append((request.status.is_finished, request.slot, request.times.finished, request.num_output_tokens))

    toy = ToyEngine()
    toy.scheduler.attach_observer(Finisher())
    toy.now = 2.5
    toy.add("a", max_tokens=1)
    toy.step()
    assert seen == [(True, -1, 2.5, 1)]


def test_several_observers_are_one() -> None:
    toy, first, second = ToyEngine(), Watcher(), Watcher()
    toy.scheduler.attach_observer(Observers(first, second))
    toy.add("a", max_tokens=1)
    toy.step()
    assert first.calls == second.calls
    assert first.names() == [
        "request_arrived",
        "step_started",
        "prefix_looked_up",
        "step_decided",
        "request_finished",
        "step_completed",
    ]


def test_without_an_observer_decisions_are_the_same() -> None:
    def run(*, watched: bool) -> list[dict[str, int]]:
        toy = ToyEngine(num_gpu_blocks=9)
        if not watched:
            toy.scheduler.attach_observer(None)
        for i in range(6):
            toy.add(f"r{i}", 6 + i)
        return [toy.step().num_scheduled_tokens for _ in range(40)]

    assert run(watched=True) == run(watched=False)
