"""What a replay's executor makes of time: the host's part of a step is hidden only while another step runs."""

from __future__ import annotations

import pytest
from tests.support.toy_engine import make_request

from tokenyard.core.config import CacheConfig, SchedulerConfig
from tokenyard.core.engine import EngineCore
from tokenyard.core.sched.scheduler import Scheduler
from tokenyard.errors import ConfigError
from tokenyard.sim.executor import SimulatedExecutor
from tokenyard.steptime.model import ConstantLatency
from tokenyard.steptime.pace import VirtualClock


def ends(*, is_async: bool, host_seconds: float = 0.25, max_tokens: int = 5) -> tuple[list[float], SimulatedExecutor]:
    """When the steps of one request end, a second each."""
    clock = VirtualClock()
    config = SchedulerConfig(max_model_len=64, async_scheduling=is_async)
    scheduler = Scheduler(config, CacheConfig(num_gpu_blocks=20), clock=clock.now)
    executor = SimulatedExecutor(clock, ConstantLatency(seconds=1.0, host_seconds=host_seconds))
    core = EngineCore(scheduler, executor)
    core.add_request(make_request("a", 4, max_tokens=max_tokens, ignore_eos=True))
    moments = []
    while core.has_work:
        outputs = core.step()
        if outputs is not None and len(outputs):
            moments.append(clock.now())
    return moments, executor


def test_one_step_in_flight_waits_for_the_host() -> None:
    moments, executor = ends(is_async=False)
    assert moments == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert executor.busy_seconds == 5.0


def test_two_steps_in_flight_hide_the_host() -> None:
    moments, executor = ends(is_async=True)
    assert moments == [1.0, 1.75, 2.5, 3.25, 4.0]
    assert executor.busy_seconds == 4.0


def test_a_host_slower_than_the_device_sets_the_pace() -> None:
    moments, _ = ends(is_async=True, host_seconds=0.875)
    assert moments == [1.0, 1.875, 2.75, 3.625, 4.5], "the device waits for each step to be prepared"


def test_a_host_that_takes_no_time_is_not_missed() -> None:
    assert ends(is_async=True, host_seconds=0.0)[0] == ends(is_async=False)[0]


@pytest.mark.parametrize("seconds", [-0.1, 1.1, float("nan")])
def test_the_host_s_part_is_part_of_a_step(seconds: float) -> None:
    with pytest.raises(ConfigError, match="host_seconds"):
        ConstantLatency(seconds=1.0, host_seconds=seconds)
