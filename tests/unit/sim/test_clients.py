"""Clients that hang up and ask again: when, how often, what is counted, on one engine and on several."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.errors import ConfigError, WorkloadError
from tokenyard.explain.report.builder import ReportBuilder
from tokenyard.explain.report.report import ClientFigures
from tokenyard.record.recorder import TraceRecorder
from tokenyard.sim.replay import ReplayResult, replay, replay_parallel
from tokenyard.sim.routers import LeastLoaded, RoundRobin
from tokenyard.steptime.model import ConstantLatency
from tokenyard.workload.record import Clients, Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens

STEP = ConstantLatency(seconds=0.1)


def workload(
    number: int, *, every: float = 0.0, tokens: int = 10, clients: Clients | None = None, **more: Any
) -> Workload:
    made = Workload(
        "clients",
        [
            WorkloadRequest(
                request_id=f"r{i}",
                prompt=StreamTokens.unique(i, 20),
                max_tokens=10,
                arrival_time=i * every,
                output_seed=i,
                **more,
            )
            for i in range(number)
        ],
    )
    return made if clients is None else made.with_clients(clients)


def configs(seats: int) -> tuple[SchedulerConfig, CacheConfig]:
    scheduler = SchedulerConfig(max_num_seqs=seats, max_num_batched_tokens=64, max_model_len=256)
    return scheduler, CacheConfig(num_gpu_blocks=200)


def replayed(requests: Workload, seats: int = 1, **more: Any) -> ReplayResult:
    return replay(requests, *configs(seats), STEP, **more)


def figures(requests: Workload, seats: int = 1) -> ClientFigures:
    clients = replayed(requests, seats).clients
    assert clients is not None
    return clients


def test_who_waits_in_vain_hangs_up_and_is_answered_by_a_later_attempt() -> None:
    """One seat, answers of a second: the second request has 0.5 s of it when its client hangs up after 1.5 s."""
    seen = figures(workload(2, clients=Clients(timeout=1.5, retries=2, wait=1.0)))
    assert (seen.given_up, seen.retried, seen.answered_late, seen.unanswered) == (1, 1, 1, 0)
    assert seen.answer_ms.max == pytest.approx(3500.0)  # 1.5 s, a second of waiting, a second of answer


def test_without_retries_it_is_not_answered() -> None:
    result = replayed(workload(2, clients=Clients(timeout=1.5)))
    assert result.clients is not None
    assert (result.clients.given_up, result.clients.retried, result.clients.unanswered) == (1, 0, 1)
    assert (result.num_finished, result.num_aborted) == (1, 1)


def test_an_attempt_that_can_never_be_in_time_is_made_so_often_and_no_more() -> None:
    result = replayed(workload(1, clients=Clients(timeout=0.55, retries=3, wait=0.25)))
    seen = result.clients
    assert seen is not None
    assert (seen.given_up, seen.retried, seen.answered_late, seen.unanswered) == (4, 3, 0, 1)
    assert result.seconds == pytest.approx(3 * 0.8 + 0.6)  # the step under way ends; another one tells the workers


def test_a_client_that_goes_away_sooner_does_not_come_back() -> None:
    seen = figures(workload(1, patience=0.3, clients=Clients(timeout=0.8, retries=3)))
    assert (seen.given_up, seen.retried, seen.unanswered) == (0, 0, 1)


def test_turns_follow_the_answer_of_a_later_attempt() -> None:
    requests = list(workload(2))
    turn = WorkloadRequest(
        request_id="t", prompt=StreamTokens.unique(9, 20), max_tokens=10, after=("r1",), gap=1.0, output_seed=9
    )
    clients = Clients(timeout=1.5, retries=2, wait=1.0)
    result = replayed(Workload("turns", [*requests, turn]).with_clients(clients))
    assert result.num_finished == 3
    assert result.seconds == pytest.approx(3.5 + 1.0 + 1.0)


@pytest.mark.parametrize("leaps", [True, False])
def test_retries_find_what_their_first_attempt_left_in_the_cache(*, leaps: bool) -> None:
    builder = ReportBuilder(())
    requests = workload(2, clients=Clients(timeout=1.5, retries=1))
    result = replay(requests, *configs(1), STEP, observer=TraceRecorder(None, builder), leaps=leaps)
    report = builder.report()
    assert report.requests == 2
    assert report.finish_reasons == {"length": 2}
    assert report.attempts is not None
    assert (report.attempts.sent, report.attempts.again) == (3, 1)
    assert report.prefix_hit_rate.local == pytest.approx(16 / 60)
    assert result.num_finished == 2


def test_names_are_not_taken_twice() -> None:
    one = list(workload(1))
    other = WorkloadRequest(request_id="r0~2", prompt=StreamTokens.unique(1, 4), max_tokens=1)
    with pytest.raises(WorkloadError, match="'r0~2': is the id of a retry"):
        Workload("w", [*one, other]).with_clients(Clients(timeout=1.0, retries=1))


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("client_timeout", {"timeout": 0.0}),
        ("client_timeout", {"timeout": float("nan")}),
        ("retries", {"timeout": 1.0, "retries": -1}),
        ("retry_wait", {"timeout": 1.0, "wait": -1.0}),
    ],
)
def test_what_no_client_does(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        Clients(**options)
    assert refused.value.field == field


# ---- on several engines


@pytest.mark.slow
@given(
    number=st.integers(1, 25),
    every=st.sampled_from([0.0, 0.05, 0.31, 1.0]),
    seats=st.integers(1, 4),
    timeout=st.sampled_from([0.25, 0.6, 1.33, 2.0, 30.0]),
    retries=st.integers(0, 2),
    wait=st.sampled_from([0.0, 0.07, 1.0]),
    is_async=st.booleans(),
    leaps=st.booleans(),
)
@settings(deadline=None, max_examples=examples(60))
def test_one_engine_of_several_is_as_one_engine(
    *, number: int, every: float, seats: int, timeout: float, retries: int, wait: float, is_async: bool, leaps: bool
) -> None:
    requests = workload(number, every=every, clients=Clients(timeout=timeout, retries=retries, wait=wait))
    scheduler = SchedulerConfig(
        max_num_seqs=seats, max_num_batched_tokens=64, max_model_len=256, async_scheduling=is_async
    )
    cache = CacheConfig(num_gpu_blocks=200)
    alone = replay(requests, scheduler, cache, STEP, leaps=leaps)
    among = replay_parallel(requests, scheduler, cache, STEP, RoundRobin(), data_parallel_size=1)
    assert (alone.num_finished, alone.num_aborted) == (among.num_finished, among.num_aborted)
    assert alone.num_finished + alone.num_aborted == number
    assert alone.clients == among.clients
    assert alone.seconds == pytest.approx(among.seconds)


def test_two_engines_serve_what_one_gives_up() -> None:
    requests = workload(2, clients=Clients(timeout=1.5, retries=2))
    result = replay_parallel(requests, *configs(1), STEP, LeastLoaded(), data_parallel_size=2)
    assert result.clients is not None
    assert (result.num_finished, result.clients.given_up) == (2, 0)
