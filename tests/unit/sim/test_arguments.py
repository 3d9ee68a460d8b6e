"""What a replay is given: kinds and order of its arguments, and the numbers with which latency models answer."""

from __future__ import annotations

import inspect
from decimal import Decimal
from fractions import Fraction
from itertools import permutations
from typing import Any, get_type_hints

import numpy as np
import pytest

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.errors import ConfigError, LatencyError
from tokenyard.sim.options import ReplayKeywords, ReplayOptions
from tokenyard.sim.replay import replay, replay_parallel, replay_split
from tokenyard.sim.settings import KVLink
from tokenyard.steptime.model import ConstantLatency
from tokenyard.workload.load import read_workload
from tokenyard.workload.record import Workload

CONFIG = SchedulerConfig(max_model_len=4096, max_num_seqs=8)
CACHE = CacheConfig(num_gpu_blocks=2000)


def workload() -> Workload:
    return read_workload("random", limit=12)


refused_by_parallel: Any = replay_parallel
refused_by_split: Any = replay_split
"""With arguments that no type allows."""
RIGHT = ("workload", "config", "cache_config", "latency")


@pytest.mark.parametrize("order", [each for each in permutations(range(4)) if each != (0, 1, 2, 3)])
def test_arguments_in_another_order_are_one_error(order: tuple[int, ...]) -> None:
    given = (workload(), CONFIG, CACHE, ConstantLatency(seconds=0.01))
    mixed: Any = [given[each] for each in order]
    first = next(name for name, position, each in zip(RIGHT, order, range(4), strict=True) if position != each)
    with pytest.raises(ConfigError) as refused:
        replay(*mixed)
    assert refused.value.field == first
    with pytest.raises(ConfigError) as refused:
        refused_by_parallel(*mixed, None, data_parallel_size=2)
    assert refused.value.field == first
    with pytest.raises(ConfigError) as refused:
        refused_by_split(*mixed, None)
    assert refused.value.field == first


def test_every_way_to_ask_for_a_replay_takes_all_options_and_lists_them() -> None:
    options = list(get_type_hints(ReplayOptions).items())
    assert options == list(get_type_hints(ReplayKeywords).items())
    assert len(options) >= 9
    given = (workload(), CONFIG, CACHE, ConstantLatency(seconds=0.01))
    for ask in (replay, replay_parallel, replay_split):
        listed = inspect.signature(ask).parameters
        assert [name for name in listed if name in dict(options)] == [name for name, _ in options]
        assert all(each.kind is not each.VAR_KEYWORD for each in listed.values())
    for asked, more in ((replay, ()), (refused_by_parallel, ("vllm",)), (refused_by_split, (KVLink(1000, 10.0),))):
        unknown: dict[str, Any] = {"warm_up": 1.0} | ({"data_parallel_size": 2} if asked is replay_parallel else {})
        with pytest.raises(TypeError, match=r"^warm_up = 1\.0: "):
            asked(*given, *more, **unknown)


def test_a_class_is_no_latency_model() -> None:
    with pytest.raises(ConfigError, match="latency"):
        replay(workload(), CONFIG, CACHE, ConstantLatency)  # type: ignore[arg-type]  # the point


class Answers(ConstantLatency):
    """A step takes what the test says, whatever kind of number that is."""

    said: Any = 0.0

    def step_seconds(self, shape: Any) -> Any:
        return self.said


def answers(said: Any) -> Answers:
    latency = Answers(seconds=0.01)
    object.__setattr__(latency, "said", said)
    return latency


HALF = [0.5, np.float32(0.5), np.float64(0.5), np.float16(0.5), Fraction(1, 2), Decimal("0.5")]


@pytest.mark.parametrize("said", HALF, ids=lambda said: type(said).__name__)
def test_every_real_number_is_a_duration(said: Any) -> None:
    plain = replay(workload(), CONFIG, CACHE, answers(0.5))
    assert replay(workload(), CONFIG, CACHE, answers(said)) == plain
    assert plain.seconds > 0.5


@pytest.mark.parametrize("said", [1, np.int64(1), np.uint8(1)], ids=lambda said: type(said).__name__)
def test_so_is_every_whole_one(said: Any) -> None:
    assert replay(workload(), CONFIG, CACHE, answers(said)) == replay(workload(), CONFIG, CACHE, answers(1.0))


NO_DURATIONS = [True, None, "1", -0.1, float("nan"), float("inf"), Decimal("NaN"), Decimal("sNaN"), 10**400, 1j, [0.1]]


@pytest.mark.parametrize("said", NO_DURATIONS, ids=str)
def test_what_is_no_duration_is_refused(said: Any) -> None:
    with pytest.raises(LatencyError, match="give a finite number of seconds"):
        replay(workload(), CONFIG, CACHE, answers(said))


@pytest.mark.parametrize("policy", ["fcfs", "continuum-ttl", "fair-share"])
@pytest.mark.parametrize("is_async", [False, True])
def test_steps_that_take_no_time_come_to_an_end(policy: str, is_async: bool) -> None:
    """Every step brings tokens, and what waits for a moment is waited for: time need not pass in steps."""
    config = SchedulerConfig(max_model_len=4096, max_num_seqs=8, policy=policy, async_scheduling=is_async)
    requests = workload()
    last = max(each.arrival_time for each in requests)
    result = replay(requests, config, CACHE, answers(0))
    assert result.num_finished == len(requests)
    assert result.seconds == pytest.approx(last)
    assert result.busy_seconds == 0
