"""A scheduler belongs to one thread: in debug mode a second one is told so, before it has done anything."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from subprocess import run
from sys import executable
from threading import Event
from typing import Any

import pytest
from tests.support.toy_engine import make_request, snapshot

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.sched.outputs import ModelOutput
from tokenyard.core.sched.scheduler import Scheduler


def make(**options: Any) -> Scheduler:
    return Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=20, block_size=4), **options)


def elsewhere(call: Callable[[], Any]) -> Any:
    """What another thread, which has ended then, makes of it."""
    with ThreadPoolExecutor(1, "another") as pool:
        return pool.submit(call).result()


def test_in_debug_mode_a_second_thread_is_refused() -> None:
    scheduler = make(debug=True)
    scheduler.add_request(make_request("a", 4))
    plan = scheduler.schedule()
    before = snapshot(scheduler)
    calls: list[Callable[[], Any]] = [
        scheduler.schedule,
        lambda: scheduler.add_request(make_request("b", 4)),
        lambda: scheduler.finish_requests("a"),
        lambda: scheduler.update_from_output(plan, ModelOutput.from_lists([[1]])),
        scheduler.reset_prefix_cache,
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"in thread 'another_0', and .* used in 'MainThread'.*submit"):
            elsewhere(call)
    assert snapshot(scheduler) == before
    assert len(scheduler.update_from_output(plan, ModelOutput.from_lists([[1]]))) == 1


def test_a_thread_that_has_ended_hands_it_over() -> None:
    scheduler = make(debug=True)
    elsewhere(lambda: scheduler.add_request(make_request("a", 4)))
    assert scheduler.schedule().req_ids == ("a",)


def test_a_thread_that_waits_has_not_ended() -> None:
    scheduler, over = make(debug=True), Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(scheduler.schedule).result()
        waiting = pool.submit(over.wait)
        with pytest.raises(RuntimeError, match="not thread-safe"):
            scheduler.schedule()
        over.set()
        assert waiting.result()


def test_nobody_asks_otherwise() -> None:
    scheduler = make(debug=False)
    elsewhere(lambda: scheduler.add_request(make_request("a", 4)))
    assert scheduler.schedule().req_ids == ("a",)
    elsewhere(scheduler.make_stats)


@pytest.mark.slow
def test_pythons_development_mode_is_debug_mode() -> None:
    code = (
        "from tokenyard import CacheConfig, Scheduler, SchedulerConfig;"
        "print(Scheduler(SchedulerConfig(), CacheConfig(num_gpu_blocks=9)).calls.watches_thread)"
    )
    printed = [
        run([executable, *flags, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        for flags in ([], ["-X", "dev"])
    ]
    assert printed == ["False", "True"]
