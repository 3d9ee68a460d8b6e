"""Replicas that come and go: the rule, when they take requests, and what they held."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.errors import ConfigError
from tokenyard.sim.replay import ReplayResult, replay_parallel
from tokenyard.sim.replicas import Autoscaler, Autoscaling
from tokenyard.sim.routers import LeastLoaded
from tokenyard.steptime.model import ConstantLatency
from tokenyard.workload.record import Clients, Workload, WorkloadRequest
from tokenyard.workload.tokens import StreamTokens

STEP = ConstantLatency(seconds=0.1)


def scaling(**changes: Any) -> Autoscaling:
    return Autoscaling(**{"least": 1, "most": 4, "startup": 10.0, "target": 2.0, "window": 60.0, **changes})


def workload(moments: list[float], *, clients: Clients | None = None) -> Workload:
    requests = [
        WorkloadRequest(
            request_id=f"r{i}", prompt=StreamTokens.unique(i, 20), max_tokens=20, arrival_time=moment, output_seed=i
        )
        for i, moment in enumerate(moments)
    ]
    made = Workload("scaled", requests)
    return made if clients is None else made.with_clients(clients)


def replayed(requests: Workload, autoscaling: Autoscaling) -> ReplayResult:
    return replay_parallel(
        requests,
        SchedulerConfig(max_num_seqs=1, max_num_batched_tokens=64, max_model_len=256),
        CacheConfig(num_gpu_blocks=100),
        STEP,
        LeastLoaded(),
        data_parallel_size=autoscaling.most,
        autoscaling=autoscaling,
    )


# ---- the rule


def test_as_many_as_the_target_needs_and_no_change_within_the_tolerance() -> None:
    rule = Autoscaler(scaling(most=100, target=5.0))
    assert rule.desired(0.0, 18, 3) == 4
    assert rule.desired(15.0, 21, 4) == 4  # 5.25 each: within a tenth
    assert rule.desired(30.0, 23, 4) == 5


def test_up_it_doubles_or_adds_four_in_fifteen_seconds() -> None:
    rule = Autoscaler(scaling(most=100, target=1.0, sync=5.0))
    assert rule.desired(0.0, 99, 1) == 5
    assert rule.desired(5.0, 99, 5) == 5
    assert rule.desired(15.0, 99, 5) == 10
    assert rule.desired(20.0, 99, 10) == 10
    assert rule.desired(30.0, 99, 10) == 20


def test_down_only_to_what_was_enough_for_the_whole_window() -> None:
    rule = Autoscaler(scaling(window=60.0))
    assert rule.desired(0.0, 8, 4) == 4
    assert rule.desired(30.0, 3, 4) == 4
    assert rule.desired(61.0, 0, 4) == 2  # what was desired 31 s ago
    assert rule.desired(91.0, 0, 2) == 1


def test_never_beyond_its_ends() -> None:
    rule = Autoscaler(scaling(least=2, most=3, window=0.0))
    assert rule.desired(0.0, 1000, 2) == 3
    assert rule.desired(1.0, 0, 3) == 2


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("replicas", {"least": 0}),
        ("autoscale", {"least": 5}),
        ("startup", {"startup": -1.0}),
        ("scale_target", {"target": 0.0}),
    ],
)
def test_what_cannot_be_scaled_by(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        scaling(**changes)
    assert refused.value.field == field


# ---- replays


def test_a_new_replica_takes_requests_after_its_start() -> None:
    """Twenty requests of two seconds at once: twelve wait at the first decision. Later ones find two replicas."""
    result = replayed(workload([0.0] * 20 + [20.0 + 4 * i for i in range(10)]), scaling(most=2))
    figures = result.replicas
    assert figures is not None
    assert [(each.at_s, each.held, each.ready) for each in figures.changes[:3]] == [(0, 1, 1), (15, 2, 1), (25, 2, 2)]
    assert figures.started == 1
    assert result.ranks[1].num_requests > 0
    assert result.num_finished == 30


def test_one_that_is_stopped_ends_what_it_has_and_holds_its_gpus_until_then() -> None:
    result = replayed(workload([0.0] * 20 + [float(moment) for moment in range(20, 200, 4)]), scaling(most=2))
    figures = result.replicas
    assert figures is not None
    assert figures.max_held == 2
    stopped = [each for each in figures.changes if each.held == 1 and each.at_s > 25]
    assert stopped
    area = sum(
        each.held * (after - each.at_s)
        for each, after in zip(
            figures.changes, [*(each.at_s for each in figures.changes[1:]), result.seconds], strict=True
        )
    )
    assert figures.held_s == pytest.approx(area)
    assert figures.mean_held == pytest.approx(area / result.seconds)


def test_so_many_replicas_always_are_as_many_engines() -> None:
    requests = workload([0.5 * i for i in range(40)])
    result = replayed(requests, scaling(least=3, most=3))
    engines = replay_parallel(
        requests,
        SchedulerConfig(max_num_seqs=1, max_num_batched_tokens=64, max_model_len=256),
        CacheConfig(num_gpu_blocks=100),
        STEP,
        LeastLoaded(),
        data_parallel_size=3,
    )
    assert result.ranks == engines.ranks
    assert result.replicas is not None
    assert [(each.held, each.ready) for each in result.replicas.changes] == [(3, 3)]


@given(
    moments=st.lists(st.floats(0, 200), min_size=1, max_size=60),
    least=st.integers(1, 2),
    more=st.integers(0, 3),
    startup=st.sampled_from([0.0, 1.0, 15.0, 40.0]),
    window=st.sampled_from([0.0, 15.0, 60.0]),
    timeout=st.sampled_from([None, 5.0]),
)
@settings(deadline=None, max_examples=examples(40))
def test_nothing_is_lost_and_what_is_held_adds_up(
    *, moments: list[float], least: int, more: int, startup: float, window: float, timeout: float | None
) -> None:
    clients = None if timeout is None else Clients(timeout=timeout, retries=1)
    rule = scaling(least=least, most=least + more, startup=startup, window=window)
    result = replayed(workload(sorted(moments), clients=clients), rule)
    figures = result.replicas
    assert figures is not None
    assert result.num_finished + result.num_aborted == len(moments)
    ends = [*(each.at_s for each in figures.changes[1:]), result.seconds]
    held = sum(each.held * (end - each.at_s) for each, end in zip(figures.changes, ends, strict=True))
    assert figures.held_s == pytest.approx(held)
    assert all(least <= each.held <= least + more for each in figures.changes)
    assert all(1 <= each.ready <= each.held for each in figures.changes)
